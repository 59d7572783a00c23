/// \file device.hpp
/// What the bindings need of GPUs beside the host library: kernels, and waiting for them. CUDA's driver is behind it,
/// or the simulator.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::python {

struct launch_shape {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned cluster[3] = {1, 1, 1};
  std::size_t shared_bytes = 0;
  std::uintptr_t stream = 0;
  bool cooperative = false;
  bool dependent = false;  ///< may start before its predecessor in the stream ends
};

/// A kernel of a library. Lives as long as the process.
class loaded_kernel {
 public:
  virtual ~loaded_kernel() = default;
  /// Throws `host::system_error` with what the device says. The device is current.
  virtual void launch(int device, const launch_shape& shape, void** arguments) = 0;
  /// Loads it on the device, with the local memory that it needs, so that its first launch waits for nothing.
  virtual void prepare(int device) = 0;
  /// Bytes of each parameter; empty where the driver is too old to say.
  [[nodiscard]] virtual const std::vector<std::size_t>& parameter_bytes() const = 0;
};

struct kernel_name {
  std::string name;    ///< as the user writes it
  std::string symbol;  ///< in the library
  std::string type;    ///< mangled, or empty for that of the library
};

/// One for each name. `library` is the file's path for the simulator, and its content for CUDA.
[[nodiscard]] std::vector<std::shared_ptr<loaded_kernel>> load_kernels(std::string_view library,
                                                                       std::vector<kernel_name>& names);

/// Waits until the stream, or with `stream` null all of the device, has nothing left to do.
void synchronize(int device, const std::uintptr_t* stream);
/// Between the device's memory and the host's, when the device has nothing left to do.
void copy(int device, void* to, const void* from, std::size_t bytes, bool to_device);
/// "cuda" or "simulator".
[[nodiscard]] const char* backend_name();
/// "sm_90" of a device: what kernels are compiled for.
[[nodiscard]] std::string architecture(int device);

/// Memory of the host's heap or a mapping that a kernel is given: on GPUs an error, which says so. Simulated GPUs use
/// it as memory of the device until it is given back, by what this returned; null: it is known already.
[[nodiscard]] void* lend_host_memory(int device, void* base, std::size_t bytes);
void give_back_host_memory(void* lent);

/// Settings of the simulation and its reports; nothing for GPUs.
void bind_simulation(nanobind::module_& m);
/// Threads that start and join each other outside of the library: the caller gives what it knows to `cell`, and takes.
void hand_over(void** cell);
void take_over(void** cell);

}  // namespace devcomm::python
