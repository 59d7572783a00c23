#!/usr/bin/env bash
# Starts examples with srun on two hosts, which are network namespaces of this machine, and keeps what they print: 05
# inside a host by load and store, 21 and 22 between hosts by GIN over libfabric's provider tcp;ofi_rxm.
#
#   scripts/slurm_results.sh BIN [LOG]    BIN: the folder bin of a build with the simulator
#
# Needs root, and of Debian's packages slurmctld, slurmd, slurm-client, munge and iproute2. Slurm's daemons live in
# namespaces of their own and end with this script. The exit status is non-zero when a start failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh

case ${1:-} in
  -h | --help | '') sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
bin=$(realpath "$1")
lsa=$bin/example_05_multi_process_sim
all_reduce=$bin/example_21_all_reduce_over_hosts_sim
all_to_all=$bin/example_22_gin_all_to_all_sim
log=$(realpath -m "${2:-benchmarks/results/slurm/srun.log}")
for each in "$lsa" "$all_reduce" "$all_to_all"; do
  [ -x "$each" ] || fail "$each is no program; build the target $(basename "$each")"
done
[ "$(id -u)" = 0 ] || fail "namespaces are made as root"
for tool in slurmctld slurmd srun munged ip nsenter; do
  command -v "$tool" >/dev/null || fail "no $tool: install slurmctld, slurmd, slurm-client, munge and iproute2"
done

# Again, as the first process of namespaces for mounts, network and processes: all that it leaves ends with it.
if [ "${DEVCOMM_SLURM_INSIDE:-}" != 1 ]; then
  export DEVCOMM_SLURM_INSIDE=1
  exec unshare --mount --net --uts --pid --fork --kill-child --mount-proc "$0" "$bin" "$log"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ip link set lo up
ip link add hosts type bridge
ip address add 10.77.0.1/24 dev hosts
ip link set hosts up
hostname control
{
  echo "127.0.0.1 localhost"
  echo "10.77.0.1 control"
  for host in 1 2; do echo "10.77.0.1$host node$host"; done
} >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts

head -c 128 /dev/urandom >"$work/key"
chmod 400 "$work/key"
munged --force --key-file "$work/key" --socket "$work/socket" --pid-file "$work/munged.pid" \
  --log-file "$work/munged.log" --seed-file "$work/seed" 2>"$work/munged.err"
export SLURM_CONF=$work/slurm.conf
cat >"$SLURM_CONF" <<END
ClusterName=devcomm
SlurmctldHost=control(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
StateSaveLocation=$work
SlurmctldPidFile=$work/control.pid
SlurmctldLogFile=$work/control.log
SlurmdSpoolDir=$work/%n
SlurmdPidFile=$work/%n.pid
SlurmdLogFile=$work/%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=node[1-2] CPUs=8 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES State=UP
END
slurmctld
for host in 1 2; do
  mkdir "$work/node$host"
  unshare --net --uts sh -c "hostname node$host && ip link set lo up && sleep infinity" &
  holder=$!
  until [ "$(nsenter --target "$holder" --uts hostname)" = "node$host" ]; do sleep 0.1; done
  ip link add "to_node$host" type veth peer name eth0 netns "$holder"
  ip link set "to_node$host" master hosts up
  nsenter --target "$holder" --net sh -c "ip address add 10.77.0.1$host/24 dev eth0 && ip link set eth0 up"
  nsenter --target "$holder" --net --uts slurmd
done
for ((wait = 0; wait < 100; ++wait)); do
  [ "$(sinfo --noheader --format %T 2>/dev/null)" != idle ] || break
  sleep 0.2
done

failed=0
mkdir -p "$(dirname "$log")"
{
  echo "# One process for each rank, started by srun on two hosts; between hosts by GIN over tcp;ofi_rxm"
  echo "# date:    $(date -u +'%F %T') UTC"
  echo "# machine: network namespaces of one $(uname -m) machine, simulated GPUs, $(srun --version)"
  echo "# commit:  ${DEVCOMM_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}"
} >"$log"
try() { # COMMAND...
  local status=0
  printf '\n$ %s\n' "${*//$bin\//}" >>"$log"
  timeout 120 "$@" </dev/null >>"$log" 2>&1 || status=$?
  echo "exit status: $status" >>"$log"
  [ "$status" = 0 ] || failed=1
}
try srun -N 1 -n 4 "$lsa"
try srun -N 2 --ntasks-per-node 4 "$all_to_all"
try srun -N 2 --ntasks-per-node 2 --distribution cyclic "$all_to_all" # neighbors are on different hosts
try srun -N 2 -n 4 "$all_to_all"                                     # as Slurm packs them: 3 and 1
try srun -N 2 --ntasks-per-node 2 "$all_reduce"
try srun -N 2 --ntasks-per-node 2 env DEVCOMM_LSA_SIZE=1 DEVCOMM_GIN_PAYLOAD=staged "$all_reduce"
# shellcheck disable=SC2016 # the inner shell's
two_steps='srun --exact -N 2 -n 4 "$0" & first=$!; srun --exact -N 1 -n 3 "$0"; wait $first'
try salloc -N 2 --ntasks-per-node 8 bash -c "$two_steps" "$all_to_all"
say "$(grep -c 'exit status: 0' "$log") of $(grep -c 'exit status:' "$log") starts ended well ($log)"
exit "$failed"
