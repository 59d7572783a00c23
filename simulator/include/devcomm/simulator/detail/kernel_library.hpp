/// \file kernel_library.hpp
/// A library of simulated kernels: `DEVCOMM_KERNEL_LIBRARY(kernels...)`, once, in the file that has them, makes it one
/// that the Python package loads.
#pragma once

#include <devcomm/simulator/detail/kernel_module.hpp>
#include <devcomm/simulator/detail/launch.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <typeinfo>
#include <utility>

namespace devcomm::simulator::detail {

struct library_kernel {
  const char* name;  ///< as it was given
  const char* type;  ///< mangled, of the function
  std::size_t parameters;
  const std::size_t* bytes;  ///< of each parameter
  cudaError_t (*launch)(const cudaLaunchConfig_t& config, void** arguments);
  const void* function;
};

template <auto Kernel, class... Parameters>
library_kernel describe_kernel(const char* name, void (*)(Parameters...)) {
  static constexpr std::size_t bytes[sizeof...(Parameters) + 1] = {sizeof(Parameters)...};
  return {name,
          typeid(void(Parameters...)).name(),
          sizeof...(Parameters),
          bytes,
          [](const cudaLaunchConfig_t& config, void** arguments) {
            return launch(config, unpack(Kernel, arguments, std::index_sequence_for<Parameters...>()));
          },
          reinterpret_cast<const void*>(Kernel)};
}

}  // namespace devcomm::simulator::detail

#define DEVCOMM_KERNEL(name, ...) devcomm::simulator::detail::describe_kernel<&__VA_ARGS__>(name, &__VA_ARGS__)

/// `kernels`: `DEVCOMM_KERNEL(name, kernel)` of each, with commas between.
#define DEVCOMM_KERNEL_LIBRARY(...)                                                                                  \
  extern "C" {                                                                                                       \
  extern char __start_devcomm_of_each_gpu[] __attribute__((weak, visibility("hidden")));                             \
  extern char __stop_devcomm_of_each_gpu[] __attribute__((weak, visibility("hidden")));                              \
  extern const devcomm::simulator::detail::dynamic_shared devcomm_simulator_dynamic_shared __attribute__((weak));    \
  __attribute__((visibility("hidden"))) thread_local char devcomm_library_anchor = 0;                                \
  std::span<const devcomm::simulator::detail::library_kernel> devcomm_kernels() {                                    \
    static const devcomm::simulator::detail::library_kernel all[] = {__VA_ARGS__};                                   \
    static const bool added =                                                                                        \
        (devcomm::simulator::detail::add_kernel_module({reinterpret_cast<const void*>(&devcomm_kernels),             \
                                                        [] { return &devcomm_library_anchor; },                      \
                                                        "devcomm_library_anchor", &devcomm_simulator_dynamic_shared, \
                                                        __start_devcomm_of_each_gpu, __stop_devcomm_of_each_gpu}),   \
         true);                                                                                                      \
    static_cast<void>(added);                                                                                        \
    return all;                                                                                                      \
  }                                                                                                                  \
  }
