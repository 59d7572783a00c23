#!/usr/bin/env bash
# A warp that waits for LL128 lines goes on together after some of its lanes wrote a note for the watchdog: the machine
# code has a convergence of the warp between that call and the next load of lines, in which no line may be split. Headers
# without it must fail this check, or it checks nothing.
# usage: converges.sh NVCC NVDISASM SOURCE_DIR WORK_DIR
set -euo pipefail
nvcc=$1 nvdisasm=$2 source=$3 work=$4
[ -x "$nvdisasm" ] || {
  echo "no nvdisasm: install it with the CUDA toolkit, or by pip install nvidia-cuda-nvdisasm, and configure again" >&2
  exit 1
}
rm -rf "$work"
mkdir -p "$work"
cp -r "$source/include" "$work/without"
hook='^ *if constexpr \(DEVCOMM_WATCHDOG != 0\) LaneGroup::join\(\);.*$'
grep -qE "$hook" "$work/without/devcomm/detail/poll.cuh" || {
  echo "no line of poll.cuh is '$hook'; keep converges.sh in step with it" >&2
  exit 1
}
sed -i -E "/$hook/d" "$work/without/devcomm/detail/poll.cuh"

# What follows the kernel's call of note_wait, up to the branch back to the loads.
after_note() { # INCLUDE_DIR
  "$nvcc" -std=c++17 -O3 -arch=sm_90 -DDEVCOMM_WATCHDOG=1 -I"$1" -cubin -o "$work/ll128.cubin" "$source/tests/sass/ll128.cu"
  "$nvdisasm" -c "$work/ll128.cubin" >"$work/ll128.sass"
  awk '/CALL.*note_wait/ { inside = 1; next }
    inside && /LDG\.E\.128\.STRONG\.SYS|^ *\/\*[0-9a-f]+\*\/ +BRA `/ { exit }
    inside' "$work/ll128.sass"
}
with=$(after_note "$source/include")
without=$(after_note "$work/without")
[ -n "$without" ] || { echo "the code of the kernel has no call of note_wait" >&2 && exit 1; }
grep -qE 'WARPSYNC|BRA\.DIV' <<<"$with" || {
  echo "no convergence of the warp between a note for the watchdog and the next load of lines:" >&2
  echo "$with" >&2
  exit 1
}
if grep -qE 'WARPSYNC|BRA\.DIV' <<<"$without"; then
  echo "headers without the convergence have one as well: nothing was checked" >&2
  exit 1
fi
echo "the warp converges"
