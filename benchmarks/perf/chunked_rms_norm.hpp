/// \file chunked_rms_norm.hpp
/// All-reduce, residual and RMSNorm in chunks, as an algorithm of the operation fused_rms_norm.
#pragma once

#include "perf/algorithm.hpp"

namespace perf {

void add_chunked_rms_norm(const rank_context& context, algorithms& made);

}  // namespace perf
