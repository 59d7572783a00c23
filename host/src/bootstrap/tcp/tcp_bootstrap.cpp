#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include "bootstrap/tcp/tcp_job.hpp"

#include <string>

namespace devcomm::host {

std::shared_ptr<bootstrap> tcp_bootstrap(const unique_id& id, int rank, int size, std::chrono::milliseconds limit) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw invalid_argument("tcp_bootstrap: rank " + std::to_string(rank) + " of " + std::to_string(size) +
                           " makes no sense; ranks count from 0 up to size - 1");
  }
  return rank == 0 ? detail::make_tcp_hub(id, size, limit) : detail::make_tcp_spoke(id, rank, size, limit);
}

}  // namespace devcomm::host
