/// \file first_missing.cuh
/// Whose packets a wait lacks, for reports.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/packet_channels.hpp>

namespace devcomm::detail {

/// The first member in `[first, end)` of which one of the `packets` packets has not arrived, or `first`.
/// `row` is sender 0's place for the first of them, `row_bytes` the distance from one sender's to the next's.
template <class Protocol>
DEVCOMM_DEVICE DEVCOMM_NOINLINE int first_missing(const char* row, uint64_t row_bytes, int first, int end, int packets,
                                                  uint32_t epoch) {
  for (int member = first; member < end; ++member) {
    for (int p = 0; p < packets; p += Protocol::packets_a_flag) {
      const char* packet =
          row + static_cast<uint64_t>(member) * row_bytes + p * static_cast<int64_t>(packet_layout::packet_bytes);
      if (!Protocol::has_arrived(packet, epoch)) return member;
    }
  }
  return first;
}

}  // namespace devcomm::detail
