#!/usr/bin/env bash
# scripts/plot_perf.py draws measured rows and names their lines; refuses what is no row. Skipped without matplotlib.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
. scripts/lib/setup.sh
python=$(python_with_matplotlib) || { echo "skipped: python3 has no matplotlib" && exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
plot() { # EXPECTED_STATUS [ARGUMENT...]
  local expected=$1 status=0
  shift
  output=$("$python" scripts/plot_perf.py "$@" 2>&1) || status=$?
  echo "$output"
  [[ $status == "$expected" ]] || fail "plot_perf.py $* ended with $status, not $expected"
}
names() { # FILE TEXT COUNT, the times that the picture has exactly this text
  [[ $(grep -cF ">$2</text>" "$folder/$1") == "$3" ]] || fail "$1 has not $3 times: $2"
}
says() { # TEXT
  grep -qF -- "$1" <<<"$output" || fail "nothing says: $1"
}

measured=benchmarks/results/2xH200/all_reduce_h200x2.jsonl
plot 0 "$measured" --out "$folder/measured.svg"
names measured.svg 'all_reduce, bf16, 2 ranks: microseconds' 1
names measured.svg 'all_reduce, bf16, 2 ranks: bus bandwidth, GB/s' 1
for line in 'devcomm one_shot lamport' 'devcomm one_shot lamport, dependent launch' 'nccl plain' 'nccl window'; do
  names measured.svg "$line" 1
done
names measured.svg 64K 2
# Every algorithm in the rows, with its protocol.
while read -r algorithm; do names measured.svg "devcomm $algorithm" 1; done < <(
  sed -n 's/.*"impl": "devcomm", "algo": "\([^"]*\)", "protocol": "\([^"]*\)".*"pdl": false.*/\1 \2/p' "$measured" | sort -u)

# Lateness, launches one by one, and what differs between rows are in the names; one size is enough.
row() { # RANKS GRAPH LATE JITTER
  echo "{\"op\": \"all_reduce\", \"impl\": \"devcomm\", \"algo\": \"one_shot\", \"protocol\": \"ll\", \"ranks\": $1," \
    "\"bytes\": 1024, \"dtype\": \"bf16\", \"in_place\": false, \"graph\": $2, \"pdl\": false, \"us_median\": 9.0," \
    "\"late_us\": $3, \"jitter_us\": $4, \"busbw\": 0.1, \"wrong\": 0}"
}
{ row 2 true 100 0; row 2 false 0 20; row 3 true 0 0; } >"$folder/rows.jsonl"
plot 0 "$folder/rows.jsonl" --out "$folder/late.svg"
names late.svg 'all_reduce, bf16: microseconds' 1
names late.svg 'devcomm one_shot ll, 100 us late, 2 ranks' 1
names late.svg 'devcomm one_shot ll, launched one by one, jitter of 20 us, 2 ranks' 1
names late.svg 'devcomm one_shot ll, 3 ranks' 1
plot 0 "$folder/rows.jsonl" --out "$folder/again.svg"
cmp "$folder/late.svg" "$folder/again.svg" || fail "the same rows give different pictures"
sed -n 1p "$folder/rows.jsonl" >"$folder/row.jsonl"
plot 0 "$folder/row.jsonl" "$measured" --out "$folder/titled.svg" --title 'Two files'
names titled.svg 'Two files: microseconds' 1
names titled.svg 'devcomm one_shot ll, 100 us late' 1
plot 0 "$folder/row.jsonl" --out "$folder/rows.png"
[[ $(head -c 4 "$folder/rows.png" | tail -c 3) == PNG ]] || fail "rows.png is no PNG"

: >"$folder/empty.jsonl"
plot 1 "$folder/empty.jsonl" --out "$folder/none.svg"
says 'no rows to draw'
{ row 2 true 0 0; echo '{"op": "all_reduce"}'; } >"$folder/short.jsonl"
plot 1 "$folder/short.jsonl" --out "$folder/none.svg"
says "short.jsonl:2: no row of devcomm-perf --json"
plot 1 "$folder/absent.jsonl" --out "$folder/none.svg"
says 'absent.jsonl'
plot 2 "$measured" --out "$folder/none.txt"
says 'ends in .svg or .png'
[[ ! -e $folder/none.svg ]] || fail "a picture of no rows"
