#!/usr/bin/env bash
# Code of the examples' kernels with diagnosis and checks that are compiled in as disabled, from headers that never had
# them, and from headers without the network: must be the same to the last byte. With them on it must differ, or this
# test compares nothing.
# usage: compare.sh NVCC NVDISASM SOURCE_DIR WORK_DIR
set -euo pipefail
nvcc=$1 nvdisasm=$2 source=$3 work=$4
[ -x "$nvdisasm" ] || {
  echo "no nvdisasm: install it with the CUDA toolkit, or by pip install nvidia-cuda-nvdisasm, and configure again" >&2
  exit 1
}
rm -rf "$work"
mkdir -p "$work"

# The hooks are lines of their own, so that headers without them are easily had.
cp -r "$source/include" "$work/stripped"
hooks=(
  '^ *wait_note note\(home\);$'
  '^ *\[\[maybe_unused\]\] const auto traced = protocol_\.trace\(span_kind::(wait|sync)\);$'
  '^ *const trace_span traced\(group_, home_, trace_name\(\)\);$'
  '^ *const trace_span traced = (session|barrier)\.trace_call\(.*\);$'
  '^ *const trace_span phase = (session|barrier)\.trace\(.*\);$'
  '^ *note\.renew\(label, progress\.start\);$'
  '^ *if \(is_alive\(\)\) contracts_\.show\(epoch_\);$'
  '^ *contracts_\.template compare<lane_group>\(first, end, epoch_, whole, other\);$'
  '^ *session\.begin_call\(call_contract::of<.*>\(.*\)\);$'
)
for hook in "${hooks[@]}"; do
  files=$(grep -rlE "$hook" "$work/stripped") || {
    echo "no line of the headers is '$hook'; keep compare.sh in step with the hooks" >&2
    exit 1
  }
  xargs sed -i -E "/$hook/d" <<<"$files"
done
[ "$(diff -r "$source/include" "$work/stripped" | grep -c '^<')" -ge "${#hooks[@]}" ]

# Kernels of an LSA team pay nothing for the network beside them. What is not there, nothing can include.
cp -r "$source/include" "$work/lsa_only"
rm "$work"/lsa_only/devcomm/gin/*.cuh "$work/lsa_only/devcomm/collective/barrier_session.cuh"
rm -r "$work/lsa_only/devcomm/gin/detail"
sed -i -E '/(gin\/|channel\/network|hierarchical|all_to_all_(hybrid|one_shot)|collective\/barrier_session|moe\/)/d' "$work/lsa_only/devcomm/devcomm.cuh"

compile() { # INCLUDE_DIR OPTION...
  "$nvcc" -std=c++20 -O3 -arch=sm_90 -I"$1" -I"$source/host/include" -I"$source/examples" "${@:2}" \
    "$source/tests/sass/kernels.cu"
}
pids=()
compile "$work/stripped" -cubin -o "$work/without.cubin" & pids+=($!)
compile "$work/lsa_only" -cubin -o "$work/lsa_only.cubin" & pids+=($!)
mkdir "$work/kept"
compile "$source/include" -cubin -keep -keep-dir "$work/kept" -o "$work/off.cubin" & pids+=($!)
for pid in "${pids[@]}"; do wait "$pid"; done
compile "$source/include" -ptx -DDEVCOMM_WATCHDOG=1 -DDEVCOMM_TRACE=1 -DDEVCOMM_CHECKED=1 -o "$work/on.ptx"

if ! cmp "$work/without.cubin" "$work/off.cubin"; then
  echo "the hooks change the code of kernels although they are off" >&2
  diff <("$nvdisasm" "$work/without.cubin") <("$nvdisasm" "$work/off.cubin") | head -n 40 >&2 || true
  exit 1
fi
if ! cmp "$work/lsa_only.cubin" "$work/off.cubin"; then
  echo "the network's headers change the code of kernels that do not use it" >&2
  diff <("$nvdisasm" "$work/lsa_only.cubin") <("$nvdisasm" "$work/off.cubin") | head -n 40 >&2 || true
  exit 1
fi
instructions=$("$nvdisasm" -c "$work/off.cubin" | grep -c '^ */\*[0-9a-f]*\*/ .*;')
[ "$instructions" -gt 1000 ] || { echo "nvdisasm shows only $instructions instructions of all kernels" >&2 && exit 1; }
[ -s "$work/kept/kernels.ptx" ] || { echo "nvcc did not keep kernels.ptx" >&2 && exit 1; }
if cmp -s "$work/kept/kernels.ptx" "$work/on.ptx"; then
  echo "the code is the same with watchdog, tracing and checks on: nothing was compared" >&2
  exit 1
fi
echo "same code: $instructions instructions"
