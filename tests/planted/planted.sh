#!/usr/bin/env bash
# Runs planted bugs in the modes of modes.txt, and checks for what bugs.txt says.
#
#   planted.sh check PROGRAMS BUG [SEEDS]   fails unless each mode that is listed finds the bug, and no mode
#                                           says anything about the kernel without it (4 seeds)
#   planted.sh table PROGRAMS [SEEDS [BUG...]]   writes docs/planted_bugs.md's table and reports (20 seeds)
#
# PROGRAMS is the folder of planted_none and the others.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
runner=$here/../../cmake/devcomm_run_seeds.sh
programs=$2
# A bug may end in deadlock while another rank's host waits with a time limit: be told soon.
export DEVCOMM_SIM_GRACE_MS=500
export DEVCOMM_SIM_LEAK_EXIT=67
unset DEVCOMM_TEST_SEEDS
unset NCCL_NVLS_ENABLE DEVCOMM_NVLS_ENABLE  # simulated switches are nobody else's

mapfile -t modes < <(sed -n 's/^\([a-z]\)/\1/p' "$here/modes.txt")
mode_names() { local mode; for mode in "${modes[@]}"; do echo "${mode%% *}"; done; }
mode_line() { local mode; for mode in "${modes[@]}"; do [ "${mode%% *}" != "$1" ] || echo "$mode"; done; }
bug_names() { sed -n 's/^\([a-z_]*\): .*/\1/p' "$here/bugs.txt"; }
kind_of() { sed -n "s/^$1: //p" "$here/bugs.txt"; } # BUG
# Lines 'MODE COUNT TEXT' of a bug.
expectations() { awk -v bug="$1:" '$1 == bug { inside = 1; next } /^[a-z]/ { inside = 0 } inside && NF { sub(/^ +/, ""); print }' "$here/bugs.txt"; }

# run MODE SEEDS [OPTION...] -- BUG [right]
run() {
  local name=$1 seeds=$2 mode program options=() setting
  shift 2
  for mode in "${modes[@]}"; do
    read -r mode program setting <<<"$mode"
    [ "$mode" = "$name" ] && break
  done
  [ "$mode" = "$name" ] || { echo "no mode '$name' in modes.txt"; return 2; }
  for setting in $setting; do options+=(--env "$setting"); done
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  "$runner" --seeds "$seeds" --limit 120 "${options[@]}" -- "$programs/$program" "$@" 2>&1
}

check() { # BUG SEEDS
  local bug=$1 seeds=$2 failed=0 mode least text found=0
  while read -r mode least text; do
    found=1
    local runs=$seeds
    case $least in */*) runs=${least#*/} least=${least%/*} ;; esac
    echo "== $bug, $mode:"
    run "$mode" "$runs" --fails-with "$text" --at-least "$least" -- "$bug" || failed=1
  done < <(expectations "$bug")
  [ "$found" = 1 ] || { echo "bugs.txt has no mode that finds $bug"; failed=1; }
  for mode in $(mode_names); do
    echo "== $bug without its mistake, $mode:"
    run "$mode" "$seeds" -- "$bug" right || failed=1
  done
  return "$failed"
}

# What the first run that failed said, without the runner's own lines, addresses and the folder of the sources.
report() { # OUTPUT
  grep -v '^-- ' <<<"$1" | grep -vE '^=+$|^$' | sed -E "s#$(cd "$here/../.." && pwd)/##g; s#build/[a-z-]+/\.\./\.\./##g; s/ \(0x[0-9a-f]+\)//; s/^==[0-9]+==//" |
    sed -E 's/\(anonymous namespace\):://g; s/\([^()]*device_comm[^()]*\)/(...)/g' | cut -c1-300
}

table() { # SEEDS [BUG...]
  local seeds=$1 bug mode output count row details='' said
  shift
  [ $# -gt 0 ] || mapfile -t bugs < <(bug_names)
  local bugs=("${@:-${bugs[@]}}")
  echo "| kind | bug | $(mode_names | paste -sd '|' | sed 's/|/ | /g') |"
  echo "|---|---|$(mode_names | sed 's/.*/---/' | paste -sd '|')|"
  for bug in "${bugs[@]}"; do
    row="| $(kind_of "$bug" | sed 's/, /: /') | [$bug](#$bug) |"
    details+=$'\n'"### $bug"$'\n'
    said=
    for mode in $(mode_names); do
      output=$(run "$mode" "$seeds" --fails-with . -- "$bug")
      count=$(sed -n 's/^-- found with \([0-9]*\) of .*/\1/p' <<<"$output")
      case $count in
        0) row+=" – |" ;;
        *)
          row+=" $count |"
          local text
          # Where races do not count, their reports are not what found the bug.
          if [[ $(mode_line "$mode") == *DEVCOMM_SIM_RACE_EXIT=0* ]]; then
            output=$(grep -vE 'data race|^  (read|write|atomic|not ordered|one of them)|^      at ' <<<"$output")
          fi
          text=$(report "$output" | head -n 8)
          # Of a sanitizer's report, what was done where, and the line that the simulator adds.
          if [[ $output == *"ERROR: "*Sanitizer* ]]; then
            text=$(report "$output" | grep -E '^ERROR: |^(READ|WRITE)|^The signal|leak of|/planted/[a-z_]+\.cu|^devcomm' |
              grep -vE 'planted\.cu:|^ *#[0-9]+ .* std::' | head -n 8)
          fi
          # Several modes that say the same are told once.
          local start
          start=$(head -n 1 <<<"$text" | sed -E 's/[0-9]+//g' | cut -c1-60)
          if [[ $said != *"|$start|"* ]]; then
            said+="|$start|"
            details+=$'\n'"$mode:"$'\n```\n'"$text"$'\n```\n'
          fi ;;
      esac
    done
    echo "$row"
  done
  printf '%s' "$details"
}

case ${1:-} in
  check) check "$3" "${4:-4}" ;;
  table) table "${3:-20}" "${@:4}" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
