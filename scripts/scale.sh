#!/usr/bin/env bash
# Starts jobs of many processes with simulated GPUs on one machine, and prints how long each step of start-up took and
# how many bytes rank 0 sent.
#
#   scripts/scale.sh [-h HOSTS] PROGRAM [RANKS...]    PROGRAM: bin/scale_job of a build folder; RANKS: 1024
#
# HOSTS (8) is the number of hosts, which are network namespaces that share a bridge; that needs root and iproute2. With
# 1 all ranks are on this host, and nothing is needed. The variables of devcomm hold for every rank, for example
# DEVCOMM_LSA_SIZE and DEVCOMM_SIM_DEVICES; with SCALE_JOB_CONTEXTS=1 device communicators have contexts. The exit status
# is non-zero when a job failed.
set -euo pipefail

hosts=8
if [ "${1:-}" = -h ] && [[ ${2:-} =~ ^[1-9][0-9]*$ ]]; then
  hosts=$2
  shift 2
fi
if [ $# = 0 ] || [[ $1 == -* ]]; then
  sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2
fi
program=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- 1024
[ -x "$program" ] || { echo "scale.sh: $program is no program; build the target scale_job" >&2 && exit 1; }

if [ "$hosts" = 1 ]; then
  for ranks; do "$program" "$ranks" 127.0.0.1:29876 && echo; done
  exit
fi
[ "$(id -u)" = 0 ] || { echo "scale.sh: namespaces are made as root; or use -h 1" >&2 && exit 1; }
for tool in ip nsenter unshare; do
  command -v "$tool" >/dev/null || { echo "scale.sh: no $tool: install iproute2 and util-linux" >&2 && exit 1; }
done

# Again, as the first process of namespaces for network and processes: all that it leaves ends with it.
if [ "${SCALE_INSIDE:-}" != 1 ]; then
  export SCALE_INSIDE=1
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" -h "$hosts" "$program" "$@"
fi
ip link set lo up
ip link add hosts type bridge
ip link set hosts up
spaces=()
for ((host = 1; host <= hosts; ++host)); do
  unshare --net sleep infinity &
  holder=$!
  until [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
  ip link add "to_host$host" type veth peer name eth0 netns "$holder"
  ip link set "to_host$host" master hosts up
  nsenter --target "$holder" --net sh -c "ip link set lo up && ip link set eth0 up &&
    ip address add 10.78.$((host / 250)).$((host % 250 + 1))/16 dev eth0"
  spaces+=("/proc/$holder/ns/net")
done
for ranks; do "$program" "$ranks" 10.78.0.2:29876 "${spaces[@]}" && echo; done
