/// \file mistakes.hpp
/// What docs/mistakes.md shows: small programs as users write them, each with one mistake, and without it.
#pragma once

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace mistakes {

using devcomm::check_cuda;
using devcomm::host::communicator;
using devcomm::host::device_communicator;
using devcomm::host::symmetric_memory;

struct mistake {
  const char* name;
  void (*run)(communicator& comm, bool wrong);  ///< one rank's part
  int ranks = 3;
  int lsa_size = 0;
  const char* variable = nullptr;  ///< set in the environment where wrong
  const char* value = nullptr;
};

/// Waits for the kernels of this rank, and throws what they failed of.
inline void finish(const device_communicator& device) {
  check_cuda(cudaDeviceSynchronize(), "kernel");
  device.check();
}

/// Throws unless the `count` numbers of this rank at `memory` are `of(i)`.
template <class Expected>
void expect(communicator& comm, const int* memory, int count, Expected of) {
  std::vector<int> got(static_cast<std::size_t>(count));
  check_cuda(cudaMemcpy(got.data(), memory, got.size() * sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (int i = 0; i < count; ++i) {
    const int value = got[static_cast<std::size_t>(i)];
    if (value == of(i)) continue;
    throw std::runtime_error("wrong result: rank " + std::to_string(comm.rank()) + " has " + std::to_string(value) +
                             " at index " + std::to_string(i) + ", expected " + std::to_string(of(i)));
  }
}

}  // namespace mistakes
