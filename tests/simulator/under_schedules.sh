#!/usr/bin/env bash
# Runs a right program under every kind of schedule, with a seed for each run; it must end well each time.
# usage: under_schedules.sh RUNS PROGRAM [ARGUMENT...]
set -uo pipefail
runs=$1
shift
kinds=(pct slow_rank slow_block starve_warp)
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0
for ((run = 0; run < runs; ++run)); do
  kind=${kinds[run % ${#kinds[@]}]}
  status=0
  DEVCOMM_SIM_SEED=$((100 + run)) DEVCOMM_SIM_SCHEDULE=$kind "$@" >"$output" 2>&1 || status=$?
  ((status == 0)) && continue
  echo "DEVCOMM_SIM_SEED=$((100 + run)) DEVCOMM_SIM_SCHEDULE=$kind: status $status"
  cat "$output"
  failed=1
done
exit "$failed"
