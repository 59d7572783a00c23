/// \file trace_parts.hpp
/// Brings the spans of all ranks to rank 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

struct rank_context;

/// What a rank on another host sends at a time. Rank 0 receives the pieces of all: at most 16 MiB, but of more than
/// 4,096 ranks 4 KiB each.
[[nodiscard]] constexpr std::size_t bytes_of_trace_piece(int ranks) {
  constexpr std::size_t max_of_all = std::size_t{16} << 20;
  return std::clamp(max_of_all / static_cast<std::size_t>(ranks), std::size_t{4} << 10, std::size_t{1} << 20);
}

/// *Collective*. `read` fills this rank's part of `bytes`; on rank 0 `take` gets the parts of all ranks, one after the
/// other. Those of ranks on its host come by memory of their processes or by a descriptor, those of ranks on other
/// hosts by the bootstrap, a piece at a time. No other rank receives them, unless the bootstrap has only `all_gather`.
void bring_to_first_rank(rank_context& context, const std::string& call, std::size_t bytes,
                         const std::function<void(std::span<std::byte>)>& read,
                         const std::function<void(int rank, std::span<const std::byte>)>& take);

}  // namespace devcomm::host::detail
