#include "bootstrap/slurm.hpp"

#include "bootstrap/launcher_values.hpp"
#include "bootstrap/ports.hpp"
#include "bootstrap/tcp/socket.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace devcomm::host::detail {
namespace {

/// Number of ranks on this node, from Slurm's list for all nodes or its number per node.
void place_in_step(process_environment& process, const environment& variables) {
  if (const auto list = variables("SLURM_STEP_TASKS_PER_NODE")) {
    const std::vector<int> tasks = tasks_per_node(*list, "SLURM_STEP_TASKS_PER_NODE");
    const int nodes = static_cast<int>(tasks.size());
    const int node =
        nodes == 1 && !variables("SLURM_NODEID") ? 0 : launched_number(variables, "SLURM_NODEID", 0, nodes - 1);
    process.local_size = std::min(tasks[static_cast<std::size_t>(node)], process.size);
  } else if (variables("SLURM_NTASKS_PER_NODE")) {
    process.local_size =
        std::min(launched_number(variables, "SLURM_NTASKS_PER_NODE", 1, max_launched_ranks), process.size);
  } else {
    process.local_size = process.size;
  }
  if (variables("SLURM_LOCALID")) {
    process.local_rank = launched_number(variables, "SLURM_LOCALID", 0, process.local_size - 1);
  }
}

}  // namespace

bool is_slurm_task(const environment& variables) {
  return variables("SLURM_PROCID").has_value() && variables("SLURM_STEP_ID").has_value();
}

const char* slurm_size_variable(const environment& variables) {
  return variables("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

launched_process read_srun(const environment& variables) {
  launched_process process{placed(variables, "srun", "SLURM_PROCID", slurm_size_variable(variables)), {}};
  place_in_step(process, variables);
  process.job = "srun\n" + variables("SLURM_JOB_ID").value_or("") + "\n" + variables("SLURM_STEP_ID").value_or("");
  if (take_given_root(process, variables)) {
    refuse_loopback_root(process);
    return process;
  }

  const std::uint16_t port = port_of_job(process.job, given_ports(variables).value_or(port_range{}));
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
    reject_launched("SLURM_LAUNCH_NODE_IPADDR", *host, "the address of rank 0's node; this one " + problem);
  }
  process.root = endpoint_text(*host, port);
  return process;
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
      if (in_brackets == (c == '[')) reject_launched(variable, whole, expected);
      in_brackets = c == '[';
      skipping = false;
    } else if (in_brackets && (c == '-' || c == ',')) {
      skipping = true;
    } else if (!skipping) {
      if (in_brackets && (c < '0' || c > '9')) reject_launched(variable, whole, expected);
      node += c;
    }
  }
  if (in_brackets || !host_problem(node).empty()) reject_launched(variable, whole, expected);
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
    const auto count = decimal_number(item.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      times = item.back() == ')' ? decimal_number(item.substr(open + 2, item.size() - open - 3)) : std::nullopt;
    }
    if (!count || !times || *count < 1 || *times < 1 || *count > max_launched_ranks ||
        static_cast<int>(tasks.size()) > max_launched_ranks - *times) {
      reject_launched(variable, whole, expected);
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(*times), *count);
    if (comma == std::string_view::npos) return tasks;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace devcomm::host::detail
