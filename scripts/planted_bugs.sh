#!/usr/bin/env bash
# Runs every planted bug in every mode; writes which mode finds which bug, and the reports, in Markdown.
#
#   scripts/planted_bugs.sh [BUILD [FILE]]     BUILD: a build folder (build/release); FILE: build/planted_bugs.md
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh
build=${1:-build/release}
[ -f "$build/CMakeCache.txt" ] || fail "$build is no build folder; run cmake --preset release first"
cmake --build "$build" --target planted_none planted_race planted_address >/dev/null
seeds=20
page=${2:-build/planted_bugs.md}
begin=$SECONDS
{
  cat <<END
# Planted bugs

Kernels with one typical bug each, run by tests/planted on 3 simulated GPUs with 2 blocks of 32
threads. The numbers say in how many of $seeds runs, with the seeds 1 to $seeds, a mode found the bug: by a report, a deadlock, or
the check of results. Without the bug, the same kernels pass in every mode and run. Each bug is a test, \`ctest -L planted\`.

| mode | what runs |
|---|---|
END
  sed -n 's/^# \([a-z_]*\): \(.*\)$/| \1 | \2 |/p' tests/planted/modes.txt
  echo
  tests/planted/planted.sh table "$build/bin" "$seeds"
} >"$page.new"
mv "$page.new" "$page"
say "$page written in $((SECONDS - begin)) s"
