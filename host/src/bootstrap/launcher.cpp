#include "bootstrap/launcher.hpp"

#include "bootstrap/tcp/socket.hpp"
#include "util/hex.hpp"
#include "util/sha256.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <initializer_list>

namespace devcomm::host::detail {
namespace {

constexpr int most_ranks = 1 << 20;

[[noreturn]] void reject(const std::string& variable, std::string_view value, const std::string& expected) {
  throw invalid_argument(variable + " is \"" + std::string(value.substr(0, 200)) + "\"; expected " + expected);
}

std::optional<int> decimal(std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || text.front() == '-') return std::nullopt;
  return value;
}

int number(const environment& variables, const std::string& name, int least, int most) {
  const auto value = variables(name);
  if (!value) {
    throw invalid_argument(name + " is not set, but variables of the same launcher are; expected a number from " +
                           std::to_string(least) + " to " + std::to_string(most));
  }
  const auto parsed = decimal(*value);
  if (!parsed || *parsed < least || *parsed > most) {
    reject(name, *value, "a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *parsed;
}

/// The first of `names` that is set to something.
std::optional<std::string> first_set(const environment& variables, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    auto value = variables(name);
    if (value && !value->empty()) return value;
  }
  return std::nullopt;
}

/// Rank and size from two variables that belong together.
process_environment placed(const environment& variables, const char* launcher, const char* rank, const char* size) {
  process_environment process;
  process.launcher = launcher;
  process.size = number(variables, size, 1, most_ranks);
  process.rank = number(variables, rank, 0, process.size - 1);
  return process;
}

/// Local rank and size from two variables; where they are missing, the process counts as the only one of its host.
void place_locally(process_environment& process, const environment& variables, const char* rank, const char* size) {
  if (variables(size)) process.local_size = number(variables, size, 1, process.size);
  if (!variables(rank)) return;
  const int most = variables(size) ? process.local_size - 1 : process.size - 1;
  process.local_rank = number(variables, rank, 0, most);
  process.local_size = std::max(process.local_size, process.local_rank + 1);
}

/// `DEVCOMM_ROOT` where set.
bool take_given_root(process_environment& process, const environment& variables) {
  const auto value = variables("DEVCOMM_ROOT");
  if (!value) return false;
  const endpoint where = parse_endpoint(*value, "DEVCOMM_ROOT");
  process.root = endpoint_text(where.host, where.port);
  return true;
}

/// Variables that all ranks of a job share and other jobs do not, as far as the launcher sets any. The size is not
/// among them: ranks that disagree on it must meet, to be told.
std::string job_text(const environment& variables, const process_environment& process) {
  std::string job = process.launcher;
  const auto add = [&](std::initializer_list<const char*> names) {
    for (const char* const name : names) job += "\n" + variables(name).value_or("");
  };
  if (process.launcher == "torchrun") add({"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"});
  if (process.launcher == "mpirun") {
    job += "\n" +
           first_set(variables, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}).value_or("");
  }
  if (process.launcher == "srun") add({"SLURM_JOB_ID", "SLURM_STEP_ID"});
  return job;
}

std::optional<process_environment> read_shell(const environment& variables) {
  if (!variables("DEVCOMM_RANK") && !variables("DEVCOMM_SIZE")) return std::nullopt;
  process_environment process = placed(variables, "shell", "DEVCOMM_RANK", "DEVCOMM_SIZE");
  place_locally(process, variables, "DEVCOMM_LOCAL_RANK", "DEVCOMM_LOCAL_SIZE");
  if (take_given_root(process, variables)) return process;
  if (process.size > 1) {
    throw invalid_argument(
        "DEVCOMM_ROOT is not set, but DEVCOMM_RANK is; expected host:port at which rank 0 "
        "listens, the same on all ranks");
  }
  process.root = endpoint_text("127.0.0.1", port_of_job(job_text(variables, process)));
  return process;
}

std::optional<process_environment> read_torchrun(const environment& variables) {
  if (!variables("RANK") || !variables("WORLD_SIZE")) return std::nullopt;
  process_environment process = placed(variables, "torchrun", "RANK", "WORLD_SIZE");
  place_locally(process, variables, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  if (take_given_root(process, variables)) return process;
  const auto host = variables("MASTER_ADDR");
  if (!host) throw invalid_argument("MASTER_ADDR is not set, but RANK is; expected the host of rank 0");
  if (const std::string problem = host_problem(*host); !problem.empty()) {
    reject("MASTER_ADDR", *host, "the name or address of rank 0's host; this one " + problem);
  }
  const int taken = number(variables, "MASTER_PORT", 1, 65535);
  // torch.distributed listens at MASTER_PORT itself.
  const std::string job = job_text(variables, process);
  const std::uint16_t port = port_of_job(job);
  process.root = endpoint_text(*host, port == taken ? port_of_job(job + "\nagain") : port);
  return process;
}

std::optional<process_environment> read_mpirun(const environment& variables) {
  if (!variables("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  process_environment process = placed(variables, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  place_locally(process, variables, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (take_given_root(process, variables)) return process;
  if (process.local_size != process.size) {
    throw invalid_argument("DEVCOMM_ROOT is not set, and mpirun started " + std::to_string(process.size) +
                           " ranks on more than one host (" + std::to_string(process.local_size) +
                           " here); expected -x DEVCOMM_ROOT=host:port of rank 0's host, or use devcomm::mpi");
  }
  if (process.size > 1 &&
      !first_set(variables, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"})) {
    throw invalid_argument(
        "DEVCOMM_ROOT is not set, and mpirun set none of PMIX_NAMESPACE, "
        "OMPI_MCA_ess_base_jobid and OMPI_MCA_orte_hnp_uri to tell the job; expected "
        "-x DEVCOMM_ROOT=127.0.0.1:port");
  }
  process.root = endpoint_text("127.0.0.1", port_of_job(job_text(variables, process)));
  return process;
}

/// Number of ranks on this node, from Slurm's list for all nodes or its number per node.
void place_in_step(process_environment& process, const environment& variables) {
  if (const auto list = variables("SLURM_STEP_TASKS_PER_NODE")) {
    const std::vector<int> tasks = tasks_per_node(*list, "SLURM_STEP_TASKS_PER_NODE");
    const int nodes = static_cast<int>(tasks.size());
    const int node = nodes == 1 && !variables("SLURM_NODEID") ? 0 : number(variables, "SLURM_NODEID", 0, nodes - 1);
    process.local_size = std::min(tasks[static_cast<std::size_t>(node)], process.size);
  } else if (variables("SLURM_NTASKS_PER_NODE")) {
    process.local_size = std::min(number(variables, "SLURM_NTASKS_PER_NODE", 1, most_ranks), process.size);
  } else {
    process.local_size = process.size;
  }
  if (variables("SLURM_LOCALID")) {
    process.local_rank = number(variables, "SLURM_LOCALID", 0, process.local_size - 1);
  }
}

std::optional<process_environment> read_srun(const environment& variables) {
  // The script of sbatch has a SLURM_PROCID too, but is no step.
  if (!variables("SLURM_PROCID") || !variables("SLURM_STEP_ID")) return std::nullopt;
  const bool step = variables("SLURM_STEP_NUM_TASKS").has_value();
  process_environment process =
      placed(variables, "srun", "SLURM_PROCID", step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  place_in_step(process, variables);
  if (take_given_root(process, variables)) return process;

  const std::uint16_t port = port_of_job(job_text(variables, process));
  for (const char* const name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto list = variables(name);
    if (!list) continue;
    const std::string node = first_node(*list, name);
    process.root = endpoint_text(single_node(*list) ? "127.0.0.1" : node, port);
    return process;
  }
  const auto host = variables("SLURM_LAUNCH_NODE_IPADDR");
  if (!host) {
    throw invalid_argument(
        "DEVCOMM_ROOT is not set, and neither is SLURM_STEP_NODELIST; expected host:port at "
        "which rank 0 listens");
  }
  if (const std::string problem = host_problem(*host); !problem.empty()) {
    reject("SLURM_LAUNCH_NODE_IPADDR", *host, "the address of rank 0's node; this one " + problem);
  }
  process.root = endpoint_text(*host, port);
  return process;
}

}  // namespace

std::optional<process_environment> read_launcher(const environment& variables) {
  for (const auto& read : {read_shell, read_torchrun, read_mpirun, read_srun}) {
    if (auto process = read(variables)) return process;
  }
  return std::nullopt;
}

job_secret launcher_secret(const environment& variables, const process_environment& process) {
  job_secret secret;
  if (const auto given = variables("DEVCOMM_SECRET")) {
    if (!from_hex(*given, secret)) {
      throw invalid_argument("DEVCOMM_SECRET has " + std::to_string(given->size()) +
                             " characters that are not 32 hexadecimal digits; expected the output of, for example, "
                             "\"openssl rand -hex 16\", the same on all ranks");
    }
    return secret;
  }
  const std::string text = "devcomm secret\n" + job_text(variables, process) + "\n" + process.root;
  const digest hash = sha256::of(bytes_of(text));
  std::memcpy(secret.data(), hash.data(), secret.size());
  return secret;
}

std::uint16_t port_of_job(std::string_view job) {
  const digest hash = sha256::of(bytes_of("devcomm port\n" + std::string(job)));
  const unsigned value = std::to_integer<unsigned>(hash[0]) << 16 | std::to_integer<unsigned>(hash[1]) << 8 |
                         std::to_integer<unsigned>(hash[2]);
  constexpr unsigned first = 20000;
  constexpr unsigned last = 32767;
  return static_cast<std::uint16_t>(first + value % (last - first + 1));
}

std::string first_node(std::string_view list, const std::string& variable) {
  const std::string expected = "a list of nodes such as \"gpu[01-04,07],login\"";
  const std::string_view whole = list;
  std::string node;
  bool in_brackets = false;
  bool skipping = false;  // past the first choice of a bracket
  for (const char c : list) {
    if (c == ',' && !in_brackets) break;
    if (c == '[' || c == ']') {
      if (in_brackets == (c == '[')) reject(variable, whole, expected);
      in_brackets = c == '[';
      skipping = false;
    } else if (in_brackets && (c == '-' || c == ',')) {
      skipping = true;
    } else if (!skipping) {
      if (in_brackets && (c < '0' || c > '9')) reject(variable, whole, expected);
      node += c;
    }
  }
  if (in_brackets || !host_problem(node).empty()) reject(variable, whole, expected);
  return node;
}

bool single_node(std::string_view list) { return list.find_first_of(",[") == std::string_view::npos; }

std::vector<int> tasks_per_node(std::string_view list, const std::string& variable) {
  const std::string_view whole = list;
  const std::string expected = "numbers of tasks such as \"2(x3),1\"";
  std::vector<int> tasks;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    const std::size_t open = item.find("(x");
    const auto count = decimal(item.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      times = item.back() == ')' ? decimal(item.substr(open + 2, item.size() - open - 3)) : std::nullopt;
    }
    if (!count || !times || *count < 1 || *times < 1 || *count > most_ranks ||
        static_cast<int>(tasks.size()) > most_ranks - *times) {
      reject(variable, whole, expected);
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(*times), *count);
    if (comma == std::string_view::npos) return tasks;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace devcomm::host::detail

namespace devcomm::host {

std::chrono::milliseconds default_bootstrap_limit() {
  return detail::seconds_variable(detail::process_variables(), "DEVCOMM_BOOTSTRAP_TIMEOUT", {.most = 1e6},
                                  "a number of seconds above 0 and up to 1000000")
      .value_or(std::chrono::seconds(60));
}

}  // namespace devcomm::host
