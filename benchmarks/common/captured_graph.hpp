/// \file captured_graph.hpp
/// Many calls as one CUDA graph.
#pragma once

#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

namespace benchmark {

/// What `calls(stream)` puts on a stream, so many times in a row.
class captured_graph {
 public:
  template <class Calls>
  captured_graph(cudaStream_t stream, const Calls& calls, int times = 1) {
    // Other ranks are threads of this process, and their calls are no concern of this capture.
    devcomm::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      for (int i = 0; i < times; ++i) calls(stream);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);  // else no call on the stream would succeed
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    devcomm::check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t outcome = cudaGraphInstantiate(&replay_, graph, 0);
    cudaGraphDestroy(graph);
    devcomm::check_cuda(outcome, "cudaGraphInstantiate");
    // The first launch would upload it, and may wait for kernels of other ranks on the same GPU, which wait for this
    // one.
    devcomm::check_cuda(cudaGraphUpload(replay_, stream), "cudaGraphUpload");
    devcomm::check_cuda(cudaStreamSynchronize(stream), "cudaGraphUpload");
  }
  captured_graph(const captured_graph&) = delete;
  captured_graph& operator=(const captured_graph&) = delete;
  ~captured_graph() { cudaGraphExecDestroy(replay_); }

  void start(cudaStream_t stream) const { devcomm::check_cuda(cudaGraphLaunch(replay_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t replay_ = nullptr;
};

}  // namespace benchmark
