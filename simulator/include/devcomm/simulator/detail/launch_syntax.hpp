/// \file launch_syntax.hpp
/// What `devcomm_translate.py` makes of `kernel<<<grid, block, shared, stream>>>(arguments)`:
/// `launch_of(name, call).with(grid, block, shared, stream).run(arguments)`.
///
/// `name(as)` is the kernel as `as` wants it, and `call(arguments...)` calls the kernel as a function; both compile
/// only where that is possible. A kernel whose name alone says which function it is has its arguments converted when it
/// is launched. Others, overloaded ones or templates that deduce their parameters, are found by the arguments' own
/// types; where these differ from the parameters', each thread converts a copy.
#pragma once

#include <devcomm/simulator/detail/launch.hpp>

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace devcomm::simulator::detail {

/// Instead of `call` where a kernel is an expression, which is one function.
struct no_call {};

struct as_one_function {
  template <class... Parameters>
  auto operator()(void (*kernel)(Parameters...)) const {
    return kernel;
  }
};

template <class... Parameters>
struct as_function_of {
  auto operator()(void (*kernel)(Parameters...)) const { return kernel; }
};

template <class Call, class... Arguments>
class deduced_kernel_call final : public kernel_call {
 public:
  template <class... Given>
  explicit deduced_kernel_call(const Call& call, Given&&... arguments)
      : call_(call), arguments_(std::forward<Given>(arguments)...) {}
  void run() const override { std::apply(call_, arguments_); }
  [[nodiscard]] const void* function() const override { return nullptr; }
  [[nodiscard]] std::vector<std::pair<int, const void*>> pointers() const override {
    return pointers_among(arguments_);
  }

 private:
  Call call_;
  std::tuple<Arguments...> arguments_;
};

template <class... Parameters, class... Arguments>
std::unique_ptr<kernel_call> make_kernel_call(void (*kernel)(Parameters...), Arguments&&... arguments) {
  return std::make_unique<kernel_call_of<Parameters...>>(kernel, std::forward<Arguments>(arguments)...);
}

template <class Function>
inline constexpr std::size_t parameters_of = 0;
template <class... Parameters>
inline constexpr std::size_t parameters_of<void (*)(Parameters...)> = sizeof...(Parameters);

/// Whether `name` is one function, with as many parameters as there are arguments.
template <class Name, std::size_t Arguments, class = void>
inline constexpr bool names_one_function = false;
template <class Name, std::size_t Arguments>
inline constexpr bool
    names_one_function<Name, Arguments, std::enable_if_t<std::is_invocable_v<Name, as_one_function>>> =
        parameters_of<std::invoke_result_t<Name, as_one_function>> == Arguments;

template <class Name, class Call>
class configured_launch {
 public:
  configured_launch(const Name& name, const Call& call, const cudaLaunchConfig_t& config)
      : name_(name), call_(call), config_(config) {}

  /// An error is kept for `cudaGetLastError`, as in CUDA; a program that does not call it cannot end well.
  template <class... Arguments>
  void run(Arguments&&... arguments) const {
    using by_type = as_function_of<std::decay_t<Arguments>...>;
    if constexpr (names_one_function<const Name&, sizeof...(Arguments)>) {
      start(make_kernel_call(name_(as_one_function{}), std::forward<Arguments>(arguments)...));
    } else if constexpr (std::is_invocable_v<const Name&, by_type>) {
      start(make_kernel_call(name_(by_type{}), std::forward<Arguments>(arguments)...));
    } else {
      static_assert(std::is_invocable_v<const Call&, const std::decay_t<Arguments>&...>,
                    "no kernel of this name takes these arguments");
      start(std::make_unique<deduced_kernel_call<Call, std::decay_t<Arguments>...>>(
          call_, std::forward<Arguments>(arguments)...));
    }
  }

 private:
  void start(std::unique_ptr<kernel_call> kernel) const {
    const cudaError_t kept = launch(config_, std::move(kernel));
    if (kept != cudaSuccess) note_refusal(kept);
  }

  const Name& name_;
  const Call& call_;
  cudaLaunchConfig_t config_;
};

template <class Name, class Call>
class launch_site {
 public:
  launch_site(Name name, Call call) : name_(std::move(name)), call_(std::move(call)) {}
  [[nodiscard]] auto with(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) const {
    return configured_launch<Name, Call>(name_, call_, {grid, block, shared_bytes, stream, nullptr, 0});
  }

 private:
  Name name_;
  Call call_;
};

template <class Name, class Call>
launch_site<Name, Call> launch_of(Name name, Call call) {
  return {std::move(name), std::move(call)};
}

}  // namespace devcomm::simulator::detail
