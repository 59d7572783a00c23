#!/usr/bin/env bash
# Each check accepts a good tree and refuses a tree with one fault of the kind it looks for.
set -euo pipefail
checks=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fresh_tree() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/include/devcomm/arch"
  cp "$checks/../../.clang-format" "$work/tree/"
  printf '/// \\file good.hpp\n/// A good header; in a comment, threadIdx is no fault.\n#pragma once\n\nint good();\n' \
    >"$work/tree/include/devcomm/good.hpp"
  printf '/// \\file seam.cuh\n#pragma once\n\ninline void trap() { asm volatile("trap;"); }\n' \
    >"$work/tree/include/devcomm/arch/seam.cuh"
  mkdir "$work/tree/scripts"
  mkdir -p "$work/tree/host/src/util" "$work/tree/docs"
  printf '// {"DEVCOMM_GOOD", "tests", "nothing"},\n' >"$work/tree/host/src/util/known_variables.hpp"
  printf '<!-- begin: list -->\n| variable | read by | meaning |\n|---|---|---|\n| `DEVCOMM_GOOD` | tests | nothing |\n<!-- end: list -->\n' \
    >"$work/tree/docs/environment.md"
  printf '#!/usr/bin/env bash\necho "$HOME"\n' >"$work/tree/scripts/good.sh"
  mkdir -p "$work/tree/tests/mutation"
  printf 'in good.hpp\n\nbad: wrong order, it is bad\n  int {~~good()~>bad()~~};\n  > good_test race\n' \
    >"$work/tree/tests/mutation/mutants.txt"
}
add_line() { # FILE LINE
  printf '%s\n' "$2" >>"$work/tree/include/devcomm/$1"
}
expect() { # ok|refused CHECK WHAT
  local result=ok check=$checks/$2.sh
  [ -e "$check" ] || check=$checks/$2.py
  "$check" "$work/tree" >"$work/log" 2>&1 || result=refused
  if [ "$result" != "$1" ]; then
    echo "checks' own test: $2 on $3: $result where $1 was expected" >&2
    cat "$work/log" >&2
    failed=1
  fi
}

fresh_tree
for check in format seam headers directions launch_bounds shell variables mutants words; do expect ok "$check" "a good tree"; done

for fault in '__global__ void k(float* p) {}' 'template <int N>\n__global__ void __launch_bounds__(64) good();\nstatic __global__ void k() {}'; do
  fresh_tree && printf 'constexpr unsigned threads = 512;\n'"$fault"'\n' >"$work/tree/tests/large.cu"
  expect refused launch_bounds "a large block without launch bounds"
done
fresh_tree && printf 'constexpr unsigned threads = 256;\n__global__ void k();\n' >"$work/tree/tests/small.cu"
expect ok launch_bounds "a block of 256 threads"

fresh_tree && add_line good.hpp 'int   badly( int  spaced );'
expect refused format "a badly spaced line"

for fault in 'inline void f() { asm volatile("bar.sync 0;"); }' 'inline int f() { return threadIdx.x; }' \
  'inline void f() { __syncthreads(); }' 'inline int f() { return __shfl_xor_sync(1, 2, 3); }' \
  'inline unsigned f() { return __ballot_sync(1, 2); }' '#if defined(__CUDA_ARCH__)' 'inline void f(int* p) { atomicAdd_system(p, 1); }' \
  'inline void f() { __threadfence_system(); }' 'inline int f(int* p) { return __ldg(p); }'; do
  fresh_tree && add_line good.hpp "$fault"
  expect refused seam "$fault"
done

fresh_tree && add_line good.hpp '#include <devcomm/host/error.hpp>'
expect refused headers "an include of the host library"
fresh_tree && sed -i '/pragma once/d' "$work/tree/include/devcomm/good.hpp"
expect refused headers "a missing #pragma once"
fresh_tree && sed -i '1d' "$work/tree/include/devcomm/good.hpp"
expect refused headers "a missing file comment"
fresh_tree && for _ in $(seq 600); do add_line good.hpp ''; done
expect refused headers "a header of 605 lines"
fresh_tree && sed -i 's/good()/better()/' "$work/tree/include/devcomm/good.hpp"
expect refused mutants "a mutant whose text is gone"
fresh_tree && add_line good.hpp 'int good();'
expect refused mutants "a mutant whose text is there twice"
fresh_tree && sed -i '/> good_test/d' "$work/tree/tests/mutation/mutants.txt"
expect refused mutants "a mutant without a test"
for fault in 'constexpr int most_''ranks = 3;' '// a faulty neigh''bour'; do
  fresh_tree && add_line good.hpp "$fault"
  expect refused words "$fault"
done
fresh_tree && mkdir -p "$work/tree/benchmarks/results" && echo 'built in /home/me/devcomm' >"$work/tree/benchmarks/results/a.log"
expect refused words "a path in a result"
fresh_tree && add_line good.hpp '// puts in flight'
expect ok words "a word that is the field's"
fresh_tree && touch "$work/tree/include/devcomm/body.inl"
expect refused headers "an .inl file"

for fault in 'const char* f() { return std::getenv("DEVCOMM_BAD"); }' 'auto f() { return variables("DEVCOMM_BAD"); }'; do
  fresh_tree && printf '%s\n' "$fault" >"$work/tree/host/src/util/bad.cpp"
  expect refused variables "$fault"
done
fresh_tree && printf 'echo "$DEVCOMM_BAD"\n' >"$work/tree/scripts/bad.sh"
expect refused variables "a script that reads an unlisted variable"
fresh_tree && sed -i 's/nothing/something/' "$work/tree/docs/environment.md"
expect refused variables "a page that differs from the list"

add_file() { # PATH LINE
  mkdir -p "$(dirname "$work/tree/$1")"
  printf '%s\n' "$2" >>"$work/tree/$1"
}
fresh_tree && add_file include/devcomm/lsa/session.cuh '#include <devcomm/detail/poll.cuh>' &&
  add_file host/src/rank/context.cpp '#include "util/hex.hpp"' && add_file host/src/util/hex.hpp '#pragma once' &&
  add_file simulator/src/device.cpp '#include "device/port.hpp"' && add_file host/src/device/port.hpp '#pragma once'
expect ok directions "includes of lower rooms"
while read -r file line; do
  fresh_tree && add_file host/src/rank/context.hpp '#pragma once' && add_file "$file" "$line"
  expect refused directions "$line in $file"
done <<'FAULTS'
include/devcomm/lsa/session.cuh #include <devcomm/collective/broadcast.cuh>
include/devcomm/requirements.hpp #include <devcomm/lsa/barriers.hpp>
include/devcomm/arch/seam.cuh #include <devcomm/status.hpp>
include/devcomm/elsewhere/new.cuh #include <devcomm/config.hpp>
include/devcomm/good.hpp #include <devcomm/host/error.hpp>
include/devcomm/good.hpp #include <devcomm/simulator/arch.cuh>
host/src/util/hex.hpp #include "rank/context.hpp"
host/include/devcomm/host/error.hpp #include <devcomm/simulator/simulator.hpp>
simulator/src/device.cpp #include "rank/context.hpp"
FAULTS
fresh_tree && add_file simulator/src/engine/a.hpp '#include "race/b.hpp"' &&
  add_file simulator/src/race/b.hpp '#include "engine/a.hpp"'
expect refused directions "rooms that include each other"

# shellcheck disable=SC2016 # the fault is the point
fresh_tree && printf '#!/usr/bin/env bash\nfiles=$(ls)\nrm ${files[@]/x}\n' >"$work/tree/scripts/bad.sh"
expect refused shell "an unquoted expansion"

rm -rf "$work/tree" && mkdir "$work/tree"
for check in format seam headers directions shell variables; do expect refused "$check" "an empty tree"; done
exit "$failed"
