#!/usr/bin/env bash
# devcomm-perf writes a plan for two numbers of ranks, and follows it.
# usage: plan.sh PROGRAM
set -uo pipefail
program=$1
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
fail() {
  cat "$plan"
  echo "$1" >&2
  exit 1
}
# A plan of more blocks than a row leaves room for in chunks is followed in fewer.
printf '2 %s two_shot_chunked_to_window simple 4 32 1.0\n' 1024 65536 >"$plan"
output=$(DEVCOMM_ALL_REDUCE_PLAN=$plan "$program" fused_rms_norm -n 2 -b 4K -e 16K -f 4 --hidden 2048 --place out \
  --launches 1 --replays 1) || fail "$output"
[[ $(grep -c ' two_shot_chunked_to_window_simple *1x512 ' <<<"$output") == 2 ]] || fail "the norm is not made in chunks: $output"
: >"$plan"
for ranks in 2 3; do
  "$program" all_reduce -n "$ranks" -b 1K -e 1K --algo one_shot,two_shot_zero_copy,two_shot_software_multimem --sweep --place out --launches 1 --replays 1 --plan "$plan" ||
    fail "no sweep of $ranks ranks"
    if grep -q software "$plan"; then fail "what no plan takes is in the plan"; fi
  # LL asks for nothing of a request.
  grep -Eq "^$ranks 1024 one_shot ll [0-9]+ [0-9]+ [0-9.]+$" "$plan" || fail "no row of $ranks ranks for every request"
done
rows=$(grep -vc '^#' "$plan")
[[ $rows -ge 2 && $rows -le 16 ]] || fail "$rows rows are not those of two sweeps"
output=$(DEVCOMM_ALL_REDUCE_PLAN=$plan "$program" all_reduce -n 3 -b 1K -e 1K --place out --launches 1 --replays 1) ||
  fail "the plan cannot be followed"
echo "$output"
ran=$(awk '$1 == "1K" { shape = $3; sub("x", " ", shape); way = $2; sub("_[a-z0-9]*$", "", way); print "3 1024 " way " " substr($2, length(way) + 2) " " shape }' <<<"$output")
[[ -n $ran ]] && grep -q "^$ran " "$plan" || fail "what ran is no row of the plan: $ran"
# Multimem is planned only where there is a switch.
printf '2 1024 %s 1 32 %s\n' 'two_shot_multimem simple' 1.0 'one_shot ll' 2.0 >"$plan"
for switch in any_order none; do
  output=$(env -u NCCL_NVLS_ENABLE -u DEVCOMM_NVLS_ENABLE DEVCOMM_SIM_MULTICAST=$switch DEVCOMM_ALL_REDUCE_PLAN="$plan" \
    "$program" all_reduce -n 2 -b 1K -e 1K --place out --launches 1 --replays 1) || fail "$output"
  way=two_shot_multimem_simple
  [[ $switch != none ]] || way=one_shot_ll
  grep -q " $way " <<<"$output" || fail "$way did not run: $output"
done
# Rings and trees are planned as any other.
for way in 'ring ll' 'ring_to_window simple' 'tree simple'; do
  printf '2 1024 %s 1 32 %s\n' "$way" 1.0 'one_shot ll' 2.0 >"$plan"
  output=$(DEVCOMM_ALL_REDUCE_PLAN=$plan "$program" all_reduce -n 2 -b 1K -e 1K --place out --launches 1 --replays 1) || fail "$output"
  grep -q " ${way/ /_} " <<<"$output" || fail "$way did not run: $output"
done
