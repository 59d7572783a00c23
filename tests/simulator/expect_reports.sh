#!/usr/bin/env bash
# Runs a kernel under eight seeds. One called right_* must end well and give no report; any other must
# be reported by the race detector under every seed.
# usage: expect_reports.sh PROGRAM NAME
set -uo pipefail
program=$1 name=$2
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0
for seed in 1 2 3 4 5 6 7 8; do
  status=0
  DEVCOMM_SIM_SEED=$seed TSAN_OPTIONS="atexit_sleep_ms=0 ${TSAN_OPTIONS:-}" "$program" "$name" >"$output" 2>&1 || status=$?
  reports=$(grep -cE '(WARNING: ThreadSanitizer|devcomm simulator): data race' "$output")
  if [[ $name == right_* ]]; then
    ((status == 0 && reports == 0)) && continue
  else
    ((reports > 0)) && continue
  fi
  echo "seed $seed: $reports reports, status $status"
  cat "$output"
  failed=1
done
exit "$failed"
