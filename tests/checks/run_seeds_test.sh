#!/usr/bin/env bash
# cmake/devcomm_run_seeds.sh with programs of a line each: what passes, what fails, and what it says.
# usage: run_seeds_test.sh RUNNER
set -uo pipefail
runner=$1
failed=0
expect() { # STATUS TEXT OPTION... -- PROGRAM; TEXT '' is any
  local wanted=$1 text=$2 status=0 output
  shift 2
  output=$("$runner" "$@" 2>&1) || status=$?
  if [ "$status" != "$wanted" ] || ! grep -qF -- "$text" <<<"$output"; then
    printf '%s\nstatus %s, expected %s and: %s\n  from %s\n' "$output" "$status" "$wanted" "$text" "$*"
    failed=1
  fi
}
# shellcheck disable=SC2016 # for the programs' own shell
{
  odd='[ $((DEVCOMM_SIM_SEED % 2)) = 0 ] || { echo "odd $DEVCOMM_SIM_SEED"; exit 3; }'
  expect 0 '-- 8 seeds, 1 to 8: all passed' -- true
  expect 0 '-- 3 seeds, 1 to 3: all passed' --seeds 3 -- sh -c '[ "$1" = "a b" ]' sh 'a b'
  expect 0 'all passed' --env ONE='1 2' --env TWO=2 -- sh -c '[ "$ONE$TWO" = "1 22" ]'
  expect 1 '-- failed with 4 of 8 seeds: 1 3 5 7' -- sh -c "$odd"
  expect 1 'odd 1' -- sh -c "$odd"
  expect 1 "-- to repeat: ONE='1 2' DEVCOMM_SIM_SEED=2 sh -c 'exit \$((DEVCOMM_SIM_SEED == 2))'" \
    --env ONE='1 2' -- sh -c 'exit $((DEVCOMM_SIM_SEED == 2))'
  expect 1 '-- seed 1: did not end; stopped after the 3 s' --limit 3 -- sleep 20
  expect 1 'of 8 seeds took the 1 s that all have together; the rest did not run' --limit 1 -- sh -c 'sleep 0.6; exit 0'
  expect 77 'no device' -- sh -c 'echo no device; exit 77'

  expect 0 '-- found with 4 of 8 seeds: 1 3 5 7' --fails-with 'odd [0-9]' -- sh -c "$odd"
  expect 1 '-- expected at least 5' --fails-with odd --at-least 5 -- sh -c "$odd"
  expect 1 '-- expected at least 8' --fails-with odd --at-least all -- sh -c "$odd"
  expect 1 '-- expected at least 1' --fails-with odd -- true
  expect 1 "with no text that matches 'odd [1-4]': 5 7" --fails-with 'odd [1-4]' -- sh -c "$odd"
  expect 1 "with no text that matches 'anything'" --fails-with anything --limit 3 -- sh -c 'echo anything; sleep 20'

  expect 0 'ended by signal 11' --fails-with 'ended by signal 11' --at-least all -- sh -c 'kill -SEGV $$'

  expect 0 'all passed' --default ONE=1 --env TWO=2 --default TWO=3 -- sh -c '[ "$ONE$TWO" = 12 ]'
  expect 1 '-- to repeat: ONE=1 DEVCOMM_SIM_SEED=1 false' --default ONE=1 -- false

  expect 2 "unknown option '--seed'" --seed 3 -- true
  expect 2 "--seeds takes a whole number; it has 'many'" --seeds many -- true
  expect 2 'nothing follows --env' --env
  expect 2 "--env takes NAME=VALUE; it has 'NAME'" --env NAME -- true
  expect 2 "'(' is no extended regular expression" --fails-with '(' -- true
  expect 2 'no program follows --' --seeds 3 --

  export DEVCOMM_TEST_SEEDS=20
  expect 0 '-- 20 seeds, 1 to 20: all passed' -- true
  export DEVCOMM_TEST_SEEDS=4-6
  expect 0 '-- 3 seeds, 4 to 6: all passed' --seeds 50 -- true
  export DEVCOMM_TEST_SEEDS=6-4
  expect 2 'there are no seeds from 6 to 4' -- true
  unset DEVCOMM_TEST_SEEDS
  export DEVCOMM_SIM_SCHEDULE=slow_rank DEVCOMM_SIM_SEED=77
  expect 1 '-- to repeat: DEVCOMM_SIM_GRACE_MS=5 DEVCOMM_SIM_SCHEDULE=slow_rank DEVCOMM_SIM_SEED=1 false' \
    --env DEVCOMM_SIM_GRACE_MS=5 -- false
  unset DEVCOMM_SIM_SCHEDULE DEVCOMM_SIM_SEED
  # A launcher's variables would make the program one rank of many.
  export RANK=0
  expect 0 'all passed' -- sh -c '[ -z "${RANK:-}" ]'
  expect 1 '-- to repeat: env -u RANK DEVCOMM_SIM_SEED=1 false' -- false
}
exit "$failed"
