#!/usr/bin/env bash
# Every check of the sources. All of them run; the exit status is non-zero when any failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit
failed=0
for check in format.sh seam.sh headers.sh directions.py launch_bounds.py shell.sh variables.py mutants.sh words.py; do
  if "./$check"; then echo "check ${check%.*}: ok"; else echo "check ${check%.*}: FAILED"; failed=1; fi
done
if ./selftest.sh; then echo "checks' own test: ok"; else echo "checks' own test: FAILED"; failed=1; fi
exit "$failed"
