#!/usr/bin/env bash
# What including devcomm costs: nvcc's processor time for an empty kernel, with and without <devcomm/devcomm.cuh>;
# the least of 9, taken in turns. Fails when the difference is more than 1.6 empty kernels, which on a fast machine are
# 1.5 s: a slow one takes longer for both.
#
#   scripts/measure_compile_time.sh [LIMIT_PERCENT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh

limit=${1:-160}
find_cuda
[ -n "$cuda_root" ] || fail "no nvcc; install the CUDA toolkit or set CUDA_HOME"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo '__global__ void kernel() {}' >"$work/without.cu"
printf '#include <devcomm/devcomm.cuh>\n__global__ void kernel() {}\n' >"$work/with.cu"

milliseconds() { # SOURCE: processor time, which a busy machine does not change much
  local TIMEFORMAT='%U %S' used
  used=$( { time "$cuda_root/bin/nvcc" -std=c++17 -arch=sm_90 -Iinclude -c "$1" -o "$work/out.o" 2>"$work/errors"; } 2>&1) ||
    fail "nvcc cannot compile $1: $(cat "$work/errors")"
  awk '{ printf "%d\n", ($1 + $2) * 1000 }' <<<"$used"
}
least() { sort -n | sed -n 1p; }

milliseconds "$work/with.cu" >/dev/null # fills the file cache
for _ in 1 2 3 4 5 6 7 8 9; do
  milliseconds "$work/without.cu" >>"$work/without.times"
  milliseconds "$work/with.cu" >>"$work/with.times"
done
without=$(least <"$work/without.times")
with=$(least <"$work/with.times")
delta=$((with - without))
percent=$((delta * 100 / without))
echo "empty kernel $without ms, with devcomm.cuh $with ms: $delta ms more, $percent % of an empty kernel (limit $limit %)"
[ "$percent" -le "$limit" ] ||
  fail "including devcomm.cuh costs $percent % of an empty kernel, over the limit of $limit %; look at what its headers include"
