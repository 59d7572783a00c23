/// \file support.hpp
/// What the simulator's tests share: device memory that ends with its owner, and a launch that says
/// what went wrong.
#pragma once

#include <cuda_runtime.h>
#include <devcomm/launch.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

// GCC's word for a build under AddressSanitizer; Clang has another.
#if defined(__SANITIZE_ADDRESS__)
#  define SIMULATOR_TEST_UNDER_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer)
#    define SIMULATOR_TEST_UNDER_ADDRESS_SANITIZER 1
#  endif
#endif

namespace simulator_test {

/// `count` elements of pinned memory, which kernels and the test both use; zeroed.
template <class T>
class shared_array {
 public:
  explicit shared_array(std::size_t count) : count_(count) {
    devcomm::check_cuda(cudaMallocHost(&data_, count * sizeof(T)), "cudaMallocHost");
    for (std::size_t i = 0; i < count; ++i) new (data_ + i) T();
  }
  ~shared_array() { cudaFreeHost(data_); }
  shared_array(const shared_array&) = delete;
  shared_array& operator=(const shared_array&) = delete;

  T* get() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// Launches on the current device and waits for it.
template <class... Parameters, class... Arguments>
cudaError_t run(void (*kernel)(Parameters...), const devcomm::launch_config& config, Arguments... arguments) {
  devcomm::launch(kernel, config, arguments...);
  return cudaStreamSynchronize(config.stream);
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace simulator_test
