#!/usr/bin/env bash
# Runs a mutant under several schedules; a race detector must report a data race in each, or, for the
# kernel without a mistake, in none.
# usage: expect_race.sh PROGRAM NAME SEEDS
set -uo pipefail
# A mutant may end in deadlock while another rank's host waits with a time limit: be told soon.
export DEVCOMM_SIM_GRACE_MS=${DEVCOMM_SIM_GRACE_MS:-500}
program=$1 name=$2 seeds=$3
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0
for ((seed = 1; seed <= seeds; ++seed)); do
  status=0
  DEVCOMM_SIM_SEED=$seed "$program" "$name" >"$output" 2>&1 || status=$?
  reports=$(grep -cE '(WARNING: ThreadSanitizer|devcomm simulator): data race' "$output")
  if [[ $name == none ]]; then
    if ((status != 0 || reports != 0)); then
      echo "seed $seed: $reports reports and status $status for a kernel without a mistake"
      cat "$output"
      failed=1
    fi
  elif ((reports == 0)); then
    echo "seed $seed: no data race reported, status $status"
    cat "$output"
    failed=1
  else
    echo "seed $seed: $reports reports"
    ((seed == 1)) && grep -E -m 1 -A 30 '(WARNING: ThreadSanitizer|devcomm simulator): data race' "$output"
  fi
done
exit "$failed"
