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
  bool full = false;  ///< there were more than the table holds
};

/// One device communicator as this process sees it.
struct observed_comm {
  std::string name;                  ///< told when there are several
  std::vector<observed_rank> ranks;  ///< of this process, in order
};

/// A line for each kind of wait, what the ranks waited for do, and who waits for whom in the end. Empty when
/// nothing waits.
[[nodiscard]] std::string report_waits(const std::vector<observed_comm>& comms);

}  // namespace devcomm::host::detail
