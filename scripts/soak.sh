#!/usr/bin/env bash
# Makes and destroys communicators, windows and device communicators, and ends kernels in their middle, for a long
# time; fails when the process comes to hold more. Prints what it holds as it goes.
#
#   scripts/soak.sh [CYCLES]     20000 unless given: some minutes; the test in CI takes 800
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh
cycles=${1:-20000}
[[ $cycles =~ ^[0-9]+$ ]] && ((cycles >= 80)) || fail "CYCLES is '$cycles'; give a number from 80"
require_packages g++ cmake ninja-build libcatch2-dev
cmake --preset simulator >/dev/null
cmake --build --preset simulator --target soak_sim >/dev/null
exec build/simulator/bin/soak_sim "$cycles"
