#!/usr/bin/env bash
# Builds and tests devcomm.
#
#   scripts/test.sh          the quick round: source checks, simulator-only build and most of its tests;
#                            under 8 minutes on 2 idle cores. Says at its end what it left out
#   scripts/test.sh full     everything (what CI runs; docs/internals/testing.md has the times)
#   scripts/test.sh STAGE... only these stages; their names are listed below
#   DEVCOMM_CUDA=0 scripts/test.sh full    without GPU parts
#   DEVCOMM_ADDRESS_BUILDS="g++:Debug clang++:Release" scripts/test.sh address    these builds of the examples too
#   DEVCOMM_MUTANTS=all scripts/test.sh mutation    every mutant; or a sample, by its seed
#
# Needs Debian 12 or Ubuntu 24.04, as root or with sudo; installs what is missing by apt, and a disassembler by
# pip into build/tools where the CUDA toolkit has none. A stage that fails does not stop the others; the exit
# status is non-zero when any failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
. scripts/lib/setup.sh

all_stages=(checks release compilers race mutation thread address tidy compile_time docs_site python)
other_stages=(python-full python-torch)  # hours, or gigabytes of packages
quick_stages=(checks quick)
left_out=()
case ${1:-quick} in
  full) stages=("${all_stages[@]}") ;;
  quick)
    stages=("${quick_stages[@]}")
    left_out=(
      "GPU programs and kernels compiled by nvcc, benchmarks, MPI, and the tests in tests/{exhaustive,mutation,mistakes,"
      "  soak,package,docs}: scripts/test.sh release"
      "other compilers than the default one: scripts/test.sh compilers"
      "race detector, mutants, ThreadSanitizer, AddressSanitizer, clang-tidy: scripts/test.sh race mutation thread address tidy"
      "the compile-time budget, the documentation as a site, the Python package:"
      "  scripts/test.sh compile_time docs_site python"
      "all of these: scripts/test.sh full"
    )
    ;;
  -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) stages=("$@") ;;
esac
sets_alone="'quick' and 'full' stand alone; with other stages, name them all: scripts/test.sh checks release thread"
case ${1:-} in quick | full) [ $# = 1 ] || fail "$sets_alone" ;; esac
[ $# -le 1 ] || for stage in "$@"; do
  case $stage in quick | full) fail "$sets_alone" ;; esac
done
for stage in "${stages[@]}"; do
  [[ " ${all_stages[*]} ${other_stages[*]} quick " == *" $stage "* ]] ||
    fail "unknown stage '$stage'; the stages are: ${all_stages[*]}; and, not in full, ${other_stages[*]}"
done

find_cuda
use_ccache
wanted() { [[ " ${stages[*]} " == *" $1 "* ]]; }
wanted_any() {
  local stage
  for stage in "$@"; do if wanted "$stage"; then return 0; fi; done
  return 1
}
packages=(g++ cmake ninja-build)
if wanted checks; then packages+=(clang-format-14 shellcheck); fi
if wanted_any quick release race mutation thread address; then packages+=(libcatch2-dev clang-format-14 shellcheck); fi
# GIN between processes.
if wanted_any quick release compilers race mutation thread address tidy; then packages+=(libfabric-dev); fi
# Its tests on several hosts, which are network namespaces.
if wanted_any quick release; then packages+=(iproute2); fi
if wanted_any race mutation thread address; then packages+=(lld); fi
if wanted_any checks release mutation thread; then packages+=(python3); fi
if wanted_any thread address tidy; then packages+=(clang libclang-rt-dev); fi
if wanted tidy; then packages+=(libcatch2-dev clang-tidy python3); fi
if wanted release; then packages+=(libopenmpi-dev openmpi-bin python3-matplotlib); fi
# The test of the device headers under clang -x cuda needs Clang 16 or newer.
if wanted release && [ -n "$cuda_root" ]; then
  if [ "$(os_id)" = debian-12 ]; then packages+=(clang-19); else packages+=(clang-18); fi
fi
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
require_packages "${packages[@]}"
# The oldest and the newest of each that the system has, from the oldest that devcomm supports.
compilers=()
if wanted compilers; then
  mapfile -t compilers < <(oldest_and_newest g++ 11; oldest_and_newest clang 14)
  require_packages "${compilers[@]}"
fi
# The toolkit brings the CCCL headers; without one the distribution's serve for cuda::atomic_ref.
if wanted_any quick release race thread address && [ -z "$cuda_root" ]; then optional_package libcu++-dev "tests of kernels with cuda::atomic_ref are"; fi
# What no GPU will run is compiled with as little optimization as nvcc knows, most of it to PTX alone, and most examples
# for one generation.
cuda_flags='-O3 -DNDEBUG' as_ptx=OFF examples_for=
if [ "$gpu_count" = 0 ]; then
  cuda_flags=-DNDEBUG as_ptx=ON examples_for=90-real
  if [ -n "$cuda_root" ] && "$cuda_root/bin/nvcc" --help | grep -e --Ofast-compile >/dev/null; then
    cuda_flags+=' --Ofast-compile=max'
  fi
fi
if wanted release && [ -n "$cuda_root" ]; then require_disassembler; fi
if wanted_any release race mutation thread address; then require_cutlass; fi
release_options=("-DDEVCOMM_TESTS_AS_PTX=$as_ptx" "-DDEVCOMM_EXAMPLES_FOR=$examples_for"
  "-DCMAKE_CUDA_FLAGS_RELEASE=$cuda_flags")
sanitizer_options=(-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld)  # large programs
cuda_options=(-DDEVCOMM_ENABLE_CUDA=OFF)
[ -n "$cuda_root" ] && cuda_options=(-DDEVCOMM_ENABLE_CUDA=ON "-DCUDAToolkit_ROOT=$cuda_root")

jobs=$(nproc)
configure() { # PRESET OPTION...
  local preset=$1
  shift
  cmake --preset "$preset" "$@" >"build/$preset.log" 2>&1 || { cat "build/$preset.log"; return 1; }
  grep -- '-- devcomm:' "build/$preset.log" || true
}
build() { # PRESET
  cmake --build --preset "$1" -j "$jobs" -- -k 0 >"build/$1.log" 2>&1 || { grep -v '^\[[0-9]*/[0-9]*\]' "build/$1.log" | tail -n 200; return 1; }
}
# Some tests only wait: two more at a time than there are cores.
run_tests() { # PRESET
  local left_out=()
  if wanted checks; then left_out=(-E '^check_(format|seam|headers|shell|selftest)$'); fi  # that stage runs them
  ctest --preset "$1" -j $((jobs + 2)) "${left_out[@]}"
}

test_preset() { # PRESET OPTION...
  configure "$@" && build "$1" && run_tests "$1"
}

stage_checks() { scripts/checks/all.sh; }
stage_quick() { test_preset quick; }
# Of these rooms other stages run all tests, and see more: of the first the kernels, of the others everything.
rooms_of_race='core;group;data;lsa;multimem;channel;collective'
rooms_of_address='host/util;host/bootstrap;fuzz'
stage_release() {
  if wanted race; then release_options+=("-DDEVCOMM_TESTS_NOT_SIMULATED=$rooms_of_race"); fi
  if wanted address; then release_options+=("-DDEVCOMM_TESTS_LEFT_OUT=$rooms_of_address"); fi
  test_preset ci "${cuda_options[@]}" "${release_options[@]}"
}
real_compiler() { readlink -f "$(command -v "$1")"; } # NAME
# Middle-end warnings of GCC come only with optimization; clang's need none.
stage_compilers() {
  local package compiler result=0
  for package in "${compilers[@]}"; do
    local options=("${cuda_options[@]}" -DCMAKE_UNITY_BUILD=ON)
    case $package in
      g++-*) compiler=$package ;;
      clang-*) compiler=clang++-${package#clang-} options+=("-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG") ;;
    esac
    say "$("$compiler" --version | head -n 1)"
    if wanted release && [ "$(real_compiler "$compiler")" = "$(real_compiler "${CXX:-c++}")" ]; then
      say "stage release compiles the host library with it, with the same warnings"
      continue
    fi
    local targets=(devcomm_host_core)
    if [ -n "$cuda_root" ]; then targets+=(devcomm_host); fi
    { cmake --preset compilers -B "build/compilers/$compiler" "-DCMAKE_CXX_COMPILER=$compiler" "${options[@]}" &&
      cmake --build "build/compilers/$compiler" -j "$jobs" --target "${targets[@]}" -- -k 0; } \
      >"build/compilers-$compiler.log" 2>&1 || { tail -n 100 "build/compilers-$compiler.log"; result=1; }
  done
  return "$result"
}
stage_race() { test_preset simulator-race "${sanitizer_options[@]}"; }
# A sample of the mutants, by the commit: the same for all who test it.
stage_mutation() {
  local which
  case ${DEVCOMM_MUTANTS:-} in
    all) which=(--all) ;;
    '') which=(--seed "$(git rev-parse --short=8 HEAD 2>/dev/null || date +%F)") ;;
    *) which=(--seed "$DEVCOMM_MUTANTS") ;;
  esac
  configure simulator-race "${sanitizer_options[@]}" || return
  tests/mutation/mutation.py run build/simulator-race "${which[@]}" || return
}
stage_thread() { test_preset simulator-thread "${sanitizer_options[@]}"; }
# The preset is clang without optimization. Examples, and tests of sessions that they lack, run with the other compilers and
# optimizations too: one of them by the commit, the same for all who test it.
stage_address() {
  test_preset simulator-address "${sanitizer_options[@]}" || return
  local all=(g++:Release g++:Debug clang++:Release) one result=0
  local chosen=${all[16#$(git rev-parse --short=8 HEAD 2>/dev/null || echo 0) % 3]}
  for one in ${DEVCOMM_ADDRESS_BUILDS:-$chosen}; do
    local compiler=${one%:*} type=${one#*:} folder=build/address-${one/:/-}
    say "$compiler, $type"
    { cmake --preset simulator-address -B "$folder" "${sanitizer_options[@]}" "-DCMAKE_CXX_COMPILER=$compiler" \
        "-DCMAKE_BUILD_TYPE=$type" &&
      cmake --build "$folder" -j "$jobs" --target examples/all ll128_session_test_sim ll_all_to_all_test_sim -- -k 0; } \
      >"$folder.log" 2>&1 || { tail -n 100 "$folder.log"; result=1; continue; }
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -j $((jobs + 2)) \
      -R '^(example_.*|ll128_session_test_sim|ll_all_to_all_test_sim)$' || result=1
  done
  return "$result"
}
stage_tidy() { configure clang-tidy "${cuda_options[@]}" && build clang-tidy; }
stage_compile_time() {
  if [ -z "$cuda_root" ]; then
    say "no nvcc: the compile-time budget is left out"
    return
  fi
  CUDA_HOME=$cuda_root scripts/measure_compile_time.sh
}

stage_docs_site() { scripts/docs_site.sh; }
stage_python() { scripts/python_package.sh; }
stage_python-full() { scripts/python_package.sh --full; }
stage_python-torch() { scripts/python_package.sh --torch; }

mkdir -p build
summary=()
failed=0
for stage in "${stages[@]}"; do
  say "stage $stage"
  begin=$SECONDS
  if "stage_$stage"; then result=ok; else result=FAILED; failed=1; fi
  summary+=("$(printf '%-13s %-7s %4d s' "$stage" "$result" $((SECONDS - begin)))")
done

say "stages, $SECONDS s in all"
printf '   %s\n' "${summary[@]}"
if [ ${#left_out[@]} != 0 ]; then
  say "left out:"
  printf '   %s\n' "${left_out[@]}"
fi
exit "$failed"
