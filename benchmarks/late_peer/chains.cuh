/// \file chains.cuh
/// Chains of collectives as graphs, for benchmarks of ranks that wait.
#pragma once

#include <devcomm/devcomm.cuh>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

namespace late_peer {

using element = __half;

/// Threads of the largest block: registers are bounded for it.
constexpr unsigned most_threads = 512;

template <class Session>
__global__ void __launch_bounds__(most_threads) one_shot(devcomm::device_comm comm, typename Session::handle mailboxes,
                                                         const element* input, element* output, std::uint64_t count) {
  namespace collective = devcomm::collective;
  Session session{devcomm::block{}, comm, mailboxes, blockIdx.x};
  collective::all_reduce_one_shot<element>(session, collective::slice_of_block(collective::packs_of<element>(count)),
                                           collective::from_memory<element>{input, count},
                                           collective::to_memory<element>{output, count}, devcomm::sum{});
}

// The others are templates only to be defined in a header: kernels may not be `inline`.

template <class T>
__global__ void __launch_bounds__(most_threads)
    direct(devcomm::device_comm comm, devcomm::sym_ptr<T> input, devcomm::sym_ptr<T> output, std::uint64_t count) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  devcomm::collective::all_reduce_two_shot_zero_copy<T>(barrier, input, output, count, devcomm::sum{});
}

template <devcomm::memory_order Order>
__global__ void only_barrier(devcomm::device_comm comm) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  barrier.sync(Order);
}

/// Many calls as one graph.
class graph {
 public:
  graph(const std::function<void()>& call, int calls, cudaStream_t stream) {
    using devcomm::check_cuda;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < calls; ++i) call();
    check_cuda(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&replay_, graph_, 0), "cudaGraphInstantiate");
  }
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;
  ~graph() {
    cudaGraphExecDestroy(replay_);
    cudaGraphDestroy(graph_);
  }

  void start(cudaStream_t stream) const { devcomm::check_cuda(cudaGraphLaunch(replay_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t replay_ = nullptr;
};

}  // namespace late_peer
