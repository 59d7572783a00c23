#!/usr/bin/env bash
# Each mutant of tests/mutation/mutants.txt has its place in the device headers.
#
#   scripts/checks/mutants.sh [ROOT]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
exec "$root/tests/mutation/mutation.py" check "${1:-$root}"
