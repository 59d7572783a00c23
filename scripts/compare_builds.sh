#!/usr/bin/env bash
# Compares two builds of devcomm's benchmarks on this machine's GPUs, run by turns.
#
#   scripts/compare_builds.sh OLD_BIN NEW_BIN [PAIRS]    folders with programs (bin/ of a build folder); 20 pairs unless given
#
# Prints, for all-reduce from 1 KiB to 256 MiB, single algorithms of it, the fused norm, moves, the network and the barrier,
# the median of the pairs with least and most, and the difference of the medians. An old build against a copy of itself
# shows what the machine's noise is. DEVCOMM_RANKS=2 has two ranks share a GPU.
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
    while read -r operation; do
      # shellcheck disable=SC2086 # words of a command
      timeout 120 "$bin/devcomm-perf_gpu" $operation --place out --json "$rows/$build.jsonl" >/dev/null
    done <<'EOF'
all_reduce -b 1K -e 256M -f 4 --algo auto
all_reduce -b 256K -e 16M -f 4 --algo two_shot_zero_copy_simple,ring_ll,ring_simple
fused_rms_norm -b 1K -e 16M -f 16 --algo auto
exchange -b 1K -e 64M -f 16 --algo auto
all_to_all -b 1K -e 64M -f 16 --algo auto
all_to_all_v -b 64K -e 64M -f 16 --algo zero_copy_simple
reduce_scatter -b 1M -e 256M -f 16 --algo all
gin_signal -b 8 -e 8 --algo all
gin_put -b 8 -e 8 --algo all
EOF
    timeout 120 "$bin/benchmark_lsa_barrier_gpu" | awk '/acq_rel|relaxed/ { print $1, $2, $4, $5 }' >>"$rows/$build.barriers"
  done
done
python3 - "$rows" <<'EOF'
import collections, json, statistics, sys

times = collections.defaultdict(lambda: {"old": [], "new": []})
for build in ("old", "new"):
    for line in open(f"{sys.argv[1]}/{build}.jsonl"):
        row = json.loads(line)
        times[(f"{row['op']} {row['algo']} {row['protocol']}", row["bytes"])][build].append(row["us_median"])
    for line in open(f"{sys.argv[1]}/{build}.barriers"):
        group, order, blocks, us = line.split()
        times[(f"barrier by {group}, {order}, blocks:", int(blocks))][build].append(float(us))
print(f"{'':48} {'old, us (least to most)':>32} {'new, us (least to most)':>32} {'difference':>10}")
for (what, size), us in times.items():
    # A build has no times where it does not know an algorithm, or chose another.
    cells = [f"{statistics.median(us[b]):.3f} ({min(us[b]):.3f} to {max(us[b]):.3f})" if us[b] else "-" for b in us]
    both = us["old"] and us["new"]
    change = f"{statistics.median(us['new']) / statistics.median(us['old']) - 1:+.2%}" if both else ""
    print(f"{what + ' ' + str(size):48} {cells[0]:>32} {cells[1]:>32} {change:>10}")
EOF
