/// \file watched_waits.hpp
/// The wait tables of this process, which the watchdog's thread reads.
#pragma once

#include <devcomm/diagnostics/wait_table.hpp>
#include <devcomm/host/watchdog.hpp>

#include "device/backend.hpp"
#include "diagnostics/wait_report.hpp"

#include <cstdint>
#include <memory>

namespace devcomm::host::detail {

/// The device communicator that a table belongs to.
struct watched_name {
  int rank;
  int size;
  std::uint64_t communicator;  ///< its id, the same on all of its ranks
  std::uint64_t number;        ///< of the device communicator among the communicator's
};

/// The wait table of one rank's device communicator, read by the watchdog while it lives. The first table starts the
/// watchdog's thread, the last one ends it.
class watched_waits {
 public:
  /// Throws `invalid_argument` for environment variables that make no sense.
  watched_waits(memory_port& memory, observing_port& devices, int device, watched_name name);
  ~watched_waits();
  watched_waits(const watched_waits&) = delete;
  watched_waits& operator=(const watched_waits&) = delete;

  /// For kernels.
  [[nodiscard]] wait_table* table() const noexcept { return static_cast<wait_table*>(memory_->data()); }

 private:
  std::unique_ptr<host_memory> memory_;
};

/// Reads a record that kernels may be writing; `number` is 0 when it is empty or being written.
[[nodiscard]] wait_record read_wait(wait_record& record);

}  // namespace devcomm::host::detail
