#!/usr/bin/env bash
# Runs a program that must end itself, and checks what it must say.
# usage: expect_end.sh PATTERN PROGRAM [ARGUMENT...]
set -uo pipefail
pattern=$1
shift
status=0
output=$("$@" 2>&1) || status=$?
echo "$output"
if ((status == 0)) || ! grep -Eq "$pattern" <<<"$output"; then
  echo "status $status; expected a failure that says: $pattern"
  exit 1
fi
