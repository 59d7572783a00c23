/// \file launch.hpp
/// A kernel with its arguments, and how the shim's launch templates give it to the runtime.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>

namespace devcomm::simulator::detail {

/// Kept by the runtime until every thread has run it.
class kernel_call {
 public:
  virtual ~kernel_call() = default;
  /// Runs one CUDA thread.
  virtual void run() const = 0;
  /// What attributes of the kernel are kept under.
  [[nodiscard]] virtual const void* function() const = 0;
};

template <class... Parameters>
class kernel_call_of final : public kernel_call {
 public:
  template <class... Arguments>
  explicit kernel_call_of(void (*kernel)(Parameters...), Arguments&&... arguments)
      : kernel_(kernel), arguments_(std::forward<Arguments>(arguments)...) {}

  void run() const override { std::apply(kernel_, arguments_); }
  [[nodiscard]] const void* function() const override { return reinterpret_cast<const void*>(kernel_); }

 private:
  void (*kernel_)(Parameters...);
  std::tuple<Parameters...> arguments_;
};

/// Gives the kernel to its stream, or to the graph that the stream is captured into.
[[nodiscard]] cudaError_t launch(const cudaLaunchConfig_t& config, std::unique_ptr<kernel_call> call);

/// A launch by `<<<>>>` was refused: the program must look for errors before it ends.
void note_refusal(cudaError_t error);

[[nodiscard]] cudaError_t set_function_attribute(const void* function, cudaFuncAttribute attribute, int value);
[[nodiscard]] cudaError_t get_function_attributes(cudaFuncAttributes* attributes, const void* function);
[[nodiscard]] cudaError_t occupancy(int* blocks, const void* function, int threads, std::size_t dynamic_bytes);

}  // namespace devcomm::simulator::detail
