#!/usr/bin/env bash
# Every shell script passes shellcheck.
#
#   scripts/checks/shell.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
command -v shellcheck >/dev/null || {
  echo "shell: shellcheck is missing; install the package shellcheck" >&2
  exit 1
}
folders=()
for folder in .ci cmake scripts tests examples benchmarks; do
  if [ -d "$folder" ]; then folders+=("$folder"); fi
done
if [ ${#folders[@]} = 0 ]; then
  echo "shell: no scripts under $PWD; is this the root of the project?" >&2
  exit 1
fi
mapfile -d '' -t scripts < <(find "${folders[@]}" -type f \( -name '*.sh' -o -path .ci/run \) -print0)
shellcheck -x -S warning "${scripts[@]}"
