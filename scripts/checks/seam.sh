#!/usr/bin/env bash
# PTX, intrinsics and the built-in variables of CUDA appear only in include/devcomm/arch/; the
# simulator can stand in for nothing else. assert.hpp may ask for __CUDA_ARCH__.
#
#   scripts/checks/seam.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
[ -d include/devcomm ] || {
  echo "seam: no include/devcomm under $PWD" >&2
  exit 1
}

words='asm|__asm__|__CUDA_ARCH__|threadIdx|blockIdx|blockDim|gridDim|warpSize'
words+='|__(syncthreads|syncwarp|shfl|ballot|any_sync|all_sync|activemask|threadfence|nanosleep|match|reduce)\w*'
words+='|__(ldg|ldcg|ldcs|ldca|ldcv|ldlu|stcg|stcs|stwb|stwt)|__(cvta|isGlobal|isShared)\w*|__(trap|brkpt|nv_\w+)'
words+='|atomic(Add|Sub|Exch|Min|Max|And|Or|Xor|Inc|Dec|CAS)\w*|clock64|globaltimer|cooperative_groups'

# Comments may name what they replace: drop them, keeping the line numbers.
found=0
while IFS= read -r -d '' file; do
  allowed='^$'
  [ "$file" = include/devcomm/assert.hpp ] && allowed='defined\(__CUDA_ARCH__\)'
  if hits=$(sed -E 's#//.*##' "$file" | grep -nE "(^|[^A-Za-z0-9_.])($words)([^A-Za-z0-9_]|$)" | grep -vE "$allowed"); then
    sed "s#^#$file:#" <<<"$hits" >&2
    found=1
  fi
done < <(find include/devcomm -type f \( -name '*.hpp' -o -name '*.cuh' \) -not -path 'include/devcomm/arch/*' -print0)

if [ "$found" = 1 ]; then
  echo "seam: use the functions of <devcomm/arch/arch.cuh> instead, or add one there and to the simulator" >&2
  exit 1
fi
