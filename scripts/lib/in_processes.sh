#!/usr/bin/env bash
# Runs a command in so many processes of this host, each a rank, as torchrun would. Where DEVCOMM_LSA_SIZE makes a host of
# each rank, NCCL is told the same.
# usage: in_processes.sh RANKS COMMAND [ARGUMENT...]
set -uo pipefail
ranks=$1
shift
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 10000))
started=()
for ((rank = 0; rank < ranks; ++rank)); do
  if [ "${DEVCOMM_LSA_SIZE-}" = 1 ]; then export NCCL_HOSTID=host$rank; fi
  RANK=$rank LOCAL_RANK=$rank "$@" &
  started+=($!)
done
status=0
for process in "${started[@]}"; do wait "$process" || status=$?; done
exit "$status"
