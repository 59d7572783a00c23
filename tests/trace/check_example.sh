#!/usr/bin/env bash
# Runs the traced example, checks the trace that it writes, and draws it.
# usage: check_example.sh PROGRAM RANKS FILE PYTHON [processes]
# With `processes`, each rank is a process of its own.
set -euo pipefail
program=$1 ranks=$2 file=$3 python=$4
here=$(dirname "${BASH_SOURCE[0]}")
rm -f "$file"
if [ "${5:-}" = processes ]; then
  "$here/../../examples/05_multi_process/run.sh" "$program" "$ranks" "$file"
else
  DEVCOMM_RANKS=$ranks "$program" "$file"
fi
"$python" "$here/check_trace.py" "$file" "$ranks" 4 all_reduce reduce gather "LSA barrier %"
"$python" "$here/../../scripts/trace_to_svg.py" "$file" "${file%.json}.svg"
# The checker must be able to fail: a trace with one end less is refused.
awk '/"ph": "E"/ && !gone { gone = 1; next } { print }' "$file" >"$file.broken"
if "$python" "$here/check_trace.py" "$file.broken" "$ranks" >/dev/null 2>&1; then
  echo "check_trace.py takes a trace that lacks an end" >&2
  exit 1
fi
