#!/usr/bin/env bash
# Runs examples, tests, faults and benchmarks on this machine's GPUs and keeps what they print.
#
#   scripts/gpu_results.sh                    builds, then runs on 1, 2, 3, 4 and 8 ranks where there are as many GPUs
#   scripts/gpu_results.sh --bin DIR          takes programs built before (bin/ of a build folder)
#   scripts/gpu_results.sh --out DIR          where the logs go; by default benchmarks/results/COUNTxGPU
#   scripts/gpu_results.sh --only examples    one part: examples, tests, faults, watchdog, trace, benchmarks, all_reduce,
#                                             lateness, fused_rms_norm, gemm, moe, collectives, moves, channels, sharing, gin, multimem_software, litmus, soak, sanitizer or python
#   scripts/gpu_results.sh --only multimem    by NVLink multicast, only when it is asked for: it makes multicast objects. Refuses
#                                             where NCCL_NVLS_ENABLE or DEVCOMM_NVLS_ENABLE is 0 or unreadable, or the
#                                             GPUs have none
#
# Each log starts with date, machine and commit, and names every command before its output; goals.md holds the rows of
# all parts so far against benchmarks/goals.txt. The exit status is non-zero when a command failed.
# DEVCOMM_SANITIZER_TOOLS names tools of compute-sanitizer, all three unless given.
# DEVCOMM_RUNS is the number of runs that make the 18,000 replays of part lateness, 200 unless given.
# DEVCOMM_NCCL_LIBRARY names NCCL's library for comparisons; without it the one that the loader finds is taken.
# Plots need matplotlib; without it they are left out. Part python needs PyTorch, and builds the package; without a network,
# PYTHON_WHEELS is a folder with the wheels that its build needs (pip download scikit-build-core nanobind
# 'nvidia-cuda-runtime>=13.0,<14').
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
. scripts/lib/setup.sh

# All but multimem, which runs only when it is named.
every_part=(examples tests faults watchdog trace benchmarks all_reduce lateness fused_rms_norm gemm moe collectives moves channels sharing gin multimem_software litmus soak sanitizer python)
bin='' out='' parts=("${every_part[@]}")
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=${2:?--bin needs a folder} && shift 2 ;;
    --out) out=${2:?--out needs a folder} && shift 2 ;;
    --only) parts=("${2:?--only needs a part}") && shift 2 ;;
    -h | --help) sed -n '2,22s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) fail "unknown argument '$1'; see --help" ;;
  esac
done

for part in "${parts[@]}"; do
  [[ " ${every_part[*]} multimem " == *" $part "* ]] || fail "unknown part '$part'; the parts are: ${every_part[*]} multimem"
done
# Nothing but part multimem uses NVLink multicast: a failure there can take down GPUs for others.
forbids_multicast=''
[[ ${DEVCOMM_NVLS_ENABLE-1} == 1 ]] || forbids_multicast="DEVCOMM_NVLS_ENABLE is ${DEVCOMM_NVLS_ENABLE:-empty}"
[[ ${NCCL_NVLS_ENABLE-1} =~ ^0*[1-9][0-9]*$ ]] || forbids_multicast="NCCL_NVLS_ENABLE is ${NCCL_NVLS_ENABLE:-empty}"
if [[ ${parts[*]} == multimem && -n $forbids_multicast ]]; then
  echo "refused: $forbids_multicast, so nothing here may use multicast"
  exit 1
fi
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1

command -v nvidia-smi >/dev/null || fail "no nvidia-smi: this script is for a machine with NVIDIA GPUs"
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
model=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
commit=${DEVCOMM_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
out=${out:-benchmarks/results/${gpus}x$(tr -cd '[:alnum:]' <<<"${model#NVIDIA }")}
mkdir -p "$out"

if [ -z "$bin" ]; then
  find_cuda
  [ -n "$cuda_root" ] || fail "no CUDA toolkit found; set CUDA_HOME, or give programs built elsewhere with --bin"
  bin=build/gpu-results/bin
  say "building (log: build/gpu-results.log)"
  mkdir -p build
  { cmake -S . -B build/gpu-results -G Ninja -DCMAKE_BUILD_TYPE=Release -DDEVCOMM_ENABLE_CUDA=ON \
    -DDEVCOMM_BUILD_SIMULATOR=OFF -DCMAKE_CUDA_ARCHITECTURES=native "-DCUDAToolkit_ROOT=$cuda_root" &&
    cmake --build build/gpu-results; } >build/gpu-results.log 2>&1 || fail "the build failed, see build/gpu-results.log"
fi

failed=0
log=''
start_log() { # NAME TITLE
  log=$out/$1.log
  {
    echo "# $2"
    echo "# date:    $(date -u +'%F %T') UTC"
    echo "# machine: $gpus x $model, driver $driver"
    echo "# commit:  $commit"
  } >"$log"
  say "$2 ($log)"
}
run() { # [NAME=VALUE...] PROGRAM [ARGUMENT...]
  printf '\n$ %s\n' "${*//$bin\//}" >>"$log"
  local status=0
  timeout -k 5 "${limit:-120}" env "$@" >>"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || { failed=1 && echo "   failed with status $status: ${*//$bin\//}"; }
  echo "[exit status $status]" >>"$log"
}
# A picture of all rows in ROWS.jsonl, with a Python that has matplotlib.
draw() { # ROWS
  rm -f "$1.svg"
  if [ -n "$plotter" ]; then
    run "$plotter" scripts/plot_perf.py "$1.jsonl" --out "$1.svg"
  else
    echo "   no matplotlib for python3: $1.svg is left out" | tee -a "$log"
  fi
}
plotter=$(python_with_matplotlib) || true

rank_counts=()
for n in 1 2 3 4 8; do [ "$n" -le "$gpus" ] && rank_counts+=("$n"); done
most=${rank_counts[-1]}
needs_two_gpus() {
  [ "$gpus" -ge 2 ] || { echo "needs 2 GPUs" >>"$log" && return 1; }
}
run_examples() { # RANKS
  for name in 01_all_reduce_lsa 02_one_shot_all_reduce 03_two_shot_all_reduce 04_all_to_all_lsa 06_fused_all_reduce 07_fused_rms_norm \
    08_registered_buffers 10_sequence_parallel_norm 11_ping_pong 12_tokens_to_experts 13_ring_all_reduce \
    14_multimem_all_reduce 18_captured_buffers 19_multimem_rms_norm 23_gemm_all_reduce 24_tensor_parallel_mlp \
    25_moe_layer; do
    run DEVCOMM_RANKS="$1" "$bin/example_${name}_gpu"
  done
}

part_examples() {
  start_log examples "Examples: one process, a process for each rank, launchers"
  for n in "${rank_counts[@]}"; do
    run_examples "$n"
    run examples/05_multi_process/run.sh "$bin/example_05_multi_process_gpu" "$n"
  done
  if command -v torchrun >/dev/null; then
    run torchrun --no-python --nproc-per-node "$most" "$bin/example_05_multi_process_gpu"
  fi
  if command -v mpirun >/dev/null; then
    run OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n "$most" --oversubscribe \
      "$bin/example_05_multi_process_gpu"
  fi
  if [ "$gpus" -gt 1 ] && [ "$gpus" -lt 8 ]; then
    start_log examples_shared_gpus "Examples: 8 ranks, several on a GPU; for correctness only"
    run_examples 8
  fi
}

part_tests() {
  start_log tests "Tests that run on GPUs"
  local program
  for program in "$bin"/*_test_gpu "$bin"/two_units_gpu "$bin"/cuda_backend_test; do
    [ -x "$program" ] && run "$program" --order decl
  done
}

part_faults() {
  start_log faults "A rank that misbehaves"
  needs_two_gpus || return
  for n in 2 "$most"; do
    run DEVCOMM_RANKS="$n" "$bin/faults_gpu" absent_rank
    run DEVCOMM_RANKS="$n" "$bin/faults_gpu" different_grid
    run tests/faults/run.sh "$bin/faults_gpu" killed_process "$n" 137
    run tests/faults/run.sh "$bin/faults_gpu" throwing_rank "$n" 0
    run tests/faults/run.sh "$bin/faults_gpu" throwing_user "$n" 0
  done
}

# Barriers as they are, and with FEATURE in the kernel, turn by turn.
measure_cost_on_barriers() { # FEATURE
  local n
  for n in 2 "$most"; do
    for _ in 1 2; do
      run DEVCOMM_RANKS="$n" "$bin/benchmark_lsa_barrier_gpu"
      run DEVCOMM_RANKS="$n" "$bin/benchmark_lsa_barrier_$1_gpu"
    done
  done
}

part_watchdog() {
  start_log watchdog "A hang as the watchdog tells it, and what the watchdog costs"
  needs_two_gpus || return
  run "$bin/watchdog_test_gpu" --order decl
  run DEVCOMM_RANKS="$most" "$bin/faults_gpu" absent_rank
  measure_cost_on_barriers watchdog
}

part_trace() {
  start_log trace "A traced two-shot all-reduce, and what tracing costs"
  run "$bin/trace_test_gpu" --order decl
  local n
  for n in "${rank_counts[@]}"; do
    local trace=$out/two_shot_all_reduce_${n}.json
    run DEVCOMM_RANKS="$n" "$bin/example_09_traced_all_reduce_gpu" "$trace" 1048576
    run tests/trace/check_trace.py "$trace" "$n" 4 all_reduce reduce gather "LSA barrier %"
    run scripts/trace_to_svg.py "$trace" "${trace%.json}.svg" --blocks 4 --title "Two-shot all-reduce of 1 MiB, $n x $model"
  done
  needs_two_gpus || return
  measure_cost_on_barriers trace
}

part_benchmarks() {
  start_log lsa_barrier "LSA barrier against NCCL's, in one run"
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] && run DEVCOMM_RANKS="$n" "$bin/benchmark_lsa_barrier_gpu" --compare nccl
  done
}

part_python() {
  start_log python "From Python: operators on tensors, host time of calls, graphs, first calls, an engine's loop; ranks share a GPU"
  local venv=$PWD/build/gpu-python measure=$PWD/benchmarks/python/measure.py n part source=()
  if ! python3 -c 'import torch' 2>/dev/null; then
    echo "needs PyTorch" >>"$log"
    return
  fi
  [ -z "${PYTHON_WHEELS:-}" ] || source=(--no-index --find-links "$PYTHON_WHEELS")
  python3 -m venv --system-site-packages "$venv"
  limit=900 run "$venv/bin/pip" install --quiet --no-deps "${source[@]}" ./python
  export DEVCOMM_BACKEND=cuda
  for n in 1 2 4; do
    limit=1200 run "$venv/bin/python" "$measure" operators --ranks "$n"
  done
  limit=1200 run "$venv/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 "$measure" operators --ranks 2
  for part in host_time first_call; do
    limit=300 run "$venv/bin/python" "$measure" "$part"
  done
  for n in 1 2; do
    limit=300 run "$venv/bin/python" "$measure" graphs --ranks "$n" --perf "$(realpath "$bin/devcomm-perf_gpu")"
    limit=300 run "$venv/bin/python" "$measure" engine --ranks "$n"
  done
  limit=300 run "$venv/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 python/examples/torch_extension.py
  unset DEVCOMM_BACKEND
}

part_sanitizer() {
  start_log sanitizer "GPU tests under compute-sanitizer, on 2 GPUs where there are as many"
  local sanitizer program tool tools
  read -ra tools <<<"${DEVCOMM_SANITIZER_TOOLS:-memcheck racecheck synccheck}"
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [ ! -x "$sanitizer" ]; then
    echo "no compute-sanitizer found: it comes with the CUDA toolkit" >>"$log"
    return
  fi
  for tool in "${tools[@]}"; do
    for program in "$bin"/*_test_gpu "$bin"/example_0[1-4,6-8]*_gpu "$bin"/example_1[0-3]*_gpu; do
      limit=300 run CUDA_VISIBLE_DEVICES=0,1 DEVCOMM_TEST_FEW=1 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 "$program"
    done
  done
  local n
  for program in "$bin"/nccl_*_gpu_shared; do
    for n in 1 2 4; do
      limit=300 run LD_PRELOAD="$bin/libnccl_one_gpu.so" DEVCOMM_RANKS="$n" "$sanitizer" --report-api-errors no --error-exitcode 9 "$program"
    done
  done
}

# Weakened controls may stay unseen where ranks share a GPU, and so lie on one L2 cache.
part_litmus() {
  start_log litmus "Litmus tests: outcomes that the protocols' rules forbid, a million rounds each under memory stress"
  local n
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] && limit=300 run DEVCOMM_RANKS="$n" "$bin/benchmark_litmus_gpu"
  done
  limit=300 run CUDA_VISIBLE_DEVICES=0 DEVCOMM_RANKS=2 "$bin/benchmark_litmus_gpu" --controls reported
  limit=900 run python3 tests/litmus/shapes.py gpu
}

part_soak() {
  start_log soak "Random collectives, sizes, alignments, shapes and lateness, also of ranks that share GPUs"
  local n calls
  for n in 2 3 4 8; do
    if [ "$n" -le "$gpus" ]; then calls=60000; else calls=400; fi
    limit=600 run DEVCOMM_RANKS="$n" "$bin/random_collectives_gpu" "$calls"
  done
  limit=600 run DEVCOMM_RANKS=8 "$bin/random_messages_gpu" 1000
}

part_all_reduce() {
  start_log limits "What the links can do"
  for n in "${rank_counts[@]}"; do run "$bin/devcomm-perf_gpu" limits -n "$n"; done
  start_log all_reduce "All-reduce: the plan's choice, beside NCCL; with dependent launch; in few blocks"
  local n rows
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    rows=$out/all_reduce_h200x$n
    rm -f "$rows.jsonl"
    run "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 1K -e 256M --algo auto --compare nccl --json "$rows.jsonl"
    run "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 1K -e 1M --algo auto --pdl --json "$rows.jsonl"
    draw "$rows"
    for blocks in 16 32; do
      run NCCL_MAX_CTAS="$blocks" "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 64K -e 64M -f 4 --algo auto \
        --max-blocks "$blocks" --place out --compare nccl
    done
    run "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 1K -e 4M -f 8 --algo all --dtype int32 --place both
    run "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 1000 -e 1000000 -f 10 --algo all --dtype float --place both
  done
}

part_lateness() {
  start_log late_peer "Chains with a late peer, every protocol"
  needs_two_gpus || return
  limit=300 run DEVCOMM_RANKS=2 "$bin/benchmark_late_peer_gpu" --check
  start_log waiting_beside "What waits cost their neighbors"
  run DEVCOMM_RANKS=2 "$bin/benchmark_waiting_beside_gpu"
  start_log lateness "All-reduce with ranks that come late, in a graph and launched one by one, beside NCCL"
  local n rows how
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    rows=$out/all_reduce_late_h200x$n
    rm -f "$rows.jsonl"
    for how in '--late 0,50' '--jitter 20,100'; do
      # shellcheck disable=SC2086
      limit=300 run "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 1K -e 64M -f 4 --algo auto --place out --compare nccl \
        --json "$rows.jsonl" $how
      # shellcheck disable=SC2086
      limit=300 run "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 1K -e 64M -f 4 --algo auto --place out --compare nccl \
        --json "$rows.jsonl" $how --eager
    done
  done
  start_log replays "Replays of a 1 MiB all-reduce, 18,000 in all: is any far above the median?"
  local runs=${DEVCOMM_RUNS:-200} rows_of_runs
  rows_of_runs=$(mktemp)
  for ((n = 0; n < runs; ++n)); do
    run "$bin/devcomm-perf_gpu" all_reduce -n 2 -b 1M -e 1M --algo auto --place out --replays $((18000 / runs)) \
      --json "$rows_of_runs"
  done
  python3 - "$rows_of_runs" >>"$log" <<'EOF' || failed=1
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
shares = sorted(row["us_max"] / row["us_median"] for row in rows)
print(f"\n{len(rows)} runs: slowest replay over median: least {shares[0]:.3f}, median {shares[len(shares) // 2]:.3f}, "
      f"most {shares[-1]:.3f}")
# A replay that one rank's host launched late takes that much longer, and must not take more.
beyond = [row for row in rows if (row["us_max"] - 2 * row["us_median"]) * row["calls"] > row["us_lag_of_max"]]
for row in sorted(rows, key=lambda row: -row["us_max"])[:5]:
    print(f"  slowest replay {row['us_max'] * row['calls']:.0f} us, median {row['us_median'] * row['calls']:.0f} us; "
          f"the later host had launched {row['us_lag_of_max']:.0f} us after the moment to start")
sys.exit(len(beyond) > 0)
EOF
  rm -f "$rows_of_runs"
  tail -n 6 "$log"
}

part_fused_rms_norm() {
  start_log fused_rms_norm "All-reduce, residual and RMSNorm in one kernel: the fastest shapes, beside NCCL and a kernel for the rest"
  local n rows
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    rows=$out/fused_rms_norm_h200x$n
    rm -f "$rows.jsonl"
    limit=300 run "$bin/devcomm-perf_gpu" fused_rms_norm -n "$n" -b 1K -e 64M -f 4 --algo one_shot,two_shot,two_shot_chunked_to_window --sweep \
      --place out --json "$rows.jsonl"
    limit=300 run "$bin/devcomm-perf_gpu" fused_rms_norm -n "$n" -b 1K -e 64M -f 4 --algo one_shot,two_shot,two_shot_chunked_to_window --sweep \
      --place out --pdl --json "$rows.jsonl"
    run "$bin/devcomm-perf_gpu" fused_rms_norm -n "$n" -b 1K -e 64M --algo auto --compare nccl --json "$rows.jsonl"
    draw "$rows"
    for blocks in 16 32; do
      run NCCL_MAX_CTAS="$blocks" "$bin/devcomm-perf_gpu" fused_rms_norm -n "$n" -b 64K -e 64M -f 4 --algo auto \
        --max-blocks "$blocks" --place out --compare nccl
    done
    run "$bin/devcomm-perf_gpu" fused_rms_norm -n "$n" -b 1000 -e 1000000 -f 10 --hidden 1000 --algo all --dtype half
  done
}

# M, N and K of a layer's products. Times of one rank alone, then of as many as there are GPUs.
part_gemm() {
  start_log gemm "Matrix products: by CUTLASS's main loops and cuBLASLt; with collectives in one kernel, and apart"
  local shape m n k ranks operation rows=$out/gemm
  for shape in '64 8192 14336' '2048 8192 4096' '2048 4096 4096' '8192 8192 14336'; do
    read -r m n k <<<"$shape"
    for ranks in 1 "$gpus"; do
      for operation in gemm ag_gemm gemm_rs gemm_ar; do
        [ "$operation-$ranks" = "gemm-$gpus" ] && [ "$gpus" != 1 ] && continue
        limit=120 run "$bin/devcomm-perf_gpu" "$operation" -n "$ranks" -b $((m * n * 2)) -e $((m * n * 2)) --hidden "$n" \
          --depth "$k" --place out --algo all --json "$rows.jsonl"
      done
      [ "$gpus" = 1 ] && break
    done
  done
}

# 128 and 4,096 tokens of 7168 elements, and of one pack each: what routing takes. Rates of copies beside them.
part_moe() {
  start_log moe "Tokens to 8 of 256 experts, and their sums back"
  local n tokens rows=$out/moe
  run "$bin/devcomm-perf_gpu" limits -n 1
  for n in "${rank_counts[@]}"; do
    for tokens in 128 4096; do
      run "$bin/devcomm-perf_gpu" moe_dispatch -n "$n" -b $((tokens * 16)) -e $((tokens * 16)) --hidden 8 --sweep --place out
      for operation in moe_dispatch moe_dispatch_fp8 moe_round; do
        run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b $((tokens * 14336)) -e $((tokens * 14336)) --hidden 7168 \
          --sweep --place out --json "$rows.jsonl"
      done
    done
  done
}

part_collectives() {
  start_log collectives "Reduce-scatter, all-gather and broadcast: the choice by floors, every way, beside NCCL"
  local n operation rows
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    for operation in reduce_scatter all_gather broadcast; do
      rows=$out/${operation}_h200x$n
      rm -f "$rows.jsonl"
      run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 1K -e 256M --algo auto --compare nccl --json "$rows.jsonl"
      limit=300 run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 4K -e 64M -f 16 --algo all --sweep --place out \
        --json "$rows.jsonl"
      draw "$rows"
      run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 1000 -e 1000000 -f 10 --algo all --dtype float
      run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 4K -e 4M -f 32 --algo all,auto --dtype int32
    done
  done
}

part_moves() {
  start_log moves "Exchange, all-to-all, with counts too, groups of messages, and ping-pong, beside NCCL; with a late rank"
  local n operation rows
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    for operation in exchange all_to_all; do
      rows=$out/${operation}_h200x$n
      rm -f "$rows.jsonl"
      run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 1K -e 256M -f 4 --algo auto --place out --compare nccl \
        --json "$rows.jsonl"
      limit=300 run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 1K -e 256M -f 4 --algo all --sweep --place out \
        --json "$rows.jsonl"
      draw "$rows"
      run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 64K -e 64M -f 32 --algo auto --place out --compare nccl --late 0,50
      run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 64K -e 64M -f 32 --algo auto --place out --compare nccl --jitter 20
    done
    for operation in exchange all_to_all; do
      run "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 64K -e 256M -f 4 --place out \
        --algo copies_to_window,copies_from_window,copies_in_turn_to_window --json "$out/${operation}_h200x$n.jsonl"
    done
    run "$bin/devcomm-perf_gpu" exchange -n "$n" -b 64M -e 64M --algo auto --max-blocks 16 --place out \
      --json "$out/exchange_h200x$n.jsonl"
    rows=$out/messages_h200x$n.jsonl
    rm -f "$rows"
    run "$bin/devcomm-perf_gpu" all_to_all_v -n "$n" -b 1K -e 64M -f 16 --algo all --place out --compare nccl --json "$rows"
    run "$bin/devcomm-perf_gpu" send_receive -n "$n" -b 1K -e 256M -f 4 --algo auto --place out --compare nccl --json "$rows"
    run "$bin/devcomm-perf_gpu" ping_pong -n "$n" -b 8 -e 1M -f 2 --algo all --place out --compare nccl --json "$rows"
  done
}

# Code without a link: one rank alone, and two that share the GPU.
part_sharing() {
  [ "$gpus" = 1 ] || return 0
  start_log sharing "Small messages of one rank alone, and of two that share a GPU"
  local operation rows=$out/sharing.jsonl
  rm -f "$rows"
  run "$bin/devcomm-perf_gpu" all_reduce -n 1 -b 1K -e 256K -f 4 --algo auto --place out --json "$rows"
  for operation in all_reduce exchange all_to_all; do
    run DEVCOMM_RANKS=2 "$bin/devcomm-perf_gpu" "$operation" -b 1K -e 256K -f 4 --algo auto --place out --json "$rows"
  done
  run DEVCOMM_RANKS=2 "$bin/devcomm-perf_gpu" ping_pong -b 8 -e 2K -f 16 --algo all --place out --json "$rows"
}

part_channels() {
  start_log channels "All-reduces through FIFOs: ring and tree, every protocol"
  local n shape rows
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    rows=$out/all_reduce_channels_h200x$n.jsonl
    rm -f "$rows"
    for shape in "1 64" "32 256" "64 512" "132 512"; do
      # shellcheck disable=SC2086
      run "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 1K -e 1G -f 16 --place out --blocks ${shape% *} --threads ${shape#* } \
        --algo ring_simple,ring_to_window_simple,ring_ll,ring_ll128,tree_simple,tree_ll,tree_ll128 --json "$rows"
    done
  done
}

# One GPU takes turns between processes, and a rank that polls keeps it for milliseconds, unless CUDA's Multi-Process
# Service runs them side by side: a daemon of this script's own, which ends with it and changes no setting.
start_sharing() { # whether processes can share the GPU
  command -v nvidia-cuda-mps-control >/dev/null || PATH=$PATH:/usr/local/nvidia/bin
  command -v nvidia-cuda-mps-control >/dev/null || return 1
  shared=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY=$shared CUDA_MPS_LOG_DIRECTORY=$shared
  trap stop_sharing EXIT
  nvidia-cuda-mps-control -d
}
stop_sharing() {
  echo quit | nvidia-cuda-mps-control >/dev/null
  rm -rf "$shared"
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  trap - EXIT
}
# devcomm-perf with 2 ranks, each a host of its own, over PROVIDER; rows go to gin_PROVIDER.jsonl. Ranks are processes, or
# threads of one where processes cannot share a GPU.
perf_over() { # PROVIDER OPERATION [ARGUMENT...]
  local provider=$1 program=("$bin/devcomm-perf_gpu" "$2" -n 2) sockets=()
  if [ "$are_processes" = yes ]; then
    program=(scripts/lib/in_processes.sh 2 "$bin/devcomm-perf_gpu" "$2")
    sockets=(NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket)
  fi
  shift 2
  limit=60 run "${sockets[@]}" DEVCOMM_LSA_SIZE=1 "DEVCOMM_GIN_PROVIDER=$provider" DEVCOMM_TIMEOUT=20 \
    CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32 "${program[@]}" --place out \
    --json "$out/gin_${provider%%;*}${proxies:+_proxies_$proxies}.jsonl" "$@"
}
part_gin() {
  start_log gin "The network: each rank a host, over copy engines and libfabric, beside libfabric alone"
  local providers=('tcp;ofi_rxm' shm) few=(--launches 4 --replays 3) compare=(--compare nccl) provider memory operation arrival proxies=
  are_processes=yes
  if [ "$gpus" -ge 2 ]; then
    :
  elif start_sharing; then
    cat >>"$log" <<'EOF'
# One GPU: two processes share it by the Multi-Process Service, each a host of its own. What they put goes by copy
# engines, proxies and libfabric all the same. NCCL, which refuses two ranks on one GPU of a host, is told by NCCL_HOSTID
# that each process is a host.
EOF
  else
    are_processes=no providers=('tcp;ofi_rxm') compare=()
    cat >>"$log" <<'EOF'
# One GPU and no Multi-Process Service: both ranks are threads of one process and share it, each a host of its own. What
# they put goes by copy engines, proxies and libfabric all the same. Provider shm refuses two ranks in one process, and
# NCCL two ranks on one GPU: both are left out, but for libfabric alone.
EOF
  fi
  run "$bin/devcomm-perf_gpu" limits -n 1
  for provider in 'tcp;ofi_rxm' shm; do
    run "$bin/raw_libfabric" --provider "$provider" --rounds 1000
    run "$bin/network_steps" --provider "$provider" --rounds 1000
  done
  for provider in "${providers[@]}"; do
    rm -f "$out/gin_${provider%%;*}.jsonl"
    perf_over "$provider" gin_signal -b 8 -e 8 --algo all --launches 20
    for memory in pinned device; do
      perf_over "$provider" gin_ping_pong --memory "$memory" -b 8 -e 8 --algo all --launches 20
      perf_over "$provider" gin_put --memory "$memory" -b 8 -e 8 --algo all --launches 10
      perf_over "$provider" gin_put --memory "$memory" -b 8M -e 64M -f 8 --algo put_by_block --launches 1 --replays 3
      perf_over "$provider" gin_ping_pong --memory "$memory" -b 1K -e 1M -f 32 --algo put "${few[@]}"
    done
    for operation in gin_exchange gin_all_to_all gin_all_reduce; do
      perf_over "$provider" "$operation" -b 1K -e 1M -f 4 --algo auto --launches 40 --replays 5 "${compare[@]}"
      perf_over "$provider" "$operation" -b 4M -e 64M -f 4 --algo auto "${few[@]}" "${compare[@]}"
      for arrival in "--late 0,50" "--jitter 20"; do
        # shellcheck disable=SC2086
        perf_over "$provider" "$operation" -b 1K -e 64K -f 64 --algo auto $arrival --launches 40 --replays 5 "${compare[@]}"
      done
    done
    perf_over "$provider" gin_exchange -b 1K -e 64M -f 64 --algo stream "${few[@]}"
    perf_over "$provider" gin_all_reduce -b 1K -e 64M -f 64 --algo hierarchical,hierarchical_ring,ring,one_shot "${few[@]}"
    scripts/lib/gin_goals.py "$log" "$provider" "$out/gin_${provider%%;*}.jsonl" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || failed=1
  done
  # Large vectors over several proxies, each a thread of its own.
  for proxies in 2 4; do
    rm -f "$out/gin_tcp_proxies_$proxies.jsonl"
    for operation in gin_exchange gin_all_to_all gin_all_reduce; do
      DEVCOMM_GIN_PROXIES=$proxies perf_over 'tcp;ofi_rxm' "$operation" -b 1M -e 64M -f 8 --algo auto "${few[@]}" "${compare[@]}"
    done
  done
  [ -z "${shared-}" ] || stop_sharing
}

# Sweeps of the ways of an operation, and NCCL as the environment has it.
sweep_beside_nccl() { # RANKS ROWS OPERATION ALGORITHMS [env's ARGUMENT...]
  local n=$1 rows=$2 operation=$3 ways=$4
  shift 4
  rm -f "$rows.jsonl"
  limit=600 run "$@" "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 1K -e 256M --algo "$ways" --sweep --place out \
    --compare nccl --json "$rows.jsonl"
  draw "$rows"
  run "$@" "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 1000 -e 1000000 -f 10 --algo "$ways" --dtype float
  run "$@" "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 4K -e 4M -f 32 --algo "$ways" --dtype int32
}

refuse_multimem() { # REASON
  echo "refused: $1" | tee -a "$log"
  failed=1
}
part_multimem() {
  start_log multimem "Collectives by NVLink multicast: every shape, beside two-shot between windows and NCCL"
  [ "$gpus" -ge 2 ] || { refuse_multimem "multicast takes 2 GPUs or more" && return; }
  local allowed=(-u NCCL_NVLS_ENABLE) probe n
  if ! probe=$(timeout 120 env "${allowed[@]}" "$bin/devcomm-perf_gpu" all_reduce -n "$most" -b 1K -e 1K --algo two_shot_multimem \
    --place out --launches 1 --replays 1 2>&1); then
    echo "$probe" >>"$log"
    refuse_multimem "$(grep -o 'no multicast: .*' <<<"$probe" || echo "a first all-reduce by multimem failed, see the log")"
    return
  fi
  local name operation
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    for name in 14_multimem_all_reduce 19_multimem_rms_norm; do
      run "${allowed[@]}" DEVCOMM_RANKS="$n" "$bin/example_${name}_gpu"
    done
    run "${allowed[@]}" DEVCOMM_RANKS="$n" "$bin/benchmark_lsa_barrier_gpu" --compare multimem
    sweep_beside_nccl "$n" "$out/all_reduce_multimem_x$n" all_reduce one_shot_multimem,two_shot_multimem,two_shot_zero_copy "${allowed[@]}"
    run "${allowed[@]}" "$bin/devcomm-perf_gpu" all_reduce -n "$n" -b 64K -e 64M -f 32 --algo two_shot_multimem --place out --compare nccl --late 0,50
    for operation in reduce_scatter all_gather broadcast; do
      sweep_beside_nccl "$n" "$out/${operation}_multimem_x$n" "$operation" multimem,zero_copy "${allowed[@]}"
      run "${allowed[@]}" "$bin/devcomm-perf_gpu" "$operation" -n "$n" -b 64K -e 64M -f 4 --algo multimem,zero_copy --place in
    done
  done
}

# Two-shot by software multimem may take a tenth longer than the best other two-shot, from 1 MiB on.
compare_with_two_shot() { # ROWS.jsonl
  python3 - "$1" <<'EOF' | tee -a "$log"
import json, sys
best = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    if row["impl"] != "devcomm" or row["dtype"] != "bf16" or row["bytes"] < 1 << 20 or not row["algo"].startswith("two_shot"):
        continue
    of_size = best.setdefault(row["bytes"], {})
    software = row["algo"] == "two_shot_software_multimem"
    of_size[software] = min(of_size.get(software, (row["us_median"], row["algo"])), (row["us_median"], row["algo"]))
both = {size: of_size for size, of_size in best.items() if len(of_size) == 2}
slow = 0
for size, of_size in sorted(both.items()):
    ratio = of_size[True][0] / of_size[False][0]
    slow += ratio > 1.1
    print(f"   {size} bytes: software multimem {of_size[True][0]:.2f} us, {of_size[False][1]} {of_size[False][0]:.2f} us: "
          f"{ratio:.3f}{' is more than a tenth longer' if ratio > 1.1 else ''}")
if not both:
    print("   no sizes from 1 MiB on to compare")
sys.exit(slow > 0 or not both)
EOF
}

part_multimem_software() {
  start_log multimem_software "Collectives by software multimem, without multicast, beside two-shot between windows"
  needs_two_gpus || return
  local n operation rows
  for n in "${rank_counts[@]}"; do
    [ "$n" -ge 2 ] || continue
    rows=$out/all_reduce_software_multimem_x$n
    sweep_beside_nccl "$n" "$rows" all_reduce one_shot_software_multimem,two_shot_software_multimem,two_shot,two_shot_zero_copy,two_shot_chunked_to_window
    compare_with_two_shot "$rows.jsonl" || failed=1
    for operation in reduce_scatter all_gather broadcast; do
      sweep_beside_nccl "$n" "$out/${operation}_software_multimem_x$n" "$operation" software_multimem,zero_copy
    done
  done
}

for part in "${parts[@]}"; do
  case $part in
    examples) part_examples ;;
    tests) part_tests ;;
    faults) part_faults ;;
    watchdog) part_watchdog ;;
    trace) part_trace ;;
    benchmarks) part_benchmarks ;;
    all_reduce) part_all_reduce ;;
    lateness) part_lateness ;;
    fused_rms_norm) part_fused_rms_norm ;;
    gemm) part_gemm ;;
    moe) part_moe ;;
    collectives) part_collectives ;;
    moves) part_moves ;;
    channels) part_channels ;;
    sharing) part_sharing ;;
    gin) part_gin ;;
    multimem) part_multimem ;;
    multimem_software) part_multimem_software ;;
    litmus) part_litmus ;;
    soak) part_soak ;;
    sanitizer) part_sanitizer ;;
    python) part_python ;;
  esac
done
if grep -q "^$(basename "$out") " benchmarks/goals.txt; then
  scripts/goals.py "$out" >"$out/goals.md" && say "goals: $out/goals.md" || failed=1
fi
# No paths of this machine (scripts/checks/words.py).
find "$out" -name '*.log' -exec sed -i -E "s#$PWD/##g; s#(/tmp|/root|/home)/[^ :,)]*/##g" {} +
if [ "$failed" = 0 ]; then say "all commands succeeded"; else say "some commands failed, see the logs"; fi
exit "$failed"
