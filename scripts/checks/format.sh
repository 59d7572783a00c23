#!/usr/bin/env bash
# Every source is as clang-format 14 lays it out: other versions differ in small ways.
#
#   scripts/checks/format.sh [--fix] [ROOT]
set -euo pipefail
fix=0
if [ "${1:-}" = --fix ]; then
  fix=1
  shift
fi
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

tool=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$tool" ] || ! "$tool" --version | grep -q 'version 14\.'; then
  echo "format: clang-format 14 is missing; install the package clang-format-14" >&2
  exit 1
fi

folders=()
for folder in include host simulator python tests examples benchmarks; do
  [ -d "$folder" ] && folders+=("$folder")
done
mapfile -d '' -t sources < <(find "${folders[@]}" -type f \
  \( -name '*.hpp' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' -o -name '*.h' \) -print0)
if [ ${#sources[@]} = 0 ]; then
  echo "format: no sources under $PWD; is this the root of the project?" >&2
  exit 1
fi

if [ "$fix" = 1 ]; then
  "$tool" -i --style=file "${sources[@]}"
elif ! "$tool" --dry-run --Werror --ferror-limit=3 --style=file "${sources[@]}"; then
  echo "format: run scripts/checks/format.sh --fix" >&2
  exit 1
fi
