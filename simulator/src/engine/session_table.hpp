/// \file session_table.hpp
/// The sessions that groups of simulated threads hold.
#pragma once

#include <devcomm/arch/observed.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace devcomm::simulator::detail {

struct fiber;

/// One group's hold on one barrier or channel, from its first thread's constructor to its last thread's end.
struct session {
  struct member {
    fiber* thread = nullptr;  ///< null: has not come yet
    uint64_t calls = 0;
    bool ended = false;  ///< has entered the destructor
    bool left = false;   ///< has left it
  };

  explicit session(const devcomm::detail::session_id& of) : id(of), members(of.threads) {}

  devcomm::detail::session_id id;  ///< of the thread that came first
  std::vector<member> members;     ///< by rank in the group
  uint32_t come = 0;
  uint32_t left = 0;
  /// One call of the group, and the thread that made it first; the latest calls are kept.
  struct call {
    devcomm::detail::session_call what;
    fiber* first;
  };
  static constexpr size_t calls_kept = 8;  // every call synchronizes the group, so no thread is further behind
  std::vector<call> calls;
  uint64_t first_call = 0;  ///< number of `calls[0]`
};

/// A barrier or channel of one rank: window, offset, index, what it is, and the rank.
using session_key = std::tuple<const void*, uint64_t, uint32_t, devcomm::operation, int32_t>;
/// All sessions that are held; those of one barrier or channel oldest first.
using session_table = std::map<session_key, std::vector<std::unique_ptr<session>>>;

}  // namespace devcomm::simulator::detail
