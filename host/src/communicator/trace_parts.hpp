/// \file trace_parts.hpp
/// Brings the spans of all ranks to rank 0.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

struct rank_context;

/// *Collective*. `read` fills this rank's part of `bytes`; on rank 0 `take` gets the parts of all ranks, one after the
/// other. Only rank 0 receives those of ranks on its host, by memory of their processes or by a descriptor; those of
/// ranks on other hosts travel by the bootstrap, a piece at a time.
void bring_to_first_rank(rank_context& context, const std::string& call, std::size_t bytes,
                         const std::function<void(std::span<std::byte>)>& read,
                         const std::function<void(int rank, std::span<const std::byte>)>& take);

}  // namespace devcomm::host::detail
