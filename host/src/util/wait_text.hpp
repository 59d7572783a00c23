/// \file wait_text.hpp
/// What waits wait for, as reports of failures, of the watchdog and of the simulator say it.
#pragma once

#include <devcomm/operation.hpp>

#include "util/number_list.hpp"
#include "util/window_number.hpp"

#include <cstdint>
#include <string>

namespace devcomm::host::detail {

/// "LSA barriers 0-31", or "LSA signal at word 16 of window 3". `window` is as in `failure_record`.
template <class Numbers>
[[nodiscard]] std::string place_text(operation what, std::uint32_t window, const Numbers& indices) {
  if (window == 0) return number_list(to_string(what), indices);
  return std::string(to_string(what)) + " at " + number_list("word", indices) + " of window " +
         std::to_string(window_number(window - 1));
}

/// "rank 1", or "any rank" for -1.
[[nodiscard]] inline std::string peer_text(int rank) { return rank < 0 ? "any rank" : "rank " + std::to_string(rank); }

/// What the peer is to do: "to reach epoch 5", "to bring it to at least 5".
[[nodiscard]] inline std::string goal_text(wait_condition condition, std::uint64_t expected) {
  switch (condition) {
    case wait_condition::epoch: break;
    case wait_condition::at_least: return "to bring it to at least " + std::to_string(expected);
    case wait_condition::equal: return "to set it to " + std::to_string(expected);
    case wait_condition::predicate: return "to set it to what the caller's predicate takes";
    case wait_condition::sent: return "to send step " + std::to_string(expected);
    case wait_condition::taken: return "to take step " + std::to_string(expected);
    case wait_condition::receive_listed: return "to receive piece " + std::to_string(expected);
    case wait_condition::send_listed: return "to send message " + std::to_string(expected);
    case wait_condition::piece_sent: return "to send piece " + std::to_string(expected);
    case wait_condition::read_by_proxy: return "to read " + std::to_string(expected) + " operations";
    case wait_condition::done_by_proxy: return "to complete operations below " + std::to_string(expected);
    case wait_condition::slot_free: return "to let a slot of the pool go";
  }
  return "to reach epoch " + std::to_string(expected);
}

}  // namespace devcomm::host::detail
