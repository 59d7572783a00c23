#!/usr/bin/env bash
# devcomm-perf with ranks that come late: a row for each lateness, with its fields, in a graph and launched one by one.
# usage: lateness.sh PROGRAM
set -uo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
  echo "$1" >&2
  exit 1
}
run() { # EXPECTED_STATUS [ARGUMENT...]
  local expected=$1 status=0
  shift
  rm -f "$folder/rows.jsonl"
  output=$("$program" all_reduce -b 1K -e 1K --place out --launches 4 --replays 3 --csv "$folder/rows.csv" \
    --json "$folder/rows.jsonl" "$@" 2>&1) || status=$?
  echo "$output"
  [[ $status == "$expected" ]] || fail "devcomm-perf $* ended with $status, not $expected"
}
rows() { # PATTERN COUNT
  [[ $(grep -Ec "$1" "$folder/rows.jsonl") == "$2" ]] || fail "not $2 rows with $1: $(cat "$folder/rows.jsonl")"
}

run 0 -n 3 --algo one_shot_lamport,two_shot_zero_copy --late 0,20,500
grep -Eq '^# +bytes +algorithm +shape +late mean late +\| +us +p99 +max +net +algbw' <<<"$output" || fail "no columns of lateness"
rows '"graph": true, .*"us_max": [0-9.]+, "us_min": [0-9.]+, "calls": 4, "late_us": 0, "jitter_us": 0, "mean_late_us": 0.000,' 2
rows '"late_us": 20, "jitter_us": 0, "mean_late_us": 5.000, "us_spin": 0.000, "us_net": [-0-9.]+, .*"wrong": 0}$' 2
rows '"late_us": 500, "jitter_us": 0, "mean_late_us": 125.000,' 2
[[ $(wc -l <"$folder/rows.csv") == 7 ]] || fail "the CSV has not 6 rows and their header"

run 0 -n 2 --algo one_shot_ll --jitter 0,20 --eager
grep -Eq ' shape +jitter mean late +\|' <<<"$output" || fail "no columns of jitter"
rows '"graph": false, .*"late_us": 0, "jitter_us": 0, "mean_late_us": 0.000, "us_spin": 0.000,' 1
rows '"graph": false, .*"jitter_us": 20, "mean_late_us": [1-9][0-9.]+, "us_spin": [1-9][0-9.]+, .*"wrong": 0}$' 1
run 0 -n 2 --algo one_shot_ll --jitter 20
rows '"graph": true, .*"jitter_us": 20, "mean_late_us": [1-9][0-9.]+, "us_spin": [1-9][0-9.]+, .*"wrong": 0}$' 1
run 0 -n 2 --algo one_shot_ll --jitter 5 --sweep
rows '"jitter_us": 5,' 1

run 0 -n 2 --algo one_shot_ll
rows '"late_us": 0, "jitter_us": 0, "mean_late_us": 0.000, "us_spin": 0.000,' 1
if grep -Eqw 'late|jitter' <<<"$output"; then fail "lateness is told where none was asked for"; fi

run 1 -n 1 --late 20
grep -q 'one rank has nobody to be late for' <<<"$output" || fail "one rank is late for nobody"
