/// \file run_ranks.hpp
/// Runs one function per rank, however the program was started.
#pragma once

#include <devcomm/host/communicator.hpp>

#include <functional>

namespace devcomm::host {

struct run_options {
  /// Ranks when this process is to hold them all; 0 takes one for each device. `DEVCOMM_RANKS`
  /// overrides.
  int ranks = 0;
  communicator_options communicator = {};
};

/// Under torchrun, mpirun, srun or `DEVCOMM_RANK` this process is one rank; otherwise it holds all of
/// them, a thread each. Calls `body` with each rank's communicator, its device current. When it returns, waits until
/// the device is idle, and throws what neither `check` nor `failures` reported: a kernel's error, a wait that failed.
/// Where ranks share a GPU, call `prepare` (prepare.hpp) in `body` before the first launch that waits for peers.
/// When a rank throws, the others are aborted, and the first error is rethrown with its rank. A rank whose exception
/// has been unwinding for a second is aborted before it arrives: a destructor, such as one that calls `cudaFree`, may
/// wait for a kernel that waits for peers. `abort_on_exception` does so at once.
void run_ranks(const run_options& options, const std::function<void(communicator&)>& body);

}  // namespace devcomm::host
