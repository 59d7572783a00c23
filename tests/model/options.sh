#!/usr/bin/env bash
# devcomm-model writes one trace a rank, rejects what makes no sense by name, and the documentation has its figures.
#
#   options.sh PROGRAM PAGE
set -euo pipefail
program=$1
page=$2
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
fail() {
  echo "options: $*" >&2
  exit 1
}

"$program" chakra --algo rail_tree --hosts 3 --per-host 2 --bytes 64K --output "$folder/trace" >/dev/null
[ "$(find "$folder" -name 'trace.*.et' -size +0 | wc -l)" -eq 6 ] || fail "6 ranks have not written 6 traces"

# The whole error of arguments that are wrong.
rejects() {
  local expected=$1 text status=0
  shift
  text=$("$program" "$@" 2>&1) || status=$?
  [ "$status" -eq 2 ] || fail "$* ended with status $status"
  [[ $text == *"$expected"* ]] || fail "$*: '$text' does not say '$expected'"
}
rejects "sort: give table, scale, crossover, check or chakra" sort
rejects "--algo star: give one_shot" chakra --algo star
rejects "--hosts 0: give a number from 1" table --hosts 0
rejects "--bytes 1X: give a number" scale --bytes 1X
rejects "--bytes: give a value" scale --bytes
rejects "--color: no such option" table --color red

status=0
"$program" chakra --output "$folder/none/trace" >/dev/null 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "a file that cannot be written ended with status $status"

while IFS= read -r line; do
  grep -qxF -e "$line" "$page" || fail "$page does not have the line '$line' of devcomm-model"
done < <("$program" check && "$program" crossover)
