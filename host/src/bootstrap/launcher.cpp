#include "bootstrap/launcher.hpp"

#include "bootstrap/launcher_values.hpp"
#include "bootstrap/launching_process.hpp"
#include "bootstrap/ports.hpp"
#include "bootstrap/slurm.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "util/interfaces.hpp"

#include <devcomm/host/error.hpp>

#include <cstdint>
#include <initializer_list>

namespace devcomm::host::detail {
namespace {

port_range ports_of(const environment& variables) { return given_ports(variables).value_or(port_range{}); }

std::optional<launched_process> read_shell(const environment& variables) {
  if (!variables("DEVCOMM_RANK") && !variables("DEVCOMM_SIZE")) return std::nullopt;
  launched_process process{placed(variables, "shell", "DEVCOMM_RANK", "DEVCOMM_SIZE"), "shell"};
  place_locally(process, variables, "DEVCOMM_LOCAL_RANK", "DEVCOMM_LOCAL_SIZE");
  if (take_given_root(process, variables)) return process;
  if (process.size > 1) {
    throw invalid_argument(
        "DEVCOMM_ROOT is not set, but DEVCOMM_RANK is; expected host:port at which rank 0 "
        "listens, the same on all ranks");
  }
  process.root = endpoint_text("127.0.0.1", port_of_job(process.job, ports_of(variables)));
  return process;
}

std::string master_host(const environment& variables) {
  const auto host = variables("MASTER_ADDR");
  if (!host) throw invalid_argument("MASTER_ADDR is not set, but RANK is; expected the host of rank 0");
  if (const std::string problem = host_problem(*host); !problem.empty()) {
    reject_launched("MASTER_ADDR", *host, "the name or address of rank 0's host; this one " + problem);
  }
  return *host;
}

std::uint16_t master_port(const environment& variables) {
  return static_cast<std::uint16_t>(launched_number(variables, "MASTER_PORT", 1, 65535));
}

/// Rank 0 that knows its host from the launcher by a loopback address only does not know by which one others come.
void listen_everywhere(launched_process& process) {
  const endpoint root = parse_endpoint(process.root, "the address of rank 0");
  if (process.rank == 0 && process.several_hosts && is_loopback(root.host))
    process.root = endpoint_text("::", root.port);
}

std::optional<launched_process> read_torchrun(const environment& variables) {
  if (!variables("RANK") || !variables("WORLD_SIZE")) return std::nullopt;
  launched_process process{placed(variables, "torchrun", "RANK", "WORLD_SIZE"), "torchrun"};
  place_locally(process, variables, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  // Not MASTER_ADDR: it may be "localhost" on rank 0's host, and a name on others.
  for (const char* const name : {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}) {
    process.job += "\n" + variables(name).value_or("");
  }
  process.several_hosts = variables("LOCAL_WORLD_SIZE") && process.local_size != process.size;
  // Otherwise rank 0 of torch.distributed listens there, if the program uses it, and only then.
  if (variables("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    process.store = endpoint_text(master_host(variables), master_port(variables));
  }
  if (take_given_root(process, variables)) return process;
  const std::string host = master_host(variables);
  const std::uint16_t taken = master_port(variables);
  const port_range ports = ports_of(variables);
  const std::uint16_t port = port_of_job(process.job, ports, taken);
  if (port == taken) {
    reject_launched("DEVCOMM_PORTS", ports.text(), "more than MASTER_PORT, where torch.distributed listens");
  }
  const bool one_host = variables("LOCAL_WORLD_SIZE") && process.local_size == process.size;
  process.root = endpoint_text(one_host ? "127.0.0.1" : host, port);
  listen_everywhere(process);
  return process;
}

/// A launcher of MPI programs.
struct mpi_launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  std::initializer_list<const char*> job;  ///< the first that is set identifies the job on its host
  const char* pass_root;                   ///< how its command line hands `DEVCOMM_ROOT` on
};

constexpr std::initializer_list<const char*> open_mpi_jobs = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                                              "OMPI_MCA_orte_hnp_uri"};
constexpr std::initializer_list<const char*> pals_jobs = {"PALS_APID"};
constexpr std::initializer_list<const char*> no_jobs = {};

constexpr mpi_launcher open_mpi{"mpirun",
                                "OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK",
                                "OMPI_COMM_WORLD_LOCAL_SIZE",
                                open_mpi_jobs,
                                "-x DEVCOMM_ROOT=host:port"};
constexpr mpi_launcher pals{"pals",
                            "PALS_RANKID",
                            "PMI_SIZE",
                            "PALS_LOCAL_RANKID",
                            "PMI_LOCAL_SIZE",
                            pals_jobs,
                            "--env DEVCOMM_ROOT=host:port"};
/// mpiexec of MPICH and of Intel MPI.
constexpr mpi_launcher hydra{
    "hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", no_jobs, "-genv DEVCOMM_ROOT host:port"};

/// Text that the ranks of one job on this host have, and others have not.
std::optional<std::string> job_on_host(const environment& variables, const mpi_launcher& from) {
  for (const char* const name : from.job) {
    auto value = variables(name);
    if (value && !value->empty()) return value;
  }
  // The daemon of `from` on this host: Hydra sets no variable that is one job's own.
  return from.job.size() == 0 ? launching_process(from.rank) : std::nullopt;
}

launched_process read_mpi(const environment& variables, const mpi_launcher& from) {
  const std::string name = from.name;
  launched_process process{placed(variables, from.name, from.rank, from.size), name};
  place_locally(process, variables, from.local_rank, from.local_size);
  if (take_given_root(process, variables)) {
    if (variables(from.local_size)) refuse_loopback_root(process);
    // Ranks of other hosts have another daemon.
    for (const char* const each : from.job) process.job += "\n" + variables(each).value_or("");
    return process;
  }
  if (process.local_size != process.size) {
    throw invalid_argument("DEVCOMM_ROOT is not set, and " + name + " started " + std::to_string(process.size) +
                           " ranks on more than one host (" + std::to_string(process.local_size) + " here); expected " +
                           from.pass_root + " of rank 0's host, or use devcomm::mpi");
  }
  auto job = job_on_host(variables, from);
  if (!job && process.size > 1) {
    std::string names;
    for (const char* const each : from.job) names += (names.empty() ? "none of " : ", ") + std::string(each);
    throw invalid_argument(
        "DEVCOMM_ROOT is not set, and " +
        (names.empty() ? "the process of " + name + " that started the ranks cannot be seen" : name + " set " + names) +
        " to tell the job; expected " + from.pass_root + ", with 127.0.0.1 for the host");
  }
  process.job += "\n" + job.value_or("");
  process.root = endpoint_text("127.0.0.1", port_of_job(process.job, ports_of(variables)));
  return process;
}

/// Whether srun itself set the variables of `from` too, as its plugins for PMI do.
bool set_by_srun(const environment& variables, const mpi_launcher& from) {
  return is_slurm_task(variables) && variables(from.rank) == variables("SLURM_PROCID") &&
         variables(from.size) == variables(slurm_size_variable(variables));
}

/// Each is a rank's own, so where one is set and no launcher was recognized, this process is no job of its own.
void refuse_unknown_launcher(const environment& variables) {
  constexpr struct {
    const char* variable;
    const char* from;
  } signs[] = {{"PALS_RANKID", "PALS"},    {"PMIX_RANK", "PMIx"},           {"PMI_RANK", "PMI"},
               {"PMI_ID", "PMI"},          {"MPI_LOCALRANKID", "Hydra"},    {"MV2_COMM_WORLD_RANK", "MVAPICH2"},
               {"FLUX_TASK_RANK", "Flux"}, {"JSM_NAMESPACE_RANK", "jsrun"}, {"ALPS_APP_PE", "ALPS"}};
  for (const auto& sign : signs) {
    if (!variables(sign.variable)) continue;
    const std::string variable = sign.variable;
    throw invalid_argument(
        variable + " is set, as by a launcher with " + sign.from +
        ", but nothing that devcomm knows gives rank, number of ranks and job; set DEVCOMM_RANK, DEVCOMM_SIZE and "
        "DEVCOMM_ROOT for each process, for example by sh -c 'DEVCOMM_RANK=$" +
        variable +
        " DEVCOMM_SIZE=4 DEVCOMM_ROOT=host:port exec program', or use devcomm::mpi in an MPI program; unset " +
        variable + " where this process is a job of its own");
  }
}

}  // namespace

std::optional<launched_process> read_launcher(const environment& variables) {
  if (auto process = read_shell(variables)) return process;
  if (auto process = read_torchrun(variables)) return process;
  if (variables(open_mpi.rank)) return read_mpi(variables, open_mpi);
  for (const mpi_launcher& each : {pals, hydra}) {
    if (variables(each.rank) && variables(each.size) && !set_by_srun(variables, each)) return read_mpi(variables, each);
  }
  if (is_slurm_task(variables)) return read_srun(variables);
  refuse_unknown_launcher(variables);
  return std::nullopt;
}

}  // namespace devcomm::host::detail

namespace devcomm::host {

std::chrono::milliseconds default_bootstrap_limit() {
  return detail::seconds_variable(detail::process_variables(), "DEVCOMM_BOOTSTRAP_TIMEOUT", {.most = 1e6},
                                  "a number of seconds above 0 and up to 1000000")
      .value_or(std::chrono::seconds(60));
}

}  // namespace devcomm::host
