/// \file launch.hpp
/// Starts a kernel the same way on GPUs and in the simulator. Host code; needs the CUDA runtime's
/// headers or the simulator's.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace devcomm {

/// Shape and stream of a launch.
struct launch_config {
  dim3 grid = dim3(1);
  dim3 block = dim3(1);
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of each block
  cudaStream_t stream = nullptr;
  bool cooperative = false;             ///< all blocks resident at once, or the launch fails
  bool programmatic_dependent = false;  ///< may start before its predecessor in the stream ends
};

/// A CUDA runtime call failed.
class cuda_error : public std::runtime_error {
 public:
  cuda_error(cudaError_t code, const char* call)
      : std::runtime_error(std::string(call) + " failed: " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) +
                           ")"),
        code_(code) {}

  [[nodiscard]] cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// Throws `cuda_error` naming `call` unless `code` is success.
inline void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw cuda_error(code, call);
}

namespace detail {

/// Whether code built for this PTX version has the instruction of `wait_for_prior_launch`: without it the function is
/// empty, also where the driver compiles older PTX for a newer GPU.
constexpr bool can_wait_for_prior_launch(int ptx_version) { return ptx_version >= 90; }

/// Whether `kernel`, as it runs on the current device, can.
inline bool can_wait_for_prior_launch(const void* kernel) {
  struct answer {
    const void* kernel;
    int device;
    bool value;
  };
  thread_local answer last{};
  int device = 0;
  check_cuda(cudaGetDevice(&device), "launch");
  if (last.kernel != kernel || last.device != device) {
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, kernel), "launch");
    last = {kernel, device, can_wait_for_prior_launch(attributes.ptxVersion)};
  }
  return last.value;
}

}  // namespace detail

/// Launches `kernel` on the current device; asynchronous, and capturable into a graph. Throws
/// `cuda_error` when the launch itself is refused. A programmatic dependent launch whose code cannot wait for its
/// predecessor, because it was built for PTX below 9.0, is an ordinary one.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const launch_config& config, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (config.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  if (config.programmatic_dependent && detail::can_wait_for_prior_launch(reinterpret_cast<const void*>(kernel))) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t raw{};
  raw.gridDim = config.grid;
  raw.blockDim = config.block;
  raw.dynamicSmemBytes = config.shared_bytes;
  raw.stream = config.stream;
  raw.attrs = attributes;
  raw.numAttrs = count;
  check_cuda(cudaLaunchKernelEx(&raw, kernel, static_cast<Arguments&&>(arguments)...), "launch");
}

}  // namespace devcomm
