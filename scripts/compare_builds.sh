#!/usr/bin/env bash
# Compares two builds of devcomm's benchmarks on this machine's GPUs, run by turns.
#
#   scripts/compare_builds.sh OLD_BIN NEW_BIN [PAIRS]    folders with programs (bin/ of a build folder); 20 pairs unless given
#
# Prints, for all-reduce from 1 KiB to 256 MiB, the fused norm and the barrier, the median of the pairs with least and
# most, and the difference of the medians. An old build against a copy of itself shows what the machine's noise is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh
case ${1:-} in -h | --help | '') sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;; esac
old=$1 new=${2:?give the folders of two builds} pairs=${3:-20}
for bin in "$old" "$new"; do
  [ -x "$bin/devcomm-perf_gpu" ] || fail "$bin has no devcomm-perf_gpu: give bin/ of a build folder with GPU benchmarks"
done
# Nothing here uses NVLink multicast: a failure there can take down GPUs for others.
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1

rows=$(mktemp -d)
trap 'rm -rf "$rows"' EXIT
for ((i = 0; i < pairs; ++i)); do
  for build in old new; do
    bin=${!build}
    timeout 120 "$bin/devcomm-perf_gpu" all_reduce -b 1K -e 256M -f 4 --algo auto --place out --json "$rows/$build.jsonl" >/dev/null
    timeout 120 "$bin/devcomm-perf_gpu" fused_rms_norm -b 1K -e 16M -f 16 --algo auto --place out --json "$rows/$build.jsonl" >/dev/null
    timeout 120 "$bin/benchmark_lsa_barrier_gpu" | awk '$1 == "devcomm" { print $2, $4, $5 }' >>"$rows/$build.barriers"
  done
done
python3 - "$rows" <<'EOF'
import collections, json, statistics, sys

times = collections.defaultdict(lambda: {"old": [], "new": []})
for build in ("old", "new"):
    for line in open(f"{sys.argv[1]}/{build}.jsonl"):
        row = json.loads(line)
        times[(row["op"], row["bytes"])][build].append(row["us_median"])
    for line in open(f"{sys.argv[1]}/{build}.barriers"):
        order, blocks, us = line.split()
        times[(f"barrier, {order}, blocks:", int(blocks))][build].append(float(us))
print(f"{'':36} {'old, us (least to most)':>32} {'new, us (least to most)':>32} {'difference':>10}")
for (what, size), us in times.items():
    cells = [f"{statistics.median(us[b]):.3f} ({min(us[b]):.3f} to {max(us[b]):.3f})" for b in ("old", "new")]
    change = statistics.median(us["new"]) / statistics.median(us["old"]) - 1
    print(f"{what + ' ' + str(size):36} {cells[0]:>32} {cells[1]:>32} {change:>+10.2%}")
EOF
