/// Simulated GPUs: kernels are functions of a library that the simulator's compiler has made.
#include "device.hpp"

#include <devcomm/host/error.hpp>
#include <devcomm/simulator/detail/kernel_library.hpp>
#include <devcomm/simulator/simulator.hpp>

#include "base/race_port.hpp"
#include "gpu/device_memory.hpp"
#include "runtime/simulation.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nanobind/stl/string.h>

#include <map>
#include <span>

namespace devcomm::python {
namespace {

using simulator::detail::library_kernel;

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  std::string text = std::string(call) + " failed: " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ")";
  if (const std::string failure = simulator::last_failure(); !failure.empty()) text += ": " + failure;
  throw host::system_error(text);
}

class simulated_kernel final : public loaded_kernel {
 public:
  explicit simulated_kernel(const library_kernel& kernel)
      : kernel_(kernel), bytes_(kernel.bytes, kernel.bytes + kernel.parameters) {}

  void launch(int device, const launch_shape& shape, void** arguments) override {
    check(cudaSetDevice(device), "launch");
    cudaLaunchAttribute attributes[3]{};
    unsigned count = 0;
    if (shape.cooperative) {
      attributes[count].id = cudaLaunchAttributeCooperative;
      attributes[count++].val.cooperative = 1;
    }
    if (shape.dependent) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {shape.cluster[0], shape.cluster[1], shape.cluster[2]};
    }
    if (shape.shared_bytes > 48 * 1024) {
      check(simulator::detail::set_function_attribute(kernel_.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(shape.shared_bytes)),
            "launch");
    }
    const cudaLaunchConfig_t config{dim3(shape.grid[0], shape.grid[1], shape.grid[2]),
                                    dim3(shape.block[0], shape.block[1], shape.block[2]),
                                    shape.shared_bytes,
                                    reinterpret_cast<cudaStream_t>(shape.stream),
                                    attributes,
                                    count};
    check(kernel_.launch(config, arguments), "launch");
  }
  void prepare(int) override {}
  [[nodiscard]] const std::vector<std::size_t>& parameter_bytes() const override { return bytes_; }

 private:
  const library_kernel& kernel_;
  std::vector<std::size_t> bytes_;
};

struct lent_range {
  std::size_t bytes = 0;
  int users = 0;  ///< launches
};
/// By their first byte. Guarded by the engine's lock.
std::map<char*, lent_range>& lent_ranges() {
  static auto& only = *new std::map<char*, lent_range>;
  return only;
}

}  // namespace

std::vector<std::shared_ptr<loaded_kernel>> load_kernels(std::string_view library, std::vector<kernel_name>& names) {
  // Never closed: what was launched may use it.
  void* const opened = dlopen(std::string(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw host::system_error(std::string("compile: ") + dlerror());
  using list_of_kernels = std::span<const library_kernel> (*)();
  auto* const list = reinterpret_cast<list_of_kernels>(dlsym(opened, "devcomm_kernels"));
  if (list == nullptr) throw host::system_error("compile: " + std::string(library) + " has no kernels of devcomm");
  std::vector<std::shared_ptr<loaded_kernel>> loaded;
  for (kernel_name& wanted : names) {
    for (const library_kernel& each : list()) {
      if (wanted.name != each.name) continue;
      wanted.type = each.type;
      loaded.push_back(std::make_shared<simulated_kernel>(each));
      break;
    }
  }
  return loaded;
}

void synchronize(int device, const std::uintptr_t* stream) {
  check(cudaSetDevice(device), "synchronize");
  check(stream != nullptr ? cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(*stream)) : cudaDeviceSynchronize(),
        "synchronize");
}

void copy(int device, void* to, const void* from, std::size_t bytes, bool to_device) {
  synchronize(device, nullptr);
  check(cudaMemcpy(to, from, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost), "copy");
}

const char* backend_name() { return "simulator"; }

std::string architecture(int device) {
  int major = 0;
  int minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compile");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "compile");
  return "sm_" + std::to_string(10 * major + minor);
}

void* lend_host_memory(int device, void* base, std::size_t bytes) {
  const simulator::detail::engine_guard hold;
  char* const first = static_cast<char*>(base);
  for (auto& [start, range] : lent_ranges()) {
    if (first < start || first + bytes > start + range.bytes) continue;
    ++range.users;
    return start;
  }
  // Of the device already, or too small for what there is: the launch says what is wrong.
  if (bytes == 0 || simulator::detail::find_allocation(base)) return nullptr;
  simulator::detail::add_device_range(device, base, bytes, simulator::detail::array_of_host);
  lent_ranges()[first] = {bytes, 1};
  return base;
}

void give_back_host_memory(void* lent) {
  const simulator::detail::engine_guard hold;
  const auto found = lent_ranges().find(static_cast<char*>(lent));
  if (found == lent_ranges().end() || --found->second.users > 0) return;
  simulator::detail::remove_range(lent);
  lent_ranges().erase(found);
}

void bind_simulation(nanobind::module_& m) {
  namespace nb = nanobind;
  m.def("race_reports", &simulator::race_reports);
  m.def("last_race", &simulator::last_race);
  m.def("clear_races", &simulator::clear_races);
  m.def("set_race_exit_status", &simulator::set_race_exit_status, nb::arg("status"));
  m.def("last_failure", &simulator::last_failure);
  m.def("clear_failure", &simulator::clear_failure);
  m.def("set_seed", &simulator::set_seed, nb::arg("seed"));
  m.def(
      "set_schedule", [](const std::string& text) { simulator::set_schedule(text); }, nb::arg("schedule"));
  m.def("set_store_delay", &simulator::set_store_delay, nb::arg("steps"));
}

void hand_over(void** cell) {
  if (simulator::detects_races()) devcomm_simulator_race_port.release(cell);
}
void take_over(void** cell) {
  if (simulator::detects_races()) devcomm_simulator_race_port.acquire(cell);
}

}  // namespace devcomm::python
