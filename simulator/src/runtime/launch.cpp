/// Kernel launches and attributes of kernels.
#include <devcomm/simulator/detail/launch.hpp>
#include <devcomm/simulator/simulator.hpp>

#include "base/symbol.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/multiprocessors.hpp"
#include "runtime/graph.hpp"
#include "runtime/host_thread.hpp"
#include "runtime/simulation.hpp"

#include <climits>
#include <cstdio>
#include <map>
#include <string>

namespace devcomm::simulator::detail {
namespace {

class kernel_operation final : public operation {
 public:
  kernel_operation(const launch_shape& shape, std::unique_ptr<kernel_call> call)
      : shape_(shape), call_(std::move(call)) {}
  int run(task&) override { return 0; }
  [[nodiscard]] const launch_shape* shape() const override { return &shape_; }
  [[nodiscard]] const kernel_call* call() const override { return call_.get(); }

 private:
  launch_shape shape_;
  std::unique_ptr<kernel_call> call_;
};

class host_function final : public operation {
 public:
  host_function(cudaHostFn_t function, void* argument) : function_(function), argument_(argument) {}
  int run(task&) override {
    // It may wait for a host thread that calls the runtime.
    the_engine().lock.unlock();
    function_(argument_);
    the_engine().lock.lock();
    return 0;
  }

 private:
  cudaHostFn_t function_;
  void* argument_;
};

/// Largest dynamic shared memory of each kernel that has asked for more than the default.
std::map<const void*, int>& shared_limits() {
  static auto& only = *new std::map<const void*, int>;
  return only;
}

size_t shared_limit(const void* function) {
  const auto found = shared_limits().find(function);
  return found == shared_limits().end() ? gpu_limits::shared_per_block : static_cast<size_t>(found->second);
}

constinit int ptx_version = 90;  // guarded by the engine's lock

cudaError_t check(const launch_shape& shape, const void* function) {
  const dim3& g = shape.grid;
  const dim3& b = shape.block;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > INT_MAX || g.y > 65535 || g.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 1024 || b.y > 1024 || b.z > 64 ||
      uint64_t{b.x} * b.y * b.z > gpu_limits::threads_per_block) {
    return cudaErrorInvalidConfiguration;
  }
  if (shape.dynamic_bytes > shared_limit(function)) return cudaErrorInvalidValue;
  const uint64_t at_once = uint64_t{blocks_at_once(shape)} * static_cast<uint64_t>(the_engine().config.multiprocessors);
  if (wrong_cluster(g, shape.cluster) != nullptr || shape.cluster_blocks() > at_once)
    return cudaErrorInvalidClusterSize;
  if (shape.cooperative) {
    if (shape.blocks() > at_once) return cudaErrorCooperativeLaunchTooLarge;
  }
  return cudaSuccess;
}

/// Refuses pointers to memory of the host, which GPUs cannot read in general, where the memory of kernels is checked.
cudaError_t check_pointers(const kernel_call& call) {
  if (!sanitizer::exact() && !sanitizer::address()) return cudaSuccess;
  for (const auto& [place, pointer] : call.pointers()) {
    const std::string where = describe_host_memory(pointer);
    if (where.empty()) continue;
    const std::string kernel = call.function() == nullptr ? std::string("a kernel") : function_at(call.function());
    std::fprintf(
        stderr,
        "devcomm simulator: argument %d of kernel %s points to %s of the host (%p), which a GPU cannot access in "
        "general; give it memory of cudaMalloc, cudaMallocHost or communicator::allocate (%s)\n",
        place, kernel.c_str(), where.c_str(), pointer, how_to_repeat().c_str());
    return cudaErrorIllegalAddress;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, std::unique_ptr<kernel_call> call) {
  await_launches_at_end();
  const engine_guard hold;
  launch_shape shape;
  shape.grid = config.gridDim;
  shape.block = config.blockDim;
  shape.dynamic_bytes = config.dynamicSmemBytes;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& a = config.attrs[i];
    if (a.id == cudaLaunchAttributeCooperative) shape.cooperative = a.val.cooperative != 0;
    if (a.id == cudaLaunchAttributeClusterDimension)
      shape.cluster = dim3(a.val.clusterDim.x, a.val.clusterDim.y, a.val.clusterDim.z);
    if (a.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      shape.programmatic = a.val.programmaticStreamSerializationAllowed != 0;
  }
  stream_state* s = find_stream(config.stream);
  if (s == nullptr || s->device != current_device()) return keep(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = check(shape, call->function()); error != cudaSuccess) return keep(error);
  if (const cudaError_t error = check_pointers(*call); error != cudaSuccess) return keep(error);
  return keep(give(*s, std::make_unique<kernel_operation>(shape, std::move(call))));
}

cudaError_t set_function_attribute(const void* function, cudaFuncAttribute attribute, int value) {
  const engine_guard hold;
  // Hints, and what is not held back here.
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout ||
      attribute == cudaFuncAttributeNonPortableClusterSizeAllowed)
    return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      value > static_cast<int>(gpu_limits::shared_per_block_opt_in)) {
    return keep(cudaErrorInvalidValue);
  }
  shared_limits()[function] = value;
  return keep(lasting_error());
}

cudaError_t get_function_attributes(cudaFuncAttributes* attributes, const void* function) {
  const engine_guard hold;
  *attributes = {};
  attributes->maxThreadsPerBlock = gpu_limits::threads_per_block;
  attributes->numRegs = 32;
  attributes->ptxVersion = ptx_version;
  attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(shared_limit(function));
  return keep(lasting_error());
}

cudaError_t get_function_name(const char** name, const void* function) {
  const engine_guard hold;
  if (name == nullptr || function == nullptr) return keep(cudaErrorInvalidValue);
  static std::map<const void*, std::string> names;  // CUDA's live as long as the program
  *name = names.try_emplace(function, function_at(function)).first->second.c_str();
  return keep(lasting_error());
}

cudaError_t occupancy(int* blocks, const void* function, int threads, std::size_t dynamic_bytes) {
  const engine_guard hold;
  if (blocks == nullptr || threads <= 0) return keep(cudaErrorInvalidValue);
  launch_shape shape;
  shape.block = dim3(static_cast<unsigned>(threads));
  shape.dynamic_bytes = dynamic_bytes;
  *blocks = dynamic_bytes > shared_limit(function) ? 0 : static_cast<int>(blocks_at_once(shape));
  return keep(lasting_error());
}

extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (function == nullptr) return keep(cudaErrorInvalidValue);
  return keep(give(*s, std::make_unique<host_function>(function, argument)));
}

}  // namespace devcomm::simulator::detail

namespace devcomm::simulator {

void set_ptx_version(int version) {
  const detail::engine_guard hold;
  detail::ptx_version = version;
}

}  // namespace devcomm::simulator
