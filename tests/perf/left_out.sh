#!/usr/bin/env bash
# What devcomm-perf says of algorithms that it leaves out, and that its files stay as they are.
# usage: left_out.sh PROGRAM
set -uo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
  echo "$1" >&2
  exit 1
}
says() { # PATTERN, in the output of the latest run
  grep -Eq "$1" <<<"$output" || fail "nothing says: $1"
}
run() { # EXPECTED_STATUS [ARGUMENT...]
  local expected=$1 status=0
  shift
  output=$("$program" -n 2 -b 1K -e 2K --place out --launches 1 --replays 1 "$@" 2>&1) || status=$?
  echo "$output"
  [[ $status == "$expected" ]] || fail "devcomm-perf $* ended with $status, not $expected"
}

run 0 all_reduce --dtype int32 --algo two_shot_ll,one_shot_lamport,all --csv "$folder/rows.csv" --json "$folder/rows.jsonl"
says '^# left out: one_shot_lamport for 1K to 2K: Lamport mailboxes do not carry int32$'
[[ $(grep -c 'left out' <<<"$output") == 1 ]] || fail "what only --algo all stands for is told as well"
[[ $(grep -c 'two_shot_ll ' <<<"$output") == 2 ]] || fail "an algorithm that is named twice is not measured once a size"
[[ $(grep -cv '^all_reduce,devcomm,' "$folder/rows.csv") == 1 ]] || fail "the CSV has more than rows and their header"
if grep -v '^{"op": "all_reduce",.*}$' "$folder/rows.jsonl"; then fail "a line of JSON is none"; fi
[[ $(wc -l <"$folder/rows.csv") == $(($(wc -l <"$folder/rows.jsonl") + 1)) ]] || fail "CSV and JSON differ in their rows"

run 1 all_reduce --dtype int32 --algo one_shot_lamport
says 'nothing is left to measure from 1K to 2K; give other sizes, algorithms or another type$'
says '^  one_shot_lamport for 1K to 2K: Lamport mailboxes do not carry int32$'
run 1 fused_rms_norm --dtype float
says '^  auto for 1K to 2K: one_shot_lamport: no norm of float; take bf16 or half$'
run 1 fused_rms_norm --dtype float --algo all
says '^  separate_two_shot_lamport for 1K to 2K: no norm of float; take bf16 or half$'
run 1 all_reduce -b 1 -e 2 -f 4
says 'nothing is left to measure from 1 to 2; give other sizes'
run 1 all_reduce --algo one_shot_software_multimem --place in
says '^  one_shot_software_multimem_simple for 1K to 2K: peers read its input until it is done; give --place out or both$'
run 0 all_reduce --algo one_shot_software_multimem --place both
