/// \file open_fabric_proxy.hpp
/// Serves the contexts of device communicators whose ranks reach each other by libfabric.
#pragma once

#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/requirements.hpp>

#include "rank/rank_context.hpp"
#include "transport/network_proxy.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Processors of the threads that serve this rank's contexts, as the environment asks; none: any.
[[nodiscard]] std::vector<int> wanted_cpus_of(const rank_context& context);

struct opened_network {
  std::unique_ptr<network_proxy> proxy;
  std::string way;  ///< what operations, and their payload, go over
  bool straight;    ///< on every rank, payload in device memory goes without copy engines
};

/// *Collective*: ranks exchange addresses and secrets over the bootstrap's connections when the first contexts of a
/// communicator are made, or the first that want more threads. `number` names the device communicator on all ranks.
/// `fail` receives the first operation that cannot be done, `departed` each peer that has ended and owes nothing; waits
/// of kernels end when `log` says so.
[[nodiscard]] opened_network open_fabric_proxy(rank_context& context, const std::string& call, std::uint64_t number,
                                               const network_request& asked, failure_log* log,
                                               std::function<void(const std::string&)> fail,
                                               std::function<void(int rank)> departed);

}  // namespace devcomm::host::detail
