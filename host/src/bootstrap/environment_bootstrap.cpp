#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "bootstrap/launcher.hpp"
#include "bootstrap/tcp/socket.hpp"

namespace devcomm::host {

bool launched_by_environment() { return detail::read_launcher(detail::process_variables()).has_value(); }

process_environment read_process_environment() {
  if (auto process = detail::read_launcher(detail::process_variables())) return *std::move(process);
  throw invalid_argument(
      "read_process_environment: no launcher's variables are set; start the program with torchrun, mpirun or "
      "srun, or set DEVCOMM_RANK, DEVCOMM_SIZE and DEVCOMM_ROOT for each process");
}

std::shared_ptr<bootstrap> environment_bootstrap(std::chrono::milliseconds limit) {
  const process_environment process = read_process_environment();
  const detail::endpoint root = detail::parse_endpoint(process.root, "the address of rank 0");
  const unique_id id(root.host, root.port, detail::launcher_secret(detail::process_variables(), process));
  return tcp_bootstrap(id, process.rank, process.size, limit);
}

}  // namespace devcomm::host
