#!/usr/bin/env bash
# Runs a program that must end itself, and checks what it must say.
# Lines that begin with spaces count as one with the line before: whether a message has them depends on debug symbols.
# usage: expect_end.sh PATTERN PROGRAM [ARGUMENT...]
set -uo pipefail
pattern=$1
shift
status=0
output=$("$@" 2>&1) || status=$?
echo "$output"
if ((status == 0)) || ! sed -E ':all; N; $!b all; s/\n +/ /g' <<<"$output" | grep -E "$pattern" >/dev/null; then
  echo "status $status; expected a failure that says: $pattern"
  exit 1
fi
