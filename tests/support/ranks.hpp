/// \file ranks.hpp
/// What tests of kernels need: ranks as threads, device arrays, and checks that threads other than
/// Catch2's own may make.
#pragma once

#include <devcomm/host/run_ranks.hpp>
#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace test {

/// The numbers of ranks every law is tried with.
inline const std::vector<int> rank_counts = {1, 2, 3, 4, 7, 8};

/// Throws `what` unless `condition` holds. Catch2's macros belong to the main thread alone.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// The same for each of many elements: the text is made when it is needed.
template <std::invocable What>
void require(bool condition, What what) {
  if (!condition) throw std::runtime_error(what());
}

/// Whether each of so many ranks has a GPU of its own, or may do without: under a sanitizer (DEVCOMM_TEST_FEW) kernels
/// of one GPU run one after the other, so that ranks that share it never meet.
inline bool can_meet(int ranks) {
  int devices = 0;
  devcomm::check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  return ranks <= devices || std::getenv("DEVCOMM_TEST_FEW") == nullptr;
}

/// As many ranks as can meet, `most` at most; for tests that any number of ranks but one will do.
inline int ranks_that_meet(int most) {
  while (most > 2 && !can_meet(most)) --most;
  return most;
}

/// Frees device memory when all ranks of `on_ranks` have ended. `cudaFree` waits for every kernel of the device: where
/// ranks share a GPU, those of ranks that are ahead too, which wait for the rank that frees.
class late_frees {
 public:
  late_frees() { ++running(); }
  ~late_frees() {
    if (--running() != 0) return;
    const std::lock_guard lock(mutex());
    for (void* const each : left()) cudaFree(each);
    left().clear();
  }
  late_frees(const late_frees&) = delete;
  late_frees& operator=(const late_frees&) = delete;

  /// Frees `memory`, or leaves it until the ranks have ended.
  static void free(void* memory) {
#if defined(DEVCOMM_SIMULATOR)  // where accesses to freed memory are found; DEVCOMM_SIM_DEVICES makes ranks share GPUs
    const bool share = std::getenv("DEVCOMM_SIM_DEVICES") != nullptr;
#else
    constexpr bool share = true;
#endif
    if (!share || running() == 0) {
      cudaFree(memory);
      return;
    }
    const std::lock_guard lock(mutex());
    left().push_back(memory);
  }

 private:
  static std::atomic<int>& running() {
    static std::atomic<int> count = 0;
    return count;
  }
  static std::mutex& mutex() {
    static std::mutex only;
    return only;
  }
  static std::vector<void*>& left() {
    static std::vector<void*> memory;
    return memory;
  }
};

/// Runs `body` on `ranks` ranks, threads of this process, if they can meet; throws what a rank throws.
inline void on_ranks(int ranks, const std::function<void(devcomm::host::communicator&)>& body,
                     devcomm::host::communicator_options options = {}) {
  if (!can_meet(ranks)) {
    std::printf("left out under DEVCOMM_TEST_FEW: %d ranks, as they would share GPUs\n", ranks);
    return;
  }
  devcomm::host::run_options run;
  run.ranks = ranks;
  run.communicator = options;
#if !defined(DEVCOMM_SIMULATOR)  // which reports a deadlock at once
  // A hang ends with its record before the limit of the program.
  if (options.kernel_timeout == devcomm::host::communicator_options{}.kernel_timeout)
    run.communicator.kernel_timeout = std::chrono::seconds(30);
#endif
  const late_frees frees;
  devcomm::host::run_ranks(run, body);
}

/// A launch on a stream of the caller's own, and a wait for it that throws what went wrong.
inline void finish(const char* what) { devcomm::check_cuda(cudaStreamSynchronize(cudaStreamPerThread), what); }

/// `count` elements of device memory with copies in and out; each copy is complete on return. They end with their
/// allocation, and start at a multiple of 16 bytes so late in its pages that at most 15 bytes follow before the next.
template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count, int byte = 0) : count_(count) {
    constexpr std::size_t page = 4096;
    const std::size_t lead = (page - (bytes() + 15) / 16 * 16 % page) % page;
    devcomm::check_cuda(cudaMalloc(reinterpret_cast<void**>(&memory_), lead + bytes() + (count == 0 ? 1 : 0)),
                        "cudaMalloc");
    data_ = reinterpret_cast<T*>(memory_ + lead);
    devcomm::check_cuda(cudaMemsetAsync(data_, byte, bytes(), cudaStreamPerThread), "cudaMemsetAsync");
    finish("cudaMemsetAsync");
  }
  explicit device_array(const std::vector<T>& values) : device_array(values.size()) { write(values); }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
  ~device_array() { late_frees::free(memory_); }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }

  void write(const std::vector<T>& values) {
    devcomm::check_cuda(cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyDefault, cudaStreamPerThread),
                        "cudaMemcpyAsync");
    finish("cudaMemcpyAsync");
  }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    devcomm::check_cuda(cudaMemcpyAsync(values.data(), data_, bytes(), cudaMemcpyDefault, cudaStreamPerThread),
                        "cudaMemcpyAsync");
    finish("cudaMemcpyAsync");
    return values;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }

  char* memory_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_;
};

}  // namespace test
