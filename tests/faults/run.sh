#!/usr/bin/env bash
# Runs a scenario of `faults` with one process a rank: the last must end with STATUS, the others succeed.
# usage: run.sh PROGRAM SCENARIO RANKS STATUS
set -euo pipefail
program=$1 scenario=$2 ranks=$3 last_status=$4
export DEVCOMM_SIZE=$ranks
export DEVCOMM_ROOT=127.0.0.1:$((20000 + $$ % 20000))
DEVCOMM_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export DEVCOMM_SECRET
pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  DEVCOMM_RANK=$rank DEVCOMM_LOCAL_RANK=$rank "$program" "$scenario" &
  pids+=($!)
done
failed=0
for ((rank = 0; rank < ranks; ++rank)); do
  status=0
  wait "${pids[rank]}" || status=$?
  wanted=0
  ((rank == ranks - 1)) && wanted=$last_status
  if ((status != wanted)); then
    echo "rank $rank ended with status $status, expected $wanted" >&2
    failed=1
  fi
done
exit "$failed"
