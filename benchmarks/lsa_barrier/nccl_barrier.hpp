/// \file nccl_barrier.hpp
/// NCCL's LSA barrier behind an interface without NCCL's headers, which take long to compile.
#pragma once

#include <devcomm/host/communicator.hpp>
#include <devcomm/memory_order.hpp>

#include <cuda_runtime.h>

#include <memory>

namespace benchmark {

/// One rank's NCCL communicator with `barriers` LSA barriers. *Collective* over the ranks of `comm`,
/// which must be threads of one process.
class nccl_barrier {
 public:
  virtual ~nccl_barrier() = default;
  /// Launches a kernel of `blocks` blocks that each do `iterations` barriers.
  virtual void launch(unsigned blocks, unsigned threads, int iterations, devcomm::memory_order order,
                      cudaStream_t stream) = 0;
};

/// Throws `std::runtime_error` with the reason when NCCL is not there or this build left it out.
[[nodiscard]] std::unique_ptr<nccl_barrier> make_nccl_barrier(devcomm::host::communicator& comm, int barriers);

}  // namespace benchmark
