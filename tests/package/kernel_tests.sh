#!/usr/bin/env bash
# Uses devcomm_add_kernel_test() as a project does that has found an installed devcomm: good tests pass, a
# bad kernel fails with its report and with a command that repeats it, mistakes in the call are refused.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
failed=0
complain() {
  echo "$*" >&2
  failed=1
}

rm -rf "$WORK"
mkdir -p "$WORK"
"$CMAKE" --install "$BUILD_DIR" --prefix "$WORK/installed" >"$WORK/install.log"
configure() { # CASE
  "$CMAKE" -S "$here/kernel_tests" -B "$WORK/build" -G "$GENERATOR" "-DCMAKE_PREFIX_PATH=$WORK/installed" \
    "-DCASE=$1" >"$WORK/$1.log" 2>&1
}
tests() {
  "${CMAKE%cmake}ctest" --test-dir "$WORK/build" --output-on-failure --no-tests=error "$@"
}

configure good || { cat "$WORK/good.log"; exit 1; }
"$CMAKE" --build "$WORK/build" -j 2
tests -j 2
for chosen in "-L numbers" "-R sum.plain" "-R sum.race" "-R sum.address" "-L ^plain$" "-L ^race$"; do
  # shellcheck disable=SC2086 # option and value
  tests -N $chosen >/dev/null || complain "no test is chosen by $chosen"
done
DEVCOMM_TEST_SEEDS=5-6 tests -V -R sum.plain.ranks3 >"$WORK/seeds.out"
grep -q -- '-- 2 seeds, 5 to 6: all passed' "$WORK/seeds.out" ||
  complain "DEVCOMM_TEST_SEEDS=5-6 did not choose the seeds"

configure bad || { cat "$WORK/bad.log"; exit 1; }
"$CMAKE" --build "$WORK/build" -j 2
if tests >"$WORK/bad.out"; then complain "a kernel with a race passed"; fi
for text in 'devcomm simulator: data race \(seed 1[,)]' 'consumer\.cu:[0-9]+' 'exit status 66' 'failed with 2 of 2 seeds: 1 2'; do
  grep -Eq -- "$text" "$WORK/bad.out" || complain "the failure does not say: $text"
done
command=$(sed -n 's/^-- to repeat: //p' "$WORK/bad.out")
echo "to repeat: $command"
[[ $command == *DEVCOMM_SIM_SCHEDULE=mixed* ]] || complain "the command that repeats the failure has no mixed schedule"
status=0
sh -c "$command" >"$WORK/again.out" 2>&1 || status=$?
[ "$status" = 66 ] || complain "the command that repeats the failure ended with $status, not with 66"
# The same race: places are the same, addresses are the system's.
race() { grep -E 'data race|^  (read|write|not ordered)|^      at ' "$1" | sed 's/0x[0-9a-f]*//'; }
if ! diff <(race "$WORK/bad.out") <(race "$WORK/again.out"); then
  complain "the command repeats another failure"
fi

refused() { # CASE TEXT
  if configure "$1"; then complain "$1: the mistake was accepted"; fi
  tr -s ' \n' ' ' <"$WORK/$1.log" | grep -qF -- "$2" || {
    cat "$WORK/$1.log" >&2
    complain "$1: does not say: $2"
  }
}
refused unknown_word "devcomm_add_kernel_test(sum): unknown SANITIZER;race; it takes SOURCES"
refused no_value "devcomm_add_kernel_test(sum): nothing follows RANKS"
refused no_kernel "SOURCES must name a .cu file with the kernel and its main(); it is 'main.cpp'"
refused no_file "devcomm_add_kernel_test(sum): there is no source SANITIZER ($here/kernel_tests/SANITIZER); it takes SOURCES, RANKS, SEEDS, SANITIZERS,"
refused no_number "RANKS takes whole numbers from 1; it has '0'"
refused no_sanitizer "SANITIZERS are none, race, address and thread; it has 'memory'"
refused no_setting "ENVIRONMENT takes variable=value; it has 'VERBOSE'"
refused twice "there is a target sum already; choose another name"
refused not_enabled "call enable_testing() in the top CMakeLists.txt, before this"
refused not_possible "devcomm_add_kernel_test(sum_address): $CXX cannot build programs for the sanitizer address"
grep -q -- '-- devcomm: sum without address: ' "$WORK/not_possible.log" || complain "nothing said that sum has no address test"
exit "$failed"
