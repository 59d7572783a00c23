#!/usr/bin/env bash
# Prints a table of Markdown with what ptxas says of the kernels of devcomm-perf, and of those in
# scripts/kernel_resources: registers, shared memory and spills.
#
#   scripts/kernel_resources.sh [ARCH]    sm_90 unless given
#
# Needs nvcc (CUDA_HOME, or in the PATH) and c++filt; takes 3 minutes on 2 cores. The exit status is 1 when a kernel spills.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh
find_cuda
[ -n "$cuda_root" ] || fail "no CUDA toolkit found; set CUDA_HOME"
arch=${1:-sm_90}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export nvcc=$cuda_root/bin/nvcc arch logs
# All but those for sm_90a: the test sm90_machine_code looks at them.
# shellcheck disable=SC2016 # the inner shell expands them
find benchmarks/perf scripts/kernel_resources -maxdepth 1 -name '*.cu' ! -name sm90_products.cu -print0 |
  xargs -0 -P "$(nproc)" -I{} bash -c '"$nvcc" -std=c++20 -O3 -arch="$arch" -Iinclude -Ihost/include -Ibenchmarks \
    --resource-usage -cubin -o /dev/null "$1" >"$logs/$(basename "$1")" 2>&1' _ {} ||
  fail "nvcc failed: $(tail -qn 5 "$logs"/* | grep error)"
echo "| kernel ($arch, 512 threads) | registers | shared memory, bytes | stack, bytes | spilled, bytes |"
echo "|---|---|---|---|---|"
cat "$logs"/* | c++filt | awk '
  /Compiling entry function/ {
    match($0, /\047.*\047/)
    name = substr($0, RSTART + 1, RLENGTH - 2)
    sub(/^void /, "", name)
    gsub(/perf::|\(anonymous namespace\)::|packets::|windows::|devcomm::/, "", name)
    sub(/\(.*/, "", name)
    entry = 1
  }
  entry && /bytes stack frame/ { stack = $1; spilled = $5 + $9; all += spilled }
  entry && /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/)
    registers = substr($0, RSTART + 5, RLENGTH - 5)
    shared = 0
    if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH) + 0
    printf "| `%s` | %s | %d | %d | %d |\n", name, registers, shared, stack, spilled
    entry = 0
  }
  END { exit all > 0 }' | sort
