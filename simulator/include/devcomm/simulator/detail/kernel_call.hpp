/// \file kernel_call.hpp
/// A kernel with its arguments, as the runtime keeps it until every thread has run it.
#pragma once

#include <tuple>
#include <utility>

namespace devcomm::simulator::detail {

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

}  // namespace devcomm::simulator::detail
