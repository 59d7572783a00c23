#!/usr/bin/env bash
# Runs `faults killed_process` with one process a rank: the last must die of SIGKILL, the others succeed.
# usage: run.sh PROGRAM RANKS
set -euo pipefail
program=$1 ranks=$2
export DEVCOMM_SIZE=$ranks
export DEVCOMM_ROOT=127.0.0.1:$((20000 + $$ % 20000))
DEVCOMM_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export DEVCOMM_SECRET
pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  DEVCOMM_RANK=$rank DEVCOMM_LOCAL_RANK=$rank "$program" killed_process &
  pids+=($!)
done
failed=0
for ((rank = 0; rank < ranks; ++rank)); do
  status=0
  wait "${pids[rank]}" || status=$?
  wanted=0
  ((rank == ranks - 1)) && wanted=137
  if ((status != wanted)); then
    echo "rank $rank ended with status $status, expected $wanted" >&2
    failed=1
  fi
done
exit "$failed"
