/// \file table_memory.hpp
/// Device memory of tables that kernels read. Host code; needs the CUDA runtime's headers or the simulator's.
#pragma once

#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

#include <cstddef>

namespace devcomm::detail {

/// Freed in the order of the destroying thread's `cudaStreamPerThread`, so that destruction waits for no kernel:
/// `cudaFree` waits for all of the GPU, and holds up other calls of the process meanwhile.
class table_memory {
 public:
  explicit table_memory(std::size_t bytes) {
    check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
    check_cuda(cudaMallocAsync(reinterpret_cast<void**>(&data_), bytes, cudaStreamPerThread),
               "cudaMallocAsync of a table");
  }
  table_memory(const table_memory&) = delete;
  table_memory& operator=(const table_memory&) = delete;
  ~table_memory() {
    int current = device_;
    static_cast<void>(cudaGetDevice(&current));
    if (current != device_) static_cast<void>(cudaSetDevice(device_));
    static_cast<void>(cudaFreeAsync(data_, cudaStreamPerThread));
    if (current != device_) static_cast<void>(cudaSetDevice(current));
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  /// Copies in the order of `stream`.
  void put(std::size_t at, const void* from, std::size_t bytes, cudaStream_t stream) const {
    if (bytes != 0) check_cuda(cudaMemcpyAsync(data_ + at, from, bytes, cudaMemcpyDefault, stream), "copy to a table");
  }

 private:
  int device_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace devcomm::detail
