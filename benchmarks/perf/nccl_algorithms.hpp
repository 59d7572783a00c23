/// \file nccl_algorithms.hpp
/// NCCL's collectives, for comparison: with plain buffers and with symmetric windows.
#pragma once

#include "perf/algorithm.hpp"

namespace perf {

/// Reductions are sums; the root of a broadcast is rank 0.
enum class nccl_call { all_reduce, reduce_scatter, all_gather, broadcast };

/// *Collective*. Throws where NCCL cannot be loaded, or this program was built without its headers.
[[nodiscard]] algorithms make_nccl(nccl_call which, const rank_context& context);

}  // namespace perf
