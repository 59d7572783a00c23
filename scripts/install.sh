#!/usr/bin/env bash
# Builds what needs neither a GPU nor a CUDA toolkit, headers, host library, simulator and devcomm-simulate, and
# installs it.
#
#   scripts/install.sh [PREFIX]     ~/.local by default
#
# Needs Debian 12 or Ubuntu 24.04, as root or with sudo; installs what is missing by apt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh

[ $# -le 1 ] || fail "give one folder: scripts/install.sh PREFIX"
prefix=${1:-$HOME/.local}
case $prefix in -*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
mkdir -p "$prefix" && [ -w "$prefix" ] || fail "$prefix cannot be written; give another folder: scripts/install.sh PREFIX"
require_packages g++ cmake ninja-build python3

log=build/install.log
mkdir -p build
rm -f "$log"
say "building headers, host library and simulator (log: $log)"
quietly cmake -S . -B build/install -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DDEVCOMM_ENABLE_CUDA=OFF \
  -DDEVCOMM_BUILD_TESTS=OFF -DDEVCOMM_BUILD_EXAMPLES=OFF -DDEVCOMM_BUILD_BENCHMARKS=OFF
quietly cmake --build build/install
quietly cmake --install build/install --prefix "$prefix"
say "installed in $prefix; to run a CUDA program on simulated GPUs: $prefix/bin/devcomm-simulate program.cu"
