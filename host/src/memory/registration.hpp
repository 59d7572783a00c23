/// \file registration.hpp
/// Memory that the caller allocated, as ranks tell each other of it.
#pragma once

#include "device/backend.hpp"
#include "rank/rank_context.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace devcomm::host::detail {

/// What a rank sends about the memory that it registers.
struct registration {
  std::uint64_t pointer = 0;  ///< meaningful to ranks of the same process
  std::uint64_t offset = 0;   ///< of the pointer in the allocation that `handle` opens
  std::uint32_t handle_bytes = 0;
  std::uint32_t pieces = 0;  ///< of memory that its owner mapped; 0: it comes from `cudaMalloc`
  std::array<std::byte, max_handle_bytes> handle{};
};

/// That of `bytes` from `local` on. Throws where peers cannot reach them. The pieces of mapped memory go to `mapped`;
/// where that is null such memory is refused.
[[nodiscard]] registration describe_memory(rank_context& context, void* local, std::size_t bytes,
                                           sharing_port::mapped_memory* mapped = nullptr);

/// Where this rank finds what rank `peer`, of its LSA team, described. What it opens for that is added to `opened`.
[[nodiscard]] char* open_memory(rank_context& context, int peer, const registration& theirs,
                                std::vector<std::shared_ptr<opened_memory>>& opened);

/// How members of the LSA team reach each other's registered memory.
[[nodiscard]] const char* handle_type_of_registered(const rank_context& context);

}  // namespace devcomm::host::detail
