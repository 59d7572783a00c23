/// \file launch.hpp
/// Starts a kernel the same way on GPUs and in the simulator. Host code; needs the CUDA runtime's
/// headers or the simulator's.
#pragma once

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <cstddef>
#include <cstdlib>
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
  unsigned cluster = 1;                 ///< blocks of a cluster, along x; `grid.x` is a multiple of it
};

/// A CUDA runtime call failed.
class cuda_error : public std::runtime_error {
 public:
  /// `detail`, behind CUDA's own text: what to do.
  cuda_error(cudaError_t code, const char* call, const std::string& detail = {})
      : std::runtime_error(std::string(call) + " failed: " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) +
                           ")" + detail),
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

/// The kernel's name as it is declared; "the kernel" if CUDA does not know it.
inline std::string name_of_kernel(const void* kernel) {
  const char* mangled = nullptr;
#if CUDART_VERSION >= 12030
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess) mangled = nullptr;
#else
  static_cast<void>(kernel);
#endif
  if (mangled == nullptr) return "the kernel";
  char* const readable = abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr);
  const std::string name = readable != nullptr ? readable : mangled;
  std::free(readable);
  return "kernel " + name;
}

/// Of a refused launch: ": kernel scale(float*) takes 174 registers a thread, ..."; empty where its blocks are not too
/// large for it.
inline std::string why_block_is_too_large(const void* kernel, const dim3& block) {
  const unsigned long long threads = 1ull * block.x * block.y * block.z;
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) return {};
  const auto most = static_cast<unsigned long long>(attributes.maxThreadsPerBlock);
  if (most == 0 || threads <= most) return {};
  const std::string wanted = std::to_string(threads);
  return ": " + name_of_kernel(kernel) + " takes " + std::to_string(attributes.numRegs) +
         " registers a thread, so that a block has at most " + std::to_string(most) +
         " threads, and this launch asks for " + wanted +
         (threads <= 1024 ? "; declare the kernel __launch_bounds__(" + wanted + "), or launch smaller blocks"
                          : "; launch smaller blocks");
}

}  // namespace detail

/// Launches `kernel` on the current device; asynchronous, and capturable into a graph. Throws
/// `cuda_error` when the launch itself is refused; where blocks have more threads than the kernel's registers allow, it
/// says which kernel takes how many. A programmatic dependent launch whose code cannot wait for its
/// predecessor, because it was built for PTX below 9.0, is an ordinary one. More than 48 KiB of shared memory need no
/// `cudaFuncSetAttribute`.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const launch_config& config, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[3];
  unsigned count = 0;
  if (config.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  if (config.programmatic_dependent && detail::can_wait_for_prior_launch(reinterpret_cast<const void*>(kernel))) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (config.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = config.cluster;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  if (config.shared_bytes > 48 * std::size_t{1024})
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(config.shared_bytes)),
               "cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize)");
  cudaLaunchConfig_t raw{};
  raw.gridDim = config.grid;
  raw.blockDim = config.block;
  raw.dynamicSmemBytes = config.shared_bytes;
  raw.stream = config.stream;
  raw.attrs = attributes;
  raw.numAttrs = count;
  const cudaError_t code = cudaLaunchKernelEx(&raw, kernel, static_cast<Arguments&&>(arguments)...);
  if (code != cudaSuccess)
    throw cuda_error(code, "launch",
                     detail::why_block_is_too_large(reinterpret_cast<const void*>(kernel), config.block));
}

}  // namespace devcomm
