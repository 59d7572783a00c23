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

/// Launches `kernel` on the current device; asynchronous, and capturable into a graph. Throws
/// `cuda_error` when the launch itself is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const launch_config& config, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (config.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  if (config.programmatic_dependent) {
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
