/// \file channel_all_reduce.hpp
/// All-reduces through FIFOs, round a ring and over two trees. Their kernels have a file of their own, as they take
/// long to compile.
#pragma once

#include "perf/algorithm.hpp"

namespace perf {

void add_channel_all_reduces(const rank_context& context, algorithms& made);

}  // namespace perf
