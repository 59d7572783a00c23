#!/usr/bin/env bash
# One kernel source on simulated and on real GPUs: builds examples/01_all_reduce_lsa and runs it.
#
#   scripts/demo.sh            8 simulated GPUs; the machine's GPUs too where there are any
#   DEVCOMM_CUDA=0 scripts/demo.sh    simulated GPUs only
#
# Needs Debian 12 or Ubuntu 24.04, as root or with sudo; installs what is missing by apt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh

require_packages g++ cmake ninja-build
find_cuda

build=build/demo
options=(-DCMAKE_BUILD_TYPE=Release -DDEVCOMM_BUILD_TESTS=OFF -DDEVCOMM_BUILD_BENCHMARKS=OFF)
targets=(example_01_all_reduce_lsa_sim)
if [ -n "$cuda_root" ] && [ "$gpu_count" != 0 ]; then
  options+=(-DDEVCOMM_ENABLE_CUDA=ON "-DCUDAToolkit_ROOT=$cuda_root" -DCMAKE_CUDA_ARCHITECTURES=native)
  targets+=(example_01_all_reduce_lsa_gpu)
else
  options+=(-DDEVCOMM_ENABLE_CUDA=OFF)
fi

log=$build.log
mkdir -p build
rm -f "$log"
say "building ${targets[*]} (log: $log)"
quietly cmake -S . -B "$build" -G Ninja "${options[@]}"
quietly cmake --build "$build" --target "${targets[@]}"

say "all-reduce kernel on 8 simulated GPUs"
DEVCOMM_SIM_DEVICES=8 "$build/bin/example_01_all_reduce_lsa_sim"

if [ "${#targets[@]}" = 2 ]; then
  say "the same kernel on $gpu_count GPUs"
  "$build/bin/example_01_all_reduce_lsa_gpu"
else
  say "GPUs: left out"
fi
