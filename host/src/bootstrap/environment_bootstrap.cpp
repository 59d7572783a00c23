#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "bootstrap/launcher.hpp"
#include "bootstrap/launcher_secret.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "bootstrap/torch_store.hpp"
#include "util/deadline.hpp"
#include "util/random.hpp"

#include <atomic>
#include <cstdio>

namespace devcomm::host {
namespace {

detail::launched_process require_launcher(const detail::environment& variables) {
  if (auto process = detail::read_launcher(variables)) return *std::move(process);
  throw invalid_argument(
      "read_process_environment: no launcher's variables are set; start the program with torchrun, mpirun, mpiexec or "
      "srun, or set DEVCOMM_RANK, DEVCOMM_SIZE and DEVCOMM_ROOT for each process");
}

/// On rank 0 alone, and once a process.
void warn_of_secret(const std::string& warning, int rank) {
  static constinit std::atomic<bool> warned{false};
  if (warning.empty() || rank != 0 || warned.exchange(true)) return;
  std::fputs(warning.c_str(), stderr);
}

}  // namespace

bool launched_by_environment() { return detail::read_launcher(detail::process_variables()).has_value(); }

process_environment read_process_environment() {
  const detail::launched_process process = require_launcher(detail::process_variables());
  const process_environment& without_job = process;
  return without_job;
}

std::shared_ptr<bootstrap> environment_bootstrap(std::chrono::milliseconds limit) {
  const detail::environment variables = detail::process_variables();
  const detail::launched_process process = require_launcher(variables);
  const detail::endpoint root = detail::parse_endpoint(process.root, "the address of rank 0");
  const detail::deadline until(limit);
  std::chrono::milliseconds left = limit;
  const detail::launcher_secret chosen = detail::choose_secret(variables, process, [&](const detail::endpoint& store) {
    const std::string call =
        "environment_bootstrap on rank " + std::to_string(process.rank) + " of " + std::to_string(process.size);
    const auto key = detail::key_in_torch_store(store, detail::random_value<detail::user_key>(), call, until);
    left = until.left();
    return key;
  });
  warn_of_secret(chosen.warning, process.rank);
  return tcp_bootstrap(unique_id(root.host, root.port, chosen.secret), process.rank, process.size, left);
}

}  // namespace devcomm::host
