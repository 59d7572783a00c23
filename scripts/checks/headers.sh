#!/usr/bin/env bash
# Public headers: know nothing of the host library, have #pragma once and a \file line, and are named .hpp or .cuh.
# The measure of a header is its concept; over 600 lines it has more than one.
#
#   scripts/checks/headers.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
[ -d include/devcomm ] || {
  echo "headers: no include/devcomm under $PWD" >&2
  exit 1
}

failed=0
complain() {
  echo "headers: $*" >&2
  failed=1
}

while IFS= read -r -d '' file; do
  if hits=$(grep -nE '#\s*include\s*[<"](devcomm/host/|.*/host/)' "$file"); then
    complain "$file includes the host library ($hits); include/ must not know it"
  fi
  grep -q '^#pragma once' "$file" || complain "$file lacks #pragma once"
  head -n 1 "$file" | grep -q "^/// \\\\file $(basename "$file")\$" ||
    complain "$file must begin with '/// \\file $(basename "$file")' and what it is for"
  lines=$(wc -l <"$file")
  [ "$lines" -le 600 ] || complain "$file has $lines lines, over 600; split it by concept"
done < <(find include/devcomm -type f \( -name '*.hpp' -o -name '*.cuh' \) -print0)

while IFS= read -r -d '' file; do
  complain "$file: headers are .hpp (any C++) or .cuh (device code)"
done < <(find include -type f -not -name '*.hpp' -not -name '*.cuh' -print0)
exit "$failed"
