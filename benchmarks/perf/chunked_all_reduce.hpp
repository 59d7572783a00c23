/// \file chunked_all_reduce.hpp
/// All-reduce in chunks, as an algorithm of the operation all_reduce.
#pragma once

#include "perf/algorithm.hpp"

namespace perf {

void add_chunked_all_reduce(const rank_context& context, algorithms& made);

}  // namespace perf
