/// \file nccl_bootstrap.hpp
/// Ranks that are those of an NCCL communicator, for programs that keep NCCL's collectives beside kernels of devcomm.
/// Needs NCCL's header and library, or devcomm's, and the CUDA runtime.
#pragma once

#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>
#include <devcomm/launch.hpp>

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>

namespace devcomm::host {
namespace detail {

inline void check_nccl(ncclResult_t result, const std::string& call) {
  if (result != ncclSuccess) throw system_error(call + ": NCCL failed: " + ncclGetErrorString(result));
}

/// An all-gather of host bytes by a communicator whose device is current.
class nccl_gather {
 public:
  nccl_gather(ncclComm_t comm, std::chrono::milliseconds limit) : comm_(comm), limit_(limit) {}

  void operator()(std::span<const std::byte> mine, std::span<std::byte> all) const {
    if (mine.empty()) return;
    const buffers memory(mine.size() + all.size());  // pinned: copies of other memory wait without a limit
    std::memcpy(memory.host, mine.data(), mine.size());
    check_cuda(cudaMemcpyAsync(memory.device, memory.host, mine.size(), cudaMemcpyHostToDevice, memory.stream),
               "nccl_bootstrap: cudaMemcpyAsync");
    check_nccl(ncclAllGather(memory.device, memory.device + mine.size(), mine.size(), ncclChar, comm_, memory.stream),
               "nccl_bootstrap: ncclAllGather");
    check_cuda(cudaMemcpyAsync(memory.host + mine.size(), memory.device + mine.size(), all.size(),
                               cudaMemcpyDeviceToHost, memory.stream),
               "nccl_bootstrap: cudaMemcpyAsync");
    wait_for(memory.stream);
    std::memcpy(all.data(), memory.host + mine.size(), all.size());
  }

 private:
  struct buffers {
    explicit buffers(std::size_t bytes) {
      check_cuda(cudaMalloc(reinterpret_cast<void**>(&device), bytes), "nccl_bootstrap: cudaMalloc");
      check_cuda(cudaMallocHost(reinterpret_cast<void**>(&host), bytes), "nccl_bootstrap: cudaMallocHost");
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "nccl_bootstrap: cudaStreamCreate");
    }
    buffers(const buffers&) = delete;
    buffers& operator=(const buffers&) = delete;
    /// Where NCCL still waits, they are left to it: freeing would wait as well.
    ~buffers() {
      if (stream != nullptr && cudaStreamQuery(stream) == cudaErrorNotReady) return;
      if (stream != nullptr) cudaStreamDestroy(stream);
      cudaFreeHost(host);
      cudaFree(device);
    }
    std::byte* device = nullptr;
    std::byte* host = nullptr;
    cudaStream_t stream = nullptr;
  };

  void wait_for(cudaStream_t stream) const {
    const auto end = std::chrono::steady_clock::now() + limit_;
    for (;;) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state != cudaErrorNotReady) check_cuda(state, "nccl_bootstrap: cudaStreamQuery");
      ncclResult_t failure = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(comm_, &failure), "nccl_bootstrap: ncclCommGetAsyncError");
      check_nccl(failure, "nccl_bootstrap");
      if (state == cudaSuccess) return;
      if (std::chrono::steady_clock::now() >= end)
        throw timeout_error("nccl_bootstrap: not all ranks of the NCCL communicator came within " +
                            std::to_string(limit_.count()) + " ms");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  ncclComm_t comm_;
  std::chrono::milliseconds limit_;
};

}  // namespace detail

/// Ranks numbered as in `comm`, which gathers twice, to share the address at which they meet, and is free for the
/// program afterwards. Its device becomes the current one.
///
/// *Collective* over `comm`. Throws `system_error` with NCCL's text, and `timeout_error` where a rank does not come:
/// NCCL then still waits for it, and is to be aborted.
[[nodiscard]] inline std::shared_ptr<bootstrap> nccl_bootstrap(
    ncclComm_t comm, std::chrono::milliseconds limit = default_bootstrap_limit()) {
  int rank = 0, size = 0, device = 0;
  detail::check_nccl(ncclCommUserRank(comm, &rank), "nccl_bootstrap: ncclCommUserRank");
  detail::check_nccl(ncclCommCount(comm, &size), "nccl_bootstrap: ncclCommCount");
  detail::check_nccl(ncclCommCuDevice(comm, &device), "nccl_bootstrap: ncclCommCuDevice");
  check_cuda(cudaSetDevice(device), "nccl_bootstrap: cudaSetDevice");
  return tcp_bootstrap(rank, size, detail::nccl_gather(comm, limit), limit);
}

}  // namespace devcomm::host
