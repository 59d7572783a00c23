#!/usr/bin/env bash
# Records, repeats and shrinks failing schedules.
# usage: shrink_test.sh DEVCOMM_SHRINK PROGRAM
set -uo pipefail
shrink=$1 program=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
check() { # WHAT COMMAND...
  local what=$1
  shift
  "$@" && return
  echo "not so: $what"
  failed=1
}
says() { grep -Eq "$1" <<<"$output"; }
ends_with() { [ "$status" = "$1" ]; }
run() { # VARIABLE=VALUE... COMMAND...
  status=0
  output=$(env "$@" 2>&1) || status=$?
  echo "$output"
}

for kernel in lost_sum stuck; do
  for n in 1 2; do run DEVCOMM_SIM_SEED=1 "DEVCOMM_SIM_RECORD=$folder/$n" "$program" "$kernel"; done
  check "$kernel fails under the first seed" ends_with 3
  check "$kernel has the same schedule again" cmp "$folder/1" "$folder/2"
  run "DEVCOMM_SIM_RECORD=$folder/again" "DEVCOMM_SIM_REPLAY=$folder/1" "$program" "$kernel"
  check "$kernel fails again when it is repeated" ends_with 3
  check "$kernel is repeated exactly" cmp "$folder/1" "$folder/again"
done

run "$shrink" --output "$folder/few" -- "$program" lost_sum
check "lost_sum is shrunk" ends_with 0
check "lost_sum needs at most 3 switches" says ': [123] of them are enough'
check "the switch is in the kernel" says '^ +1\. device 0, block [01], thread [0-9]+ stops at .*add_in_two_steps'
check "the other thread is named" says '^ +device 0, block [01], thread [0-9]+ goes on from '
run "DEVCOMM_SIM_REPLAY=$folder/few" "$program" lost_sum
check "what was shrunk still fails" ends_with 3

run "$shrink" --output "$folder/few" -- "$program" stuck
check "stuck is shrunk" ends_with 0
check "stuck is reported as it was" says 'deadlock: every thread waits'
check "stuck needs one choice" says ': 1 of them are enough'
run "DEVCOMM_SIM_REPLAY=$folder/few" "$program" stuck
check "what was shrunk is still stuck" says "deadlock.*"
check "it says how it is repeated" says "seed 1, DEVCOMM_SIM_REPLAY=$folder/few"

run "$shrink" --seeds 3 -- "$program" nothing
check "a right program is not shrunk" ends_with 2
check "a right program has no failure" says 'no failure under 3 seeds'
run "$shrink" --seeds 0 -- "$program" lost_sum
check "no seeds are refused" says "seeds is '0'; give a number from 1"
run "$shrink" -- "$folder/none"
check "a missing program is named" says "cannot run $folder/none"
echo 'first 1 second' >"$folder/wrong"
run "DEVCOMM_SIM_REPLAY=$folder/wrong" "$program" lost_sum
check "a file that is no schedule is refused" says 'wrong:1 is not "FROM POINT TO"'
check "and ends the program" ends_with 2
run "DEVCOMM_SIM_REPLAY=$folder/missing" "$program" lost_sum
check "a missing schedule is refused" says "missing', which cannot be opened"
exit "$failed"
