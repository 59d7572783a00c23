/// \file spin.hpp
/// Loops over plain and volatile memory, which reach no preemption point.
///
/// Kernels are compiled with a call of `__sanitizer_cov_trace_pc` in each basic block. A thread that runs through many
/// of them without a preemption point is interrupted. If it comes back to the same place with the same registers and
/// the same stack, it waits for memory that another thread changes: it sleeps until others have made progress, like a
/// thread that polls by atomics.
#pragma once

namespace devcomm::simulator::detail {

struct fiber;

/// `f` is about to run: it may pass so many basic blocks before it is interrupted.
void allow_plain_code(const fiber& f);

}  // namespace devcomm::simulator::detail
