/// \file watchdog.hpp
/// The tables of waits of this process, and the thread that looks at them.
#pragma once

#include <devcomm/diagnostics/wait_table.hpp>
#include <devcomm/host/watchdog.hpp>

#include "backend.hpp"
#include "wait_report.hpp"

#include <cstdint>
#include <memory>

namespace devcomm::host::detail {

/// Whose waits a table holds.
struct watched_name {
  int rank;
  int size;
  std::uint64_t communicator;  ///< its id, the same on all of its ranks
  std::uint64_t number;        ///< of the device communicator among the communicator's
};

/// The table of one rank's device communicator, known to the watchdog while it lives. The first one starts the
/// watchdog's thread, the last one ends it.
class watched_waits {
 public:
  /// Throws `invalid_argument` for environment variables that make no sense.
  watched_waits(backend& devices, int device, watched_name name);
  ~watched_waits();
  watched_waits(const watched_waits&) = delete;
  watched_waits& operator=(const watched_waits&) = delete;

  /// For kernels.
  [[nodiscard]] wait_table* table() const noexcept { return static_cast<wait_table*>(memory_->data()); }

 private:
  std::unique_ptr<host_memory> memory_;
};

/// Reads one record while kernels may write it; `number` is 0 when nothing waits there or it is being written.
[[nodiscard]] wait_record read_wait(wait_record& record);

}  // namespace devcomm::host::detail
