/// \file dependent_launch.cuh
/// Kernels that start before their predecessor in the stream ends (programmatic dependent launch).
///
/// A launch with `launch_config::programmatic_dependent` may start as soon as every block of the launch before it
/// has called `allow_dependent_launch` or ended, so that its start hides behind the other's end. Where the
/// hardware or the code has no such thing (before compute capability 9.0, PTX of older ones, in explorations of the
/// simulator), launches follow one another and both calls do nothing.
#pragma once

#include <devcomm/arch/arch.cuh>

namespace devcomm {

/// Waits until the launch before this one has ended, and sees all it wrote. Before it, a kernel must touch nothing
/// that an earlier launch may write; sessions of `lsa` read their epochs, so they come after it.
DEVCOMM_DEVICE inline void wait_for_prior_launch() { arch::wait_for_prior_launch(); }

/// Lets the next launch start, once all blocks have called it. Orders nothing.
DEVCOMM_DEVICE inline void allow_dependent_launch() { arch::allow_dependent_launch(); }

}  // namespace devcomm
