/// Allocation, copies and fills, as stream operations.
#include "gpu/device_memory.hpp"
#include "runtime/graph.hpp"
#include "runtime/host_thread.hpp"
#include "runtime/simulation.hpp"

#include <cstring>

namespace devcomm::simulator::detail {
namespace {

// memcpy and memset are seen by ThreadSanitizer, as accesses of the task.
class copy_operation final : public operation {
 public:
  copy_operation(void* to, const void* from, size_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  /// Keeps a copy of the source, which the caller may change once the call has returned.
  void stage() {
    staged_.reset(new char[bytes_]);
    std::memcpy(staged_.get(), from_, bytes_);
  }
  int run(task&) override {
    std::memmove(to_, staged_ ? staged_.get() : from_, bytes_);
    return 0;
  }

 private:
  void* to_;
  const void* from_;
  size_t bytes_;
  std::unique_ptr<char[]> staged_;
};

class fill_operation final : public operation {
 public:
  fill_operation(void* to, int value, size_t bytes) : to_(to), value_(value), bytes_(bytes) {}
  int run(task&) override {
    std::memset(to_, value_, bytes_);
    return 0;
  }

 private:
  void* to_;
  int value_;
  size_t bytes_;
};

class free_operation final : public operation {
 public:
  explicit free_operation(void* pointer) : pointer_(pointer) {}
  int run(task&) override { return detail::release(memory_kind::device, pointer_) ? 0 : cudaErrorInvalidValue; }
  [[nodiscard]] bool runs_after_failure() const override { return true; }

 private:
  void* pointer_;
};

bool pageable(const void* p) { return kind_of(p) == memory_kind::unknown; }

cudaError_t copy(stream_state* s, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, bool wait) {
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (bytes == 0) return lasting_error();
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  const bool host_source = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
  const bool host_destination = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
  // A host address named as a device's is caught; windows and pinned memory are reachable from both.
  if (kind != cudaMemcpyDefault && ((!host_source && pageable(from)) || (!host_destination && pageable(to)))) {
    return cudaErrorInvalidValue;
  }
  const bool in_capture = s->recording != nullptr;
  if (wait && in_capture) return refuse_in_capture(*s);
  auto work = std::make_unique<copy_operation>(to, from, bytes);
  if (!wait && !in_capture && pageable(from)) work->stage();
  const bool wait_for_destination = wait || (!in_capture && pageable(to));
  task_ref t;
  if (const cudaError_t error = give(*s, std::move(work), &t); error != cudaSuccess) return error;
  return wait_for_destination ? static_cast<cudaError_t>(synchronize(*s)) : cudaSuccess;
}

cudaError_t fill(stream_state* s, void* to, int value, size_t bytes, bool wait) {
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return lasting_error();
  if (to == nullptr || pageable(to)) return cudaErrorInvalidValue;
  if (const cudaError_t error = give(*s, std::make_unique<fill_operation>(to, value, bytes)); error != cudaSuccess) {
    return error;
  }
  return wait ? static_cast<cudaError_t>(synchronize(*s)) : cudaSuccess;
}

cudaError_t obtain(void** pointer, memory_kind kind, size_t bytes) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (const cudaError_t error = lasting_error(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  *pointer = allocate(kind, current_device(), bytes);
  return *pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

/// Lets all work of `device` end without taking its errors.
class device_idle final : public condition {
 public:
  explicit device_idle(int device) : device_(device) {}
  bool holds() override {
    for (const stream_state* s : streams_of(device_)) {
      if (s->tail && !s->tail->done) return false;
      for (const task_ref& earlier : s->beside_tail) {
        if (!earlier->done) return false;
      }
    }
    return true;
  }

 private:
  int device_;
};

cudaError_t drop(memory_kind kind, void* pointer) {
  if (pointer == nullptr) return lasting_error();
  int device = 0;
  if (kind_of(pointer, &device) != kind) return cudaErrorInvalidValue;
  device_idle idle(device);
  engine& e = the_engine();
  ++e.waiting_frees;
  e.host_wait(idle);
  --e.waiting_frees;
  return release(kind, pointer) ? lasting_error() : cudaErrorInvalidValue;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const engine_guard hold;
  return keep(obtain(pointer, memory_kind::device, bytes));
}
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  const engine_guard hold;
  const stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (s->recording != nullptr) return keep(cudaErrorStreamCaptureUnsupported);
  return keep(obtain(pointer, memory_kind::device, bytes));
}
cudaError_t cudaFree(void* pointer) {
  const engine_guard hold;
  return keep(drop(memory_kind::device, pointer));
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  const engine_guard hold;
  stream_state* s = find_stream(stream);
  if (s == nullptr) return keep(cudaErrorInvalidResourceHandle);
  if (s->recording != nullptr) return keep(refuse_in_capture(*s));
  if (kind_of(pointer) != memory_kind::device) return keep(cudaErrorInvalidValue);
  return keep(give(*s, std::make_unique<free_operation>(pointer)));
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  const engine_guard hold;
  return keep(obtain(pointer, memory_kind::pinned, bytes));
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int flags) {
  if (flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) {
    return keep(cudaErrorInvalidValue);
  }
  return cudaMallocHost(pointer, bytes);
}
cudaError_t cudaFreeHost(void* pointer) {
  const engine_guard hold;
  return keep(drop(memory_kind::pinned, pointer));
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  const engine_guard hold;
  if (flags != 0 || kind_of(host) != memory_kind::pinned) return keep(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const engine_guard hold;
  int device = -1;
  const memory_kind kind = kind_of(pointer, &device);
  void* const p = const_cast<void*>(pointer);
  *attributes = {kind == memory_kind::device   ? cudaMemoryTypeDevice
                 : kind == memory_kind::pinned ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered,
                 device, kind == memory_kind::unknown ? nullptr : p, kind == memory_kind::device ? nullptr : p};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const engine_guard hold;
  *total = device_memory_bytes;
  *free = device_memory_bytes - allocated_bytes(current_device());
  return keep(lasting_error());
}

cudaError_t cudaMemcpy(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  const engine_guard hold;
  return keep(copy(find_stream(nullptr), destination, source, bytes, kind, true));
}
cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const engine_guard hold;
  return keep(copy(find_stream(stream), destination, source, bytes, kind, false));
}
cudaError_t cudaMemcpyPeer(void* destination, int, const void* source, int, std::size_t bytes) {
  const engine_guard hold;
  return keep(copy(find_stream(nullptr), destination, source, bytes, cudaMemcpyDeviceToDevice, true));
}
cudaError_t cudaMemcpyPeerAsync(void* destination, int, const void* source, int, std::size_t bytes,
                                cudaStream_t stream) {
  const engine_guard hold;
  return keep(copy(find_stream(stream), destination, source, bytes, cudaMemcpyDeviceToDevice, false));
}
cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
  const engine_guard hold;
  // As in CUDA, the host waits only for memory of its own.
  return keep(fill(find_stream(nullptr), pointer, value, bytes, kind_of(pointer) == memory_kind::pinned));
}
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
  const engine_guard hold;
  return keep(fill(find_stream(stream), pointer, value, bytes, false));
}
}

}  // namespace devcomm::simulator::detail
