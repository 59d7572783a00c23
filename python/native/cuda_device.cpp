/// CUDA's GPUs: kernels come as cubin, and are loaded for all devices of the process at once.
#include "device.hpp"

#include <devcomm/host/error.hpp>

#include "device/cuda/context.hpp"
#include "device/cuda/driver.hpp"

#include <dlfcn.h>

#include <chrono>
#include <map>
#include <mutex>
#include <utility>

namespace devcomm::python {
namespace {

using host::cuda::check;

/// What the host library does not need of the driver.
struct kernel_functions {
  decltype(&cuLibraryLoadData) library_load_data;
  decltype(&cuLibraryGetKernel) library_get_kernel;
  decltype(&cuLaunchKernelEx) launch_kernel_ex;
  decltype(&cuKernelSetAttribute) kernel_set_attribute;
  decltype(&cuKernelGetFunction) kernel_get_function;
  decltype(&cuFuncGetAttribute) func_get_attribute;
  decltype(&cuCtxGetLimit) ctx_get_limit;
  decltype(&cuCtxSetLimit) ctx_set_limit;
  decltype(&cuStreamSynchronize) stream_synchronize;
  CUresult (*kernel_get_param_info)(CUkernel, std::size_t, std::size_t*, std::size_t*);  ///< null before 12.4
};

const kernel_functions& functions() {
  static const kernel_functions all = [] {
    static_cast<void>(host::cuda::driver());  // throws where there is none
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    const auto find = [&](auto& place, const char* name, bool needed) {
      place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(dlsym(library, name));
      if (place == nullptr && needed) {
        throw host::not_supported(std::string("kernels of Python need ") + name +
                                  ", which this driver lacks; install driver 525 or newer");
      }
    };
    kernel_functions f{};
    find(f.library_load_data, "cuLibraryLoadData", true);
    find(f.library_get_kernel, "cuLibraryGetKernel", true);
    find(f.launch_kernel_ex, "cuLaunchKernelEx", true);
    find(f.kernel_set_attribute, "cuKernelSetAttribute", true);
    find(f.kernel_get_function, "cuKernelGetFunction", true);
    find(f.func_get_attribute, "cuFuncGetAttribute", true);
    find(f.ctx_get_limit, "cuCtxGetLimit", true);
    find(f.ctx_set_limit, "cuCtxSetLimit", true);
    find(f.stream_synchronize, "cuStreamSynchronize", true);
    find(f.kernel_get_param_info, "cuKernelGetParamInfo", false);
    return f;
  }();
  return all;
}

class cuda_kernel final : public loaded_kernel {
 public:
  explicit cuda_kernel(CUkernel kernel) : kernel_(kernel) {
    if (functions().kernel_get_param_info == nullptr) return;
    std::size_t offset = 0;
    std::size_t bytes = 0;
    for (std::size_t i = 0; functions().kernel_get_param_info(kernel, i, &offset, &bytes) == CUDA_SUCCESS; ++i)
      bytes_.push_back(bytes);
  }

  void launch(int device, const launch_shape& shape, void** arguments) override {
    const host::cuda::on_device current(device);
    if (shape.shared_bytes > 48 * 1024) allow_shared(device, shape.shared_bytes);
    CUlaunchAttribute attributes[3]{};
    unsigned count = 0;
    if (shape.cooperative) {
      attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      attributes[count++].value.cooperative = 1;
    }
    if (shape.dependent) {
      attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attributes[count++].value.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > 1) {
      attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attributes[count++].value.clusterDim = {shape.cluster[0], shape.cluster[1], shape.cluster[2]};
    }
    CUlaunchConfig config{};
    config.gridDimX = shape.grid[0];
    config.gridDimY = shape.grid[1];
    config.gridDimZ = shape.grid[2];
    config.blockDimX = shape.block[0];
    config.blockDimY = shape.block[1];
    config.blockDimZ = shape.block[2];
    config.sharedMemBytes = static_cast<unsigned>(shape.shared_bytes);
    config.hStream = reinterpret_cast<CUstream>(shape.stream);
    config.attrs = attributes;
    config.numAttrs = count;
    check(functions().launch_kernel_ex(&config, reinterpret_cast<CUfunction>(kernel_), arguments, nullptr),
          "cuLaunchKernelEx");
  }
  void prepare(int device) override {
    const host::cuda::on_device current(device);
    CUfunction function = nullptr;
    check(functions().kernel_get_function(&function, kernel_), "cuKernelGetFunction");
    int local_bytes = 0;
    check(functions().func_get_attribute(&local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function),
          "cuFuncGetAttribute");
    std::size_t provided = 0;
    check(functions().ctx_get_limit(&provided, CU_LIMIT_STACK_SIZE), "cuCtxGetLimit");
    if (provided < static_cast<std::size_t>(local_bytes))
      check(functions().ctx_set_limit(CU_LIMIT_STACK_SIZE, static_cast<std::size_t>(local_bytes)), "cuCtxSetLimit");
  }
  [[nodiscard]] const std::vector<std::size_t>& parameter_bytes() const override { return bytes_; }

 private:
  void allow_shared(int device, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::size_t& allowed = allowed_[device];
    if (bytes <= allowed) return;
    check(functions().kernel_set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(bytes),
                                           kernel_, host::cuda::handle_of(device)),
          "cuKernelSetAttribute");
    allowed = bytes;
  }

  CUkernel kernel_;
  std::vector<std::size_t> bytes_;
  std::mutex mutex_;
  std::map<int, std::size_t> allowed_;
};

}  // namespace

std::vector<std::shared_ptr<loaded_kernel>> load_kernels(std::string_view library, std::vector<kernel_name>& names) {
  CUlibrary loaded = nullptr;  // never unloaded: graphs may launch its kernels
  check(functions().library_load_data(&loaded, library.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData");
  std::vector<std::shared_ptr<loaded_kernel>> kernels;
  for (const kernel_name& each : names) {
    CUkernel kernel = nullptr;
    check(functions().library_get_kernel(&kernel, loaded, each.symbol.c_str()), "cuLibraryGetKernel");
    kernels.push_back(std::make_shared<cuda_kernel>(kernel));
  }
  return kernels;
}

void synchronize(int device, const std::uintptr_t* stream) {
  const host::cuda::on_device current(device);
  if (stream == nullptr) {
    check(host::cuda::driver().ctx_synchronize(), "cuCtxSynchronize");
  } else {
    check(functions().stream_synchronize(reinterpret_cast<CUstream>(*stream)), "cuStreamSynchronize");
  }
}

void copy(int device, void* to, const void* from, std::size_t bytes, bool to_device) {
  synchronize(device, nullptr);
  constexpr std::chrono::minutes limit(10);
  if (to_device) {
    host::cuda::copy_to_device(device, to, from, bytes, limit);
  } else {
    host::cuda::copy_to_host(device, to, from, bytes, limit);
  }
}

const char* backend_name() { return "cuda"; }

std::string architecture(int device) {
  return "sm_" + std::to_string(10 * host::cuda::attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                                host::cuda::attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

void* lend_host_memory(int, void*, std::size_t) {
  throw host::invalid_argument(
      "the array is in memory of the host, which a GPU cannot access in general; give an array of its device");
}

void give_back_host_memory(void*) {}

void bind_simulation(nanobind::module_& m) {
  m.def("race_reports", [] { return 0; });
}
void hand_over(void**) {}
void take_over(void**) {}

}  // namespace devcomm::python
