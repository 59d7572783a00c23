#!/usr/bin/env bash
# A program with a report ends with status 66, or the one that was asked for; one without with its own.
# usage: exit_status.sh PROGRAM
set -uo pipefail
program=$1
failed=0
expect() { # STATUS SETTING KERNEL
  local status=0
  DEVCOMM_SIM_RACE_EXIT=$2 "$program" "$3" >/dev/null 2>&1 || status=$?
  if ((status != $1)); then
    echo "$3 with DEVCOMM_SIM_RACE_EXIT='$2': status $status, expected $1"
    failed=1
  fi
}
expect 66 "" missing_syncthreads
expect 3 3 missing_syncthreads
expect 0 0 missing_syncthreads
expect 0 "" right_syncthreads
expect 2 much missing_syncthreads
exit "$failed"
