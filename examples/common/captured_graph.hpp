/// \file captured_graph.hpp
/// A CUDA graph, from capture to replay.
#pragma once

#include <cuda_runtime.h>
#include <devcomm/launch.hpp>

namespace example {

/// What `start(stream)` puts on a stream, captured as a graph that is replayed on the same stream.
class captured_graph {
 public:
  template <class Start>
  captured_graph(cudaStream_t stream, const Start& start) : stream_(stream) {
    // Other ranks are threads of this process, and their calls are no concern of this capture.
    devcomm::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      start(stream);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);  // else no call on the stream would succeed
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    devcomm::check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t outcome = cudaGraphInstantiate(&replay_, graph, 0);
    cudaGraphDestroy(graph);
    devcomm::check_cuda(outcome, "cudaGraphInstantiate");
  }
  captured_graph(captured_graph&& other) noexcept : stream_(other.stream_), replay_(other.replay_) {
    other.replay_ = nullptr;
  }
  captured_graph& operator=(captured_graph&&) = delete;
  ~captured_graph() {
    if (replay_ != nullptr) cudaGraphExecDestroy(replay_);
  }

  void replay() const { devcomm::check_cuda(cudaGraphLaunch(replay_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t replay_ = nullptr;
};

}  // namespace example
