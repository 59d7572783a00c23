#!/usr/bin/env bash
# Makes and destroys communicators, windows and device communicators, and ends kernels in their middle, for a long
# time; fails when the process comes to hold more. Prints what it holds as it goes.
#
#   scripts/soak.sh [CYCLES]             20000 unless given: some minutes; the test in CI takes 800
#   scripts/soak.sh network [LAUNCHES]   contexts of the network, on 4 processes that are two hosts: 10000 launches unless
#                                        given, every 8 with contexts of their own; the test in CI takes 320
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh
if [ "${1:-}" = network ]; then
  launches=${2:-10000}
  [[ $launches =~ ^[0-9]+$ ]] && ((launches >= 64)) || fail "LAUNCHES is '$launches'; give a number from 64"
  require_packages g++ cmake ninja-build libcatch2-dev libfabric-dev
  cmake --preset simulator >/dev/null
  cmake --build --preset simulator --target gin_processes_test_sim >/dev/null
  SOAK_LAUNCHES=$launches exec build/simulator/bin/gin_processes_test_sim "[soak]"
fi
cycles=${1:-20000}
[[ $cycles =~ ^[0-9]+$ ]] && ((cycles >= 80)) || fail "CYCLES is '$cycles'; give a number from 80"
require_packages g++ cmake ninja-build libcatch2-dev
cmake --preset simulator >/dev/null
cmake --build --preset simulator --target soak_sim >/dev/null
exec build/simulator/bin/soak_sim "$cycles"
