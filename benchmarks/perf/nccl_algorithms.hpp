/// \file nccl_algorithms.hpp
/// NCCL's collectives, for comparison: with plain buffers and with symmetric windows.
#pragma once

#include "perf/algorithm.hpp"

namespace perf {

/// Reductions are sums; the root of a broadcast is rank 0. An exchange is with the next and the previous rank, a
/// ping-pong between ranks 0 and 1, and all_to_all_v has the counts of `skewed_counts`.
enum class nccl_call {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  exchange,
  all_to_all,
  all_to_all_v,
  ping_pong
};

/// *Collective*. Throws where NCCL cannot be loaded, or this program was built without its headers.
[[nodiscard]] algorithms make_nccl(nccl_call which, const rank_context& context);

}  // namespace perf
