#!/usr/bin/env bash
# bugs.sh PROGRAM NAME...: each mistake is found by exploring, the written schedule repeats it, and the kernel without
# it is right in every interleaving.
set -uo pipefail
program=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit
export DEVCOMM_SIM_RACE_EXIT=0  # to explorations a race is a failure
fail() {
  echo "bugs.sh: $1" >&2
  cat found repeated right >&2
  exit 1
}
# What failed, without how it was found.
essence() { sed -n 's/^execution [0-9]* fails: //; s/ (seed [^)]*)//; s/ (0x[0-9a-f]*)//; /^devcomm simulator/d; /executions$/d; /to repeat it/d; /^$/d; p' "$1"; }
for name; do
  for part in found repeated right; do : >"$part"; done
  "$program" explore "$name" >found 2>/dev/null
  [ $? = 1 ] || fail "$name was not found"
  grep -q 'to repeat it: DEVCOMM_SIM_REPLAY=devcomm-schedule.txt' found || fail "$name: no schedule"
  DEVCOMM_SIM_REPLAY=devcomm-schedule.txt "$program" explore "$name" >repeated 2>/dev/null
  [ $? = 1 ] || fail "$name: the schedule does not repeat it"
  [ -n "$(essence found)" ] && [ "$(essence found)" = "$(essence repeated)" ] || fail "$name: the schedule repeats something else"
  "$program" right "$name" >right 2>/dev/null || fail "$name: the right kernel fails"
  echo "$(head -1 found); right: $(sed -n 's/.*: //p' right)"
done
