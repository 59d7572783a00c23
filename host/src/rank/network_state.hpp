/// \file network_state.hpp
/// The network between the ranks of a communicator, which its device communicators share.
#pragma once

#include <devcomm/host/properties.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

class fabric_thread;

struct network_state {
  /// An endpoint with its thread.
  struct opened {
    std::shared_ptr<fabric_thread> thread;
    std::string way;  ///< what operations, and their payload, go over
    bool straight;    ///< on every rank, payload in device memory goes without copy engines
  };

  bool needs_libfabric = false;      ///< not all ranks are in this process, or a provider is named
  std::string provider;              ///< libfabric's; empty until the first contexts are made
  std::string why_this_provider;     ///< where none was named
  bool windows_on_device = false;    ///< the host's threads do not reach windows in device memory
  capability straight_payload;       ///< whether fabrics may reach these
  bool only_straight = false;        ///< nor may contexts be made otherwise
  std::uint32_t wanted_threads = 1;  ///< for a device communicator, if it has as many contexts
  std::vector<opened> threads;       ///< as many as the device communicator with most contexts wanted
};

}  // namespace devcomm::host::detail
