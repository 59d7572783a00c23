/// \file wait_report.hpp
/// Sentences about the waits of all ranks of a process.
#pragma once

#include <devcomm/diagnostics/wait_table.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// One wait of a rank.
struct observed_wait {
  wait_record record;
  std::chrono::nanoseconds age;
};

/// One rank of a device communicator that lives in this process.
struct observed_rank {
  int rank = 0;
  std::vector<observed_wait> waits;
  bool full = false;  ///< the table had no room for all
};

/// One device communicator as this process sees it.
struct observed_comm {
  std::string name;                  ///< written where there are several
  std::vector<observed_rank> ranks;  ///< of this process, in order
};

/// A line for each group of equal waits with what the awaited ranks do, then which ranks the others wait for in the
/// end. Empty when nothing waits.
[[nodiscard]] std::string report_waits(const std::vector<observed_comm>& comms);

}  // namespace devcomm::host::detail
