#!/bin/sh
# devcomm_run_seeds.sh [OPTION...] -- PROGRAM [ARGUMENT...]
#
# Runs a simulator program once with each of several seeds (DEVCOMM_SIM_SEED). Succeeds when every run does;
# otherwise prints the first failing run's output and how to repeat it.
#
#   --seeds N          seeds 1 to N (8); DEVCOMM_TEST_SEEDS=N or FIRST-LAST in the environment overrides
#   --limit S          seconds for all runs together (60)
#   --env NAME=VALUE   for the program; may come more than once
#   --default NAME=VALUE   the same, where neither --env nor the environment sets it
#   --fails-with RE    for programs with a mistake: succeeds when runs fail, and each that does prints
#                      something that matches the extended regular expression
#   --at-least N       with --fails-with: in how many runs (1); 'all' for every run
#
# Exit status: 0, 1, 2 for wrong arguments, or 77 (skipped) when the first run's is 77.
set -eu

complain() {
  echo "devcomm_run_seeds.sh: $1" >&2
  exit 2
}
whole() { # OPTION VALUE
  case $2 in '' | *[!0-9]*) complain "$1 takes a whole number; it has '$2'" ;; esac
}
quoted() { # WORD; as a shell reads it
  case $1 in
    '' | *[!A-Za-z0-9_=/.,:+-]*) printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")" ;;
    *) printf '%s' "$1" ;;
  esac
}

seeds=8 limit=60 expected='' least=1 settings='' defaults=''
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --seeds | --limit | --env | --default | --fails-with | --at-least) [ $# -ge 2 ] || complain "nothing follows $1" ;;
    *) complain "unknown option '$1'" ;;
  esac
  case $1 in
    --seeds) whole "$1" "$2"; seeds=$2 ;;
    --limit) whole "$1" "$2"; limit=$2 ;;
    --default)
      case $2 in
        [A-Za-z_]*=*) defaults="$defaults $2" ;;
        *) complain "--default takes NAME=VALUE; it has '$2'" ;;
      esac ;;
    --fails-with) expected=$2 ;;
    --at-least) [ "$2" = all ] || whole "$1" "$2"; least=$2 ;;
    --env)
      case $2 in
        [A-Za-z_]*=*) export "${2?}"; settings="$settings$(quoted "${2%%=*}")=$(quoted "${2#*=}") " ;;
        *) complain "--env takes NAME=VALUE; it has '$2'" ;;
      esac ;;
  esac
  shift 2
done
[ $# -gt 0 ] || complain "no program follows --"

if [ -n "$expected" ]; then
  status=0
  echo | grep -Eq -- "$expected" || status=$?
  [ "$status" -le 1 ] || complain "'$expected' is no extended regular expression"
fi

first=1 last=$seeds
if [ -n "${DEVCOMM_TEST_SEEDS:-}" ]; then
  case $DEVCOMM_TEST_SEEDS in
    *-*) first=${DEVCOMM_TEST_SEEDS%%-*} last=${DEVCOMM_TEST_SEEDS#*-} ;;
    *) last=$DEVCOMM_TEST_SEEDS ;;
  esac
fi
whole DEVCOMM_TEST_SEEDS "$first"
whole DEVCOMM_TEST_SEEDS "$last"
runs=$((last - first + 1))
[ "$runs" -ge 1 ] || complain "there are no seeds from $first to $last"
[ "$least" = all ] && least=$runs

# The program is to hold all ranks, whatever launcher this runs under.
for name in DEVCOMM_RANK DEVCOMM_SIZE RANK OMPI_COMM_WORLD_RANK SLURM_PROCID; do
  if env | grep -q "^$name="; then
    unset "$name"
    settings="-u $name $settings"
  fi
done

for setting in $defaults; do
  if ! env | grep -q "^${setting%%=*}="; then export "${setting?}"; settings="$settings$(quoted "$setting") "; fi
done

# The simulator's other settings, where they are set outside.
for setting in $(env | grep -o '^DEVCOMM_SIM_[A-Z_]*=[^[:space:]]*' || true); do
  case " $settings" in *" ${setting%%=*}="*) continue ;; esac
  [ "${setting%%=*}" = DEVCOMM_SIM_SEED ] || settings="$settings$(quoted "${setting%%=*}")=$(quoted "${setting#*=}") "
done

command=''
for word in "$@"; do command="$command $(quoted "$word")"; done
repeat() { # SEED
  case $settings in -u*) printf 'env ' ;; esac
  printf '%s' "$settings"
  printf 'DEVCOMM_SIM_SEED=%s%s\n' "$1" "$command"
}

output=$(mktemp) kept=$(mktemp)
trap 'rm -f "$output" "$kept"' EXIT
begin=$(date +%s)
seed=$first
failed='' failures=0 first_failure='' first_status=0
wrong='' first_wrong='' ended_early=''
while [ "$seed" -le "$last" ]; do
  left=$((begin + limit - $(date +%s)))
  if [ "$left" -le 0 ]; then
    ended_early=$seed
    break
  fi
  status=0
  DEVCOMM_SIM_SEED=$seed timeout -k 5 "$left" "$@" >"$output" 2>&1 || status=$?
  if [ "$status" -eq 77 ] && [ "$seed" -eq "$first" ]; then
    cat "$output"
    exit 77
  fi
  if [ "$status" -gt 128 ]; then echo "ended by signal $((status - 128))" >>"$output"; fi
  if [ "$status" -ne 0 ]; then
    failures=$((failures + 1))
    failed="$failed $seed"
    fits=no
    if [ -n "$expected" ] && [ "$status" -ne 124 ] && grep -Eq -- "$expected" "$output"; then fits=yes; fi
    [ "$fits" = yes ] || wrong="$wrong $seed"
    if [ -z "$first_failure" ] || { [ -z "$first_wrong" ] && [ "$fits" = no ]; }; then
      [ "$fits" = yes ] || first_wrong=$seed
      first_failure=$seed first_status=$status
      cp "$output" "$kept"
    fi
  fi
  seed=$((seed + 1))
done
done_runs=$((seed - first))

tell() { # what the run that was kept printed, and how to see it again
  cat "$kept"
  if [ "$first_status" -eq 124 ]; then
    echo "-- seed $first_failure: did not end; stopped after the $limit s that all seeds have together"
  else
    echo "-- seed $first_failure: exit status $first_status"
  fi
}
if [ -n "$ended_early" ]; then
  echo "-- $done_runs of $runs seeds took the $limit s that all have together; the rest did not run"
fi
if [ -z "$expected" ]; then
  if [ "$failures" -eq 0 ]; then
    [ -z "$ended_early" ] || exit 1
    echo "-- $runs seeds, $first to $last: all passed"
    exit 0
  fi
  tell
  echo "-- failed with $failures of $done_runs seeds:$failed"
  echo "-- to repeat: $(repeat "$first_failure")"
  exit 1
fi

[ "$failures" -eq 0 ] || tell
echo "-- found with $failures of $done_runs seeds:$failed"
[ -z "$first_failure" ] || echo "-- to repeat: $(repeat "$first_failure")"
if [ -n "$wrong" ]; then
  echo "-- of these failed otherwise, with no text that matches '$expected':$wrong"
  exit 1
fi
if [ "$failures" -lt "$least" ]; then
  echo "-- expected at least $least"
  exit 1
fi
[ -z "$ended_early" ] || exit 1
