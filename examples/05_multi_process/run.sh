#!/usr/bin/env bash
# Starts one process for each rank from a plain shell, as a launcher would.
# usage: run.sh PROGRAM RANKS [ARGUMENT...]
set -euo pipefail
program=$1 ranks=$2
shift 2
# Each job has a port and a secret of its own, so that jobs on one machine do not meet.
export DEVCOMM_SIZE=$ranks
export DEVCOMM_ROOT=${DEVCOMM_ROOT:-127.0.0.1:$((20000 + $$ % 20000))}
export DEVCOMM_SECRET=${DEVCOMM_SECRET:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}
pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  DEVCOMM_RANK=$rank DEVCOMM_LOCAL_RANK=$rank "$program" "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
  wait "$pid" || status=$?
done
exit "$status"
