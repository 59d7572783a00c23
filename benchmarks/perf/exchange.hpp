/// \file exchange.hpp
/// Small values from rank to rank, whether ranks are threads or processes.
#pragma once

#include <devcomm/host/communicator.hpp>
#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace perf {

/// *Collective*: making it and every call.
class exchange {
 public:
  static constexpr std::size_t most_bytes = 256;

  explicit exchange(devcomm::host::communicator& comm) : comm_(comm), window_(comm.allocate(most_bytes)) {}

  /// Every rank's `mine`, rank 0's first. `T` is trivially copyable.
  template <class T>
  std::vector<T> gather(const T& mine) {
    static_assert(sizeof(T) <= most_bytes);
    std::vector<T> all(static_cast<std::size_t>(comm_.size()));
    devcomm::check_cuda(cudaMemcpy(window_.data(), &mine, sizeof mine, cudaMemcpyHostToDevice), "cudaMemcpy");
    devcomm::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // until then it may be on its way
    comm_.barrier();
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const void* theirs = window_.window().peer_pointer(rank, 0);
      devcomm::check_cuda(cudaMemcpy(&all[static_cast<std::size_t>(rank)], theirs, sizeof mine, cudaMemcpyDeviceToHost),
                          "cudaMemcpy");
    }
    comm_.barrier();
    return all;
  }

  template <class T>
  T largest(const T& mine) {
    const std::vector<T> all = gather(mine);
    return *std::max_element(all.begin(), all.end());
  }
  template <class T>
  T total(const T& mine) {
    T sum{};
    for (const T& value : gather(mine)) sum += value;
    return sum;
  }

 private:
  devcomm::host::communicator& comm_;
  devcomm::host::symmetric_memory window_;
};

}  // namespace perf
