/// \file nccl_all_reduce.hpp
/// NCCL's all-reduce, for comparison: with plain buffers and with symmetric windows.
#pragma once

#include "perf/algorithm.hpp"

namespace perf {

/// *Collective*. Throws where NCCL cannot be loaded.
[[nodiscard]] algorithms make_nccl_all_reduce(const rank_context& context);

}  // namespace perf
