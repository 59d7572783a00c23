#!/usr/bin/env bash
# scripts/gpu_results.sh on multimem: what it runs with a switch, what it refuses and says, and its part in software.
# The GPUs and their devcomm-perf are simulated, and sizes are small.
# usage: multimem_results.sh PROGRAM
set -uo pipefail
program=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset DEVCOMM_NVLS_ENABLE NCCL_NVLS_ENABLE DEVCOMM_SIM_MULTICAST
fail() {
  echo "$1" >&2
  exit 1
}

mkdir "$folder/bin"
printf '#!/bin/sh\necho "NVIDIA X100"\necho "NVIDIA X100"\n' >"$folder/bin/nvidia-smi"
# Runs small sizes without NCCL, and adds rows of 1 MiB with the times that the test gives.
cat >"$folder/bin/devcomm-perf_gpu" <<'END'
#!/usr/bin/env bash
arguments=() json=''
echo "NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE-none} $*" >>"$COMMANDS"
while [ $# -gt 0 ]; do
  case $1 in
    -b) arguments+=(-b 512) && shift 2 ;;
    -e) arguments+=(-e 512) && shift 2 ;;
    --compare) shift 2 ;;
    --json) json=$2 && arguments+=("$1" "$2") && shift 2 ;;
    *) arguments+=("$1") && shift ;;
  esac
done
if [ -n "${ROWS-}" ]; then
  [ -z "$json" ] || cp "$ROWS" "$json" || exit
else
  "$PROGRAM" "${arguments[@]}" --launches 1 --replays 1 || exit
fi
[ -n "$json" ] || exit 0
row() { # ALGORITHM MICROSECONDS
  sed -n "/\"algo\": \"$1\"/{s/\"bytes\": [0-9]*/\"bytes\": 1048576/;s/\"us_median\": [0-9.]*/\"us_median\": $2/;p;q}" "$json"
}
{ row two_shot_zero_copy 10 && row two_shot_software_multimem "$SOFTWARE_US"; } >"$json.more"
cat "$json.more" >>"$json" && rm "$json.more"
END
chmod +x "$folder"/bin/*
mkdir -p "$folder/python/matplotlib" # pictures are another test's
echo 'raise ImportError' >"$folder/python/matplotlib/__init__.py"

results() { # EXPECTED_STATUS PART [NAME=VALUE...]
  local expected=$1 part=$2 status=0
  shift 2
  rm -rf "$folder/out" && : >"$folder/commands"
  output=$(env PATH="$folder/bin:$PATH" PYTHONPATH="$folder/python" PROGRAM="$program" COMMANDS="$folder/commands" SOFTWARE_US=10.9 "$@" \
    scripts/gpu_results.sh --bin "$folder/bin" --out "$folder/out" --only "$part" 2>&1) || status=$?
  echo "$output"
  [[ $status == "$expected" ]] || fail "part $part with $* ended with $status, not $expected: $(cat "$folder"/out/*.log)"
}
says() { # PATTERN
  grep -Eq -- "$1" <<<"$output" || fail "nothing says: $1"
}
ran() { # PATTERN
  grep -Eq -- "$1" "$folder/commands" || fail "no command is: $1, but $(cat "$folder/commands")"
}
has_rows() { # FILE ALGORITHM...
  local file=$folder/out/$1 algorithm
  shift
  for algorithm in "$@"; do
    grep -Eq "\"impl\": \"devcomm\", \"algo\": \"$algorithm\", .*\"wrong\": 0}$" "$file" || fail "$file has no row of $algorithm"
  done
}

for program_of in example_14_multimem_all_reduce example_19_multimem_rms_norm benchmark_lsa_barrier; do
  printf '#!/bin/sh\necho "%s $*" >>"$COMMANDS"\n' "$program_of" >"$folder/bin/${program_of}_gpu"
done
chmod +x "$folder"/bin/*

for forbidden in NCCL_NVLS_ENABLE={0,00,off,} DEVCOMM_NVLS_ENABLE={0,00,off,}; do
  results 1 multimem "$forbidden"
  value=${forbidden#*=}
  says "^refused: ${forbidden%%=*} is ${value:-empty}, so nothing here may use multicast$"
  [[ ! -s $folder/commands && ! -e $folder/out ]] || fail "something ran although $forbidden: $(cat "$folder/commands")"
done
results 1 multimem DEVCOMM_SIM_MULTICAST=none
says '^refused: no multicast: .'
[[ $(wc -l <"$folder/commands") == 1 ]] || fail "more than a look for multicast ran where there is none"

results 1 no_part
says "unknown part 'no_part'; the parts are: .* gin .* multimem$"

results 0 multimem
ran '^example_14_multimem_all_reduce'
ran '^example_19_multimem_rms_norm'
ran '^benchmark_lsa_barrier --compare multimem$'
ran '^NCCL_NVLS_ENABLE=none all_reduce -n 2 -b 1K -e 256M .*--compare nccl'
has_rows all_reduce_multimem_x2.jsonl one_shot_multimem two_shot_multimem two_shot_zero_copy
for operation in reduce_scatter all_gather broadcast; do
  ran "^NCCL_NVLS_ENABLE=none $operation -n 2 -b 1K -e 256M .*--compare nccl"
  ran "^NCCL_NVLS_ENABLE=none $operation -n 2 .*--place in$"
  has_rows "${operation}_multimem_x2.jsonl" multimem zero_copy
done

results 0 multimem_software NCCL_NVLS_ENABLE=0
says '1048576 bytes: software multimem 10.90 us, two_shot_zero_copy 10.00 us: 1.090$'
if grep -v '^NCCL_NVLS_ENABLE=0 ' "$folder/commands"; then fail "NCCL may use multicast in software's part"; fi
has_rows all_reduce_software_multimem_x2.jsonl one_shot_software_multimem two_shot_software_multimem two_shot_zero_copy
for operation in reduce_scatter all_gather broadcast; do
  has_rows "${operation}_software_multimem_x2.jsonl" software_multimem zero_copy
done
sed '/"bytes": 1048576/d' "$folder/out/all_reduce_software_multimem_x2.jsonl" >"$folder/rows.jsonl"
results 1 multimem_software NCCL_NVLS_ENABLE=0 SOFTWARE_US=11.1 ROWS="$folder/rows.jsonl"
says ': 1.110 is more than a tenth longer$'
