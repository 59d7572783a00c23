/// \file measure.hpp
/// Times of one rank's stream, and the slowest rank's of all; ranks are threads of one process.
#pragma once

#include <devcomm/host/communicator.hpp>
#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace benchmark {

/// Times what is put on a stream of its own, with events.
class stopwatch {
 public:
  explicit stopwatch(int priority = 0) {
    devcomm::check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamDefault, priority), "cudaStreamCreate");
    devcomm::check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    devcomm::check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  /// Milliseconds that what `start` puts on the stream took on the GPU.
  template <class Start>
  float time(const Start& start) {
    float elapsed = 0;
    devcomm::check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    start(stream_);
    devcomm::check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
    devcomm::check_cuda(cudaStreamSynchronize(stream_), "the measured kernels");
    devcomm::check_cuda(cudaEventElapsedTime(&elapsed, begin_, end_), "cudaEventElapsedTime");
    return elapsed;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// Every rank's last time; written by each at its own place, read after a host barrier.
inline std::vector<float> latest = std::vector<float>(1024);

/// The longest of what `take` returns on the ranks, which start it together. *Collective*.
template <class Take>
float slowest(devcomm::host::communicator& comm, const Take& take) {
  comm.barrier();
  latest[static_cast<std::size_t>(comm.rank())] = take();
  comm.barrier();
  const float longest = *std::max_element(latest.begin(), latest.begin() + comm.size());
  comm.barrier();
  return longest;
}

inline float median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace benchmark
