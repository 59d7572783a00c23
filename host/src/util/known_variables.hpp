/// \file known_variables.hpp
/// All environment variables of devcomm: what `process_variables` knows, and what docs/environment.md lists.
#pragma once

namespace devcomm::host::detail {

struct known_variable {
  const char* name;
  const char* user;  ///< which part reads it
  const char* meaning;
};

// scripts/checks/variables.py reads these lines.
inline constexpr known_variable known_variables[] = {
    {"DEVCOMM_RANK", "start-up", "rank of this process, where no launcher gives it"},
    {"DEVCOMM_SIZE", "start-up", "number of ranks, with `DEVCOMM_RANK`"},
    {"DEVCOMM_LOCAL_RANK", "start-up", "rank among the processes of this host, with `DEVCOMM_RANK`"},
    {"DEVCOMM_LOCAL_SIZE", "start-up", "number of ranks on this host, with `DEVCOMM_RANK`"},
    {"DEVCOMM_ROOT", "start-up", "host:port at which rank 0 listens; the same on all ranks"},
    {"DEVCOMM_SECRET", "start-up", "32 hexadecimal digits that admit a process to the job; the same on all ranks"},
    {"DEVCOMM_PORTS", "start-up", "first and last port at which rank 0 of a job or of a child may listen: 30000-30100"},
    {"DEVCOMM_BOOTSTRAP_TIMEOUT", "start-up", "seconds for every blocking step on the host"},
    {"DEVCOMM_PEER_TIMEOUT", "start-up",
     "seconds after which a host that answers nothing is taken for gone; 30 by default"},
    {"DEVCOMM_ADDRESS", "start-up",
     "where `split` across hosts listens; else at `DEVCOMM_INTERFACE`, rank 0's connection, the only interface"},
    {"DEVCOMM_INTERFACE", "start-up", "network interface whose address `split` across hosts takes: ib0"},
    {"DEVCOMM_RANKS", "host library", "ranks (threads) that `run_ranks` makes when no launcher did, up to 1024"},
    {"DEVCOMM_LSA_SIZE", "host library", "largest LSA team"},
    {"DEVCOMM_TIMEOUT", "host library",
     "seconds that a kernel's wait without a deadline of its own may take; the same on all ranks"},
    {"DEVCOMM_CHECK_LAUNCH", "host library", "1: compare launches across ranks; 0: do not"},
    {"DEVCOMM_MEMORY_HANDLE", "host library", "`file_descriptor` or `fabric`"},
    {"DEVCOMM_NVLINK_DOMAIN", "host library",
     "name of the NVLink domain that this host's GPUs share with other hosts', alike on all; else NVML reports it"},
    {"DEVCOMM_NVLS_ENABLE", "host library",
     "0 or 1; 0: multicast is not available, as where `NCCL_NVLS_ENABLE` is no number above 0"},
    {"DEVCOMM_LL128_ENABLE", "host library", "0 or 1; 0: LL128 mailboxes are not available"},
    {"DEVCOMM_ALL_REDUCE_PLAN", "host library", "file with the measured times that `plan_all_reduce` uses"},
    {"DEVCOMM_GIN_PROVIDER", "host library",
     "libfabric's provider for GIN, as `tcp;ofi_rxm`; else between hosts that of all ranks' network cards, if any"},
    {"DEVCOMM_GIN_PAYLOAD", "host library",
     "`staged`: GIN's payload goes through pinned host memory over libfabric; `direct`: it must not"},
    {"DEVCOMM_GIN_CARD", "host library",
     "network card of GIN, as libfabric names its domain: `mlx5_0`, `eth0`; else the nearest to the rank's device"},
    {"DEVCOMM_GIN_PROXIES", "host library",
     "threads that serve a communicator's contexts over libfabric; else 1 to 4, by processors"},
    {"DEVCOMM_GIN_CPUS", "host library",
     "processors of GIN's threads: `0-3,8`, or `device` for those near the rank's device; else any"},
    {"DEVCOMM_WATCHDOG_AFTER", "watchdog", "seconds that a wait lasts before it is reported"},
    {"DEVCOMM_WATCHDOG_SIGNAL", "watchdog", "1: report on SIGUSR1 too"},
    {"DEVCOMM_SIM_SEED", "simulator", "which schedule runs"},
    {"DEVCOMM_SIM_SCHEDULE", "simulator", "kind of schedule"},
    {"DEVCOMM_SIM_STORE_DELAY", "simulator", "steps for which stores stay in a store buffer"},
    {"DEVCOMM_SIM_CHECK_SIDES", "simulator",
     "1: the race detector reports hosts that access device memory, and kernels that access the host's heap"},
    {"DEVCOMM_SIM_DEVICES", "simulator", "number of GPUs, which more ranks than that share"},
    {"DEVCOMM_SIM_ARCH", "simulator", "compute capability of the GPUs: 90 for sm_90"},
    {"DEVCOMM_SIM_MULTIPROCESSORS", "simulator", "multiprocessors of a GPU"},
    {"DEVCOMM_SIM_MULTICAST", "simulator",
     "whether the GPUs have an NVLink switch, and in which order it reaches members"},
    {"DEVCOMM_SIM_PEERS", "simulator", "which GPUs reach each other: `0-2/3-6` is two groups"},
    {"DEVCOMM_SIM_STACK", "simulator", "bytes of a thread's stack"},
    {"DEVCOMM_SIM_WATCHDOG_MS", "simulator", "how long a block may run without reaching a preemption point"},
    {"DEVCOMM_SIM_GRACE_MS", "simulator", "how long other threads of the program may hold up the report of a deadlock"},
    {"DEVCOMM_SIM_BACKGROUND_MS", "simulator", "when work starts that no host thread waits for"},
    {"DEVCOMM_SIM_LEAK_EXIT", "simulator",
     "exit status of a program that leaves windows or device communicators alive"},
    {"DEVCOMM_SIM_RACE_EXIT", "simulator", "exit status of a program with race reports"},
    {"DEVCOMM_SIM_DEADLOCK_PICTURE", "simulator", "file for a picture of a deadlock"},
    {"DEVCOMM_SIM_RECORD", "simulator", "file for the choices of a run"},
    {"DEVCOMM_SIM_REPLAY", "simulator", "file with choices to repeat"},
    {"DEVCOMM_SIM_REPLAY_REPORT", "simulator", "file for the repeated switches"},
    {"DEVCOMM_JSON", "benchmarks", "file for the rows of `benchmark_lsa_barrier`"},
    {"DEVCOMM_NCCL_LIBRARY", "benchmarks", "NCCL to compare with"},
    {"DEVCOMM_RUNS", "scripts", "runs of a script of measurements"},
    {"DEVCOMM_COMMIT", "scripts", "commit that results are of"},
    {"DEVCOMM_CUDA", "scripts", "0: set up without the CUDA toolkit"},
    {"DEVCOMM_SANITIZER_TOOLS", "scripts", "tools of compute-sanitizer that a script runs"},
    {"DEVCOMM_SLURM_INSIDE", "scripts", "set by a script for itself"},
    {"DEVCOMM_ADDRESS_BUILDS", "scripts",
     "compilers and build types, as `g++:Release`, with which the stage address runs the examples too"},
    {"DEVCOMM_MUTANTS", "scripts", "which mutants the stage mutation runs: all, or the seed of a sample"},
    {"DEVCOMM_TEST_FEW", "tests", "leave out what takes long under compute-sanitizer"},
    {"DEVCOMM_TEST_SEEDS", "tests", "number of seeds"},
};

}  // namespace devcomm::host::detail
