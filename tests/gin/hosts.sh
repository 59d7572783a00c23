#!/usr/bin/env bash
# Runs a job over the network on hosts that are network namespaces of this machine, with two ranks each.
#
#   tests/gin/hosts.sh PROGRAM HOSTS LAUNCHER CASE
#
# PROGRAM is gin_processes_test_sim. LAUNCHER: `mpirun`, which starts the ranks over all hosts, or `torchrun`, whose
# variables this script sets itself. CASE:
#
#   laws      all laws of the network hold
#   slow      the same over links that carry 50 Mbit/s, on 2 hosts
#   lossy     the same over a link that loses 1 packet in 100 and delays each by 2 ms, on 2 hosts
#   torn      all connections between 2 hosts are reset in a stream of puts
#   down      the link of a host is taken down in a stream of puts
#   stopped   a rank stops for a while, and everything goes on; then it stops for good
#   killed    a rank is killed in a stream of puts
#
# In the last four every rank has to end in time with an error that names another rank. Exits with 77, and says why, where
# namespaces cannot be made.
set -euo pipefail

limit=40  # seconds until a rank that has to end has ended; its waits end after DEVCOMM_TIMEOUT

skip() { echo "hosts.sh: skipped: $1" && exit 77; }
fail() {
  echo "hosts.sh: $1" >&2
  find "$logs" -type f -exec tail -n 30 {} + >&2
  exit 1
}

if [ $# != 4 ]; then
  sed -n '2,18s/^# \{0,1\}//p' "$0"
  exit 2
fi
program=$(realpath "$1")
hosts=$2 launcher=$3 what=$4
ranks=$((hosts * 2))
here=$(dirname "$(realpath "$0")")

# Again, as the first process of namespaces for network and processes: all that it leaves ends with it.
if [ "${GIN_HOSTS_INSIDE:-}" != 1 ]; then
  for tool in ip nsenter unshare; do
    command -v "$tool" >/dev/null || skip "there is no $tool; install iproute2 and util-linux"
  done
  [ "$launcher" != mpirun ] || command -v mpirun >/dev/null || skip "there is no mpirun; install openmpi-bin"
  said=$(unshare --net --uts --mount --pid --fork --kill-child --mount-proc ip link add hosts type bridge 2>&1) ||
    skip "network namespaces cannot be made here ($said); run it as root, in a container with CAP_NET_ADMIN and CAP_SYS_ADMIN"
  export GIN_HOSTS_INSIDE=1
  exec unshare --net --uts --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
ip link set lo up
relayed=0
case $what in lossy | torn) relayed=1 ;; esac
[ "$relayed" = 1 ] || { ip link add hosts type bridge && ip link set hosts up; }
holders=()
addresses=()
for ((host = 0; host < hosts; ++host)); do
  unshare --net --uts sleep infinity &
  holder=$!
  until [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
  address=10.79.0.$((host + 1))
  ip link add "to_host$host" type veth peer name eth0 netns "$holder"
  [ "$relayed" = 1 ] || ip link set "to_host$host" master hosts
  ip link set "to_host$host" up
  nsenter --target "$holder" --net --uts sh -c "ip link set lo up && ip link set eth0 up &&
    ip address add $address/24 dev eth0 && hostname host$host"
  if [ "$what" = slow ]; then
    nsenter --target "$holder" --net tc qdisc add dev eth0 root tbf rate 50mbit burst 64kb latency 50ms ||
      skip "the kernel has no tbf, which limits the rate of a link"
  fi
  holders+=("$holder")
  addresses+=("$address")
done
case $what in
  lossy) python3 "$here/relay.py" to_host0 to_host1 --lose 1 --delay 2 & ;;
  torn) python3 "$here/relay.py" to_host0 to_host1 --tear-when "$logs/tear" & ;;
esac

case $what in
  laws | slow | lossy) body="[laws]" timeout=20 ;;
  *) body="[stream]" timeout=4 ;;
esac
DEVCOMM_SECRET=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
export DEVCOMM_TIMEOUT=$timeout DEVCOMM_SECRET

start() { # by torchrun's variables
  local rank
  export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=2 MASTER_ADDR=${addresses[0]} MASTER_PORT=29500 TORCHELASTIC_RUN_ID=hosts
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank LOCAL_RANK=$((rank % 2)) nsenter --target "${holders[rank / 2]}" --net --uts \
      "$program" "$body" >"$logs/rank$rank" 2>&1 &
    started+=($!)
  done
}

start_by_mpirun() {
  local host list=""
  # In place of ssh, by which mpirun starts its daemons.
  # shellcheck disable=SC2016
  {
    printf '#!/bin/sh\ncase $1 in\n'
    for ((host = 0; host < hosts; ++host)); do echo "${addresses[host]}) holder=${holders[host]} ;;"; done
    printf 'esac\nshift\nexec nsenter --target "$holder" --net --uts sh -c "$*"\n'
  } >"$logs/.agent"
  chmod +x "$logs/.agent"
  for ((host = 0; host < hosts; ++host)); do list+=${list:+,}${addresses[host]}:2; done
  nsenter --target "${holders[0]}" --net --uts env DEVCOMM_ROOT="${addresses[0]}:29777" \
    mpirun --allow-run-as-root --host "$list" -n "$ranks" --mca plm_rsh_agent "$logs/.agent" \
    --mca oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames 1 --bind-to none --output-filename "$logs/mpirun" \
    -x DEVCOMM_ROOT -x DEVCOMM_TIMEOUT -x DEVCOMM_SECRET "$program" "$body" >"$logs/mpirun.log" 2>&1 &
  started+=($!)
}

started=()
if [ "$launcher" = mpirun ]; then start_by_mpirun; else start; fi

if [ "$body" = "[laws]" ]; then
  for one in "${started[@]}"; do wait "$one" || fail "a rank failed"; done
  passed=$(find "$logs" -path '*rank*' -type f -exec grep -l "All tests passed" {} + | wc -l)
  [ "$passed" = "$ranks" ] || fail "$passed of $ranks ranks passed"
  echo "$ranks ranks on $hosts hosts, by $launcher, $what: passed"
  exit 0
fi

# A stream of puts, and what happens to it.
wait_for() { # TEXT
  local end=$((SECONDS + limit))
  until [ "$(grep -l -e "$1" "$logs"/rank* | wc -l)" = "$ranks" ]; do
    ((SECONDS < end)) || fail "not every rank said '$1' within $limit s"
    sleep 0.1
  done
}
wait_for "streams"
sleep 0.5
broken=$((ranks - 1))
begin=$SECONDS
ending=("${!started[@]}")
case $what in
  torn) touch "$logs/tear" ;;
  down) ip link set "to_host$((hosts - 1))" down ;;
  killed)
    kill -KILL "${started[broken]}"
    wait "${started[broken]}" 2>/dev/null || true
    unset "ending[broken]"
    ;;
  stopped)
    kill -STOP "${started[broken]}"
    sleep 1
    kill -CONT "${started[broken]}"
    sleep 1
    for one in "${started[@]}"; do kill -0 "$one" 2>/dev/null || fail "a rank ended although it was stopped for 1 s only"; done
    begin=$SECONDS
    kill -STOP "${started[broken]}"
    unset "ending[broken]"
    ;;
  *) fail "unknown case '$what'" ;;
esac
await() { # RANK
  while kill -0 "${started[$1]}" 2>/dev/null; do
    ((SECONDS - begin < limit)) || fail "rank $1 has not ended after $limit s"
    sleep 0.1
  done
  wait "${started[$1]}" || fail "rank $1 ended with $?"
}
# A rank names another one: its peer, or one that had heard of the failure first. One at least names who broke.
named_cause=0
check_end() { # RANK
  local said cause=$broken
  said=$(grep -a "^rank $1 ended:" "$logs/rank$1") || fail "rank $1 did not say why it ended"
  echo "$said"
  said=${said#*): }
  said=${said#rank "$1": }
  [[ $said =~ rank\ [0-9] ]] || fail "rank $1 names no other rank"
  case $what in
    torn | down) cause=$(seq 0 $((ranks - 1)) | grep -vx -e $(($1 / 2 * 2)) -e $(($1 / 2 * 2 + 1)) | paste -sd '|') ;;
  esac
  if [[ $said =~ rank\ ($cause)([^0-9]|$) ]]; then named_cause=1; fi
}
for rank in "${ending[@]}"; do await "$rank" && check_end "$rank"; done
echo "$ranks ranks on $hosts hosts, $what: all ended within $((SECONDS - begin)) s"
[ "$named_cause" = 1 ] || fail "no rank names who broke"
if [ "$what" = stopped ]; then
  begin=$SECONDS
  kill -CONT "${started[broken]}"
  await "$broken"
  check_end "$broken"
fi
