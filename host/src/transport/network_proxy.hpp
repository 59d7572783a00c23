/// \file network_proxy.hpp
/// What does the operations that kernels of one rank post to the contexts of a device communicator.
#pragma once

#include <devcomm/gin/queue.hpp>

#include <cstdint>

namespace devcomm::host::detail {

/// A proxy ends, on destruction, when all that was posted is done, or can no longer be done.
class network_proxy {
 public:
  virtual ~network_proxy() = default;

  /// Of context `index`, for kernels.
  [[nodiscard]] virtual gin::context_record record(std::uint32_t index) const = 0;
  /// From here on peers reach this rank, and what is posted is done.
  virtual void start() = 0;
  /// Kernels may use the queues for ever: ends at once, without freeing them.
  virtual void abandon() noexcept = 0;
};

}  // namespace devcomm::host::detail
