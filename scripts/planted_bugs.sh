#!/usr/bin/env bash
# Runs every planted bug in every mode and writes docs/planted_bugs.md.
#
#   scripts/planted_bugs.sh [BUILD]     BUILD: a build folder (build/release)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh
build=${1:-build/release}
[ -f "$build/CMakeCache.txt" ] || fail "$build is no build folder; run cmake --preset release first"
cmake --build "$build" --target planted_none planted_race planted_address >/dev/null
seeds=20
page=docs/planted_bugs.md
begin=$SECONDS
{
  cat <<END
# Planted bugs

Kernels with one typical bug each, run by [tests/planted](../tests/planted) on 3 simulated GPUs with 2 blocks of 32
threads. The numbers say in how many of $seeds runs, with the seeds 1 to $seeds, a mode found the bug: by a report, a deadlock, or
the check of results. Without the bug, the same kernels pass in every mode and run. Each bug is a test, \`ctest -L planted\`.
This page is written by [scripts/planted_bugs.sh](../scripts/planted_bugs.sh).

| mode | what runs |
|---|---|
END
  sed -n 's/^# \([a-z_]*\): \(.*\)$/| \1 | \2 |/p' tests/planted/modes.txt
  echo
  tests/planted/planted.sh table "$build/bin" "$seeds"
} >"$page.new"
mv "$page.new" "$page"
say "$page written in $((SECONDS - begin)) s"
