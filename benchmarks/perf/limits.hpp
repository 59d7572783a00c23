/// \file limits.hpp
/// What the links of this machine can do, whatever the library.
#pragma once

#include <devcomm/host/communicator.hpp>

namespace perf {

/// Prints bandwidth of stores, loads and copies between GPUs, the one-way latency of a flag, the time of an empty
/// kernel, the local memory's bandwidth, and what operations of the network pass between kernels and the host.
/// *Collective*.
void measure_limits(devcomm::host::communicator& comm);

}  // namespace perf
