#!/usr/bin/env bash
# Runs a GPU test, or exits with 77 (ctest: skipped) on a machine without an NVIDIA GPU.
set -euo pipefail
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  echo "skipped: no NVIDIA GPU on this machine (no /dev/nvidia0)"
  exit 77
fi
# Ranks share GPUs, and their kernels wait for each other: docs/diagnosis.md says what holds a launch or a copy back.
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32
exec "$@"
