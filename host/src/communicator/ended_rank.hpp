/// \file ended_rank.hpp
/// What `run_ranks` does with a communicator when its function has returned or thrown.
#pragma once

#include <devcomm/host/communicator.hpp>

#include <string>

namespace devcomm::host::detail {

struct ended_rank {
  /// Waits for the device, and throws what no call has reported yet: a kernel's error, a wait that failed.
  static void finish(communicator& returned);
  /// Ends the part of this rank, and notifies the others that an exception said `reason`.
  static void leave(communicator& failed, const std::string& reason) noexcept;
  /// Whether another rank had failed before.
  [[nodiscard]] static bool follows_another(const communicator& failed);
};

}  // namespace devcomm::host::detail
