/// \file open_multicast.hpp
/// The steps in which ranks make a multicast object together.
#pragma once

#include "memory/window_multicast.hpp"
#include "rank/rank_context.hpp"
#include "util/deadline.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Ranks whose memory one object reaches.
struct multicast_team {
  agreement::group_name name;
  std::vector<int> ranks;  ///< world ranks, in the order of the members
  int member;              ///< the caller's
};

/// *Collective*, of all ranks, each with its team: the first member makes an object of `bytes`, the others open it, and
/// all add their devices; no memory is bound before. A team with `wanted` false makes none and only keeps step. The
/// object is named by window `number`.
void open_multicast(rank_context& context, const std::string& call, const multicast_team& team, bool wanted,
                    std::uint64_t number, std::size_t bytes, const deadline& until, window_multicast& object);

}  // namespace devcomm::host::detail
