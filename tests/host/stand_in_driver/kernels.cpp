/// Kernels, which do not run: a launch calls the test's function with its arguments, and is complete when that returns.
/// Programs find these functions by their names in the library, not through `cuGetProcAddress`.
#include "control.hpp"
#include "state.hpp"

#include <cstring>
#include <set>
#include <utility>

namespace stand_in {
namespace {

std::atomic<stand_in_launch_seen> seen{nullptr};

/// The names of all kernels that were asked for. A kernel, and its function, is its name.
std::set<std::string>& names() {
  static auto& only = *new std::set<std::string>;
  return only;
}

/// Of kernels that a device has. A launch loads its kernel, too.
std::set<std::pair<CUdevice, const void*>>& loaded() {
  static auto& only = *new std::set<std::pair<CUdevice, const void*>>;
  return only;
}

}  // namespace
}  // namespace stand_in

#define STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

STAND_IN_EXPORT void stand_in_see_launches(stand_in_launch_seen function) { stand_in::seen = function; }

STAND_IN_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                                           CUlibraryOption*, void**, unsigned) {
  const stand_in::call here("cuLibraryLoadData");
  if (here.fails()) return stand_in::call::failure;
  if (code == nullptr || std::memcmp(code, "\177ELF", 4) != 0)
    return stand_in::complain("cuLibraryLoadData of what is no cubin", CUDA_ERROR_INVALID_IMAGE);
  *library = reinterpret_cast<CUlibrary>(&stand_in::names());
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  const stand_in::call here("cuLibraryGetKernel");
  if (here.fails()) return stand_in::call::failure;
  *kernel = reinterpret_cast<CUkernel>(const_cast<std::string*>(&*stand_in::names().insert(name).first));
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  const stand_in::call here("cuKernelGetFunction");
  if (here.fails()) return stand_in::call::failure;
  if (stand_in::current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  stand_in::loaded().emplace(stand_in::current_device(), kernel);
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  const stand_in::call here("cuFuncGetAttribute");
  if (here.fails()) return stand_in::call::failure;
  *value = 0;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel, CUdevice) {
  const stand_in::call here("cuKernelSetAttribute");
  if (here.fails()) return stand_in::call::failure;
  constexpr int most = 227 << 10;
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > most) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuCtxGetLimit(std::size_t* value, CUlimit) {
  const stand_in::call here("cuCtxGetLimit");
  if (here.fails()) return stand_in::call::failure;
  *value = 1024;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuCtxSetLimit(CUlimit, std::size_t) {
  const stand_in::call here("cuCtxSetLimit");
  return here.result(CUDA_SUCCESS);
}

STAND_IN_EXPORT CUresult cuStreamSynchronize(CUstream) {
  stand_in::wait_for_kernels();
  const stand_in::call here("cuStreamSynchronize");
  return here.result(stand_in::current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
}

STAND_IN_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  stand_in_launch launch{};
  {
    const stand_in::call here("cuLaunchKernelEx");
    if (here.fails()) return stand_in::call::failure;
    if (stand_in::current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
    launch.kernel = reinterpret_cast<const std::string*>(function)->c_str();
    launch.device = stand_in::current_device();
    launch.loaded = stand_in::loaded().emplace(launch.device, function).second ? 0 : 1;
  }
  const unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = grid[i];
    launch.block[i] = block[i];
    launch.cluster[i] = 1;
  }
  launch.shared_bytes = config->sharedMemBytes;
  launch.stream = config->hStream;
  launch.arguments = arguments;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& each = config->attrs[i];
    if (each.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) launch.cooperative = each.value.cooperative;
    if (each.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      launch.dependent = each.value.programmaticStreamSerializationAllowed;
    if (each.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    launch.cluster[0] = each.value.clusterDim.x;
    launch.cluster[1] = each.value.clusterDim.y;
    launch.cluster[2] = each.value.clusterDim.z;
  }
  if (const stand_in_launch_seen observe = stand_in::seen.load(); observe != nullptr) observe(&launch);
  return CUDA_SUCCESS;
}
