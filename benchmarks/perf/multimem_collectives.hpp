/// \file multimem_collectives.hpp
/// Collectives by multimem, through a switch and in software. Their kernels have a file of their own, as they take long
/// to compile.
#pragma once

#include "perf/algorithm.hpp"

namespace perf {

void add_multimem_all_reduces(const rank_context& context, algorithms& made);
void add_multimem_reduce_scatters(const rank_context& context, algorithms& made);
void add_multimem_all_gathers(const rank_context& context, algorithms& made);
/// From rank 0.
void add_multimem_broadcasts(const rank_context& context, algorithms& made);

}  // namespace perf
