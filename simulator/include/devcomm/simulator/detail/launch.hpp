/// \file launch.hpp
/// A kernel with its arguments, and how the shim's launch templates give it to the runtime.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace devcomm::simulator::detail {

/// Kept by the runtime until every thread has run it.
class kernel_call {
 public:
  virtual ~kernel_call() = default;
  /// Runs one CUDA thread.
  virtual void run() const = 0;
  /// What attributes of the kernel are kept under.
  [[nodiscard]] virtual const void* function() const = 0;
  /// Its arguments that are pointers to objects, with their places from 1 on.
  [[nodiscard]] virtual std::vector<std::pair<int, const void*>> pointers() const = 0;
};

template <class... Arguments>
std::vector<std::pair<int, const void*>> pointers_among(const std::tuple<Arguments...>& arguments) {
  std::vector<std::pair<int, const void*>> found;
  int place = 0;
  const auto note = [&](const auto& argument) {
    using type = std::remove_cv_t<std::remove_reference_t<decltype(argument)>>;
    ++place;
    if constexpr (std::is_pointer_v<type> && !std::is_function_v<std::remove_pointer_t<type>>)
      found.emplace_back(place, const_cast<const void*>(static_cast<const volatile void*>(argument)));
  };
  static_cast<void>(note);  // kernels without parameters
  std::apply([&](const auto&... each) { (note(each), ...); }, arguments);
  return found;
}

template <class... Parameters>
class kernel_call_of final : public kernel_call {
 public:
  template <class... Arguments>
  explicit kernel_call_of(void (*kernel)(Parameters...), Arguments&&... arguments)
      : kernel_(kernel), arguments_(std::forward<Arguments>(arguments)...) {}

  void run() const override { std::apply(kernel_, arguments_); }
  [[nodiscard]] const void* function() const override { return reinterpret_cast<const void*>(kernel_); }
  [[nodiscard]] std::vector<std::pair<int, const void*>> pointers() const override {
    return pointers_among(arguments_);
  }

 private:
  void (*kernel_)(Parameters...);
  std::tuple<Parameters...> arguments_;
};

/// Gives the kernel to its stream, or to the graph that the stream is captured into.
[[nodiscard]] cudaError_t launch(const cudaLaunchConfig_t& config, std::unique_ptr<kernel_call> call);

/// A launch by `<<<>>>` was refused: the program must check for errors before it ends.
void note_refusal(cudaError_t error);

[[nodiscard]] cudaError_t set_function_attribute(const void* function, cudaFuncAttribute attribute, int value);
[[nodiscard]] cudaError_t get_function_attributes(cudaFuncAttributes* attributes, const void* function);
/// CUDA gives the mangled name, the simulator the readable one.
[[nodiscard]] cudaError_t get_function_name(const char** name, const void* function);
[[nodiscard]] cudaError_t occupancy(int* blocks, const void* function, int threads, std::size_t dynamic_bytes);

}  // namespace devcomm::simulator::detail
