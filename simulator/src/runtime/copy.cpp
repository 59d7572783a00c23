/// Allocation, copies and fills, as stream operations.
#include "gpu/device_globals.hpp"
#include "gpu/device_memory.hpp"
#include "runtime/graph.hpp"
#include "runtime/host_thread.hpp"
#include "runtime/simulation.hpp"

#include <cstring>
#include <vector>

namespace devcomm::simulator::detail {
namespace {

/// Whether a copy is that of a word: it is one access, and comes, as all that is on a stream, after what is before it
/// there. So a kernel that polls the word and acquires it sees the copies before. With other sizes nothing is promised.
bool is_word(const void* to, const void* from, size_t bytes) {
  const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(uint64_t) == 0; };
  return bytes == sizeof(uint64_t) && is_aligned(to) && is_aligned(from);
}

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
    const void* const from = staged_ ? staged_.get() : from_;
    if (is_word(to_, from, bytes_)) {
      uint64_t value = 0;
      std::memcpy(&value, from, sizeof value);
      sanitizer::store_release(static_cast<uint64_t*>(to_), value);
    } else {
      std::memmove(to_, from, bytes_);
    }
    return 0;
  }

 private:
  void* to_;
  const void* from_;
  size_t bytes_;
  std::unique_ptr<char[]> staged_;
};

/// Rows of `width` bytes, so many bytes apart at both ends.
class copy_rows final : public operation {
 public:
  struct side {
    char* at;
    size_t pitch;
  };
  copy_rows(side to, side from, size_t width, size_t height) : to_(to), from_(from), width_(width), height_(height) {}
  int run(task&) override {
    for (size_t i = 0; i < height_; ++i) std::memmove(to_.at + i * to_.pitch, from_.at + i * from_.pitch, width_);
    return 0;
  }

 private:
  side to_;
  side from_;
  size_t width_;
  size_t height_;
};

/// To or from a `__device__` or `__constant__` variable of the current device.
class copy_of_symbol final : public operation {
 public:
  copy_of_symbol(int device, void* to, const void* from, size_t bytes)
      : device_(device), to_(to), from_(from), bytes_(bytes) {}
  void stage() {
    staged_.assign(static_cast<const char*>(from_), static_cast<const char*>(from_) + bytes_);
    from_ = staged_.data();
  }
  int run(task&) override {
    use_globals_of(device_);
    if (sanitizer::thread()) {  // takes one address for one variable, and each GPU has its own: not by its memmove
      const auto* const from = static_cast<const char*>(from_);
      for (size_t i = 0; i < bytes_; ++i) static_cast<volatile char*>(to_)[i] = from[i];
      return 0;
    }
    std::memmove(to_, from_, bytes_);
    return 0;
  }

 private:
  int device_;
  void* to_;
  const void* from_;
  size_t bytes_;
  std::vector<char> staged_;
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

cudaError_t copy_2d(stream_state* s, copy_rows::side to, copy_rows::side from, size_t width, size_t height,
                    cudaMemcpyKind kind, bool wait) {
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (width > to.pitch || width > from.pitch) return cudaErrorInvalidPitchValue;
  if (width == 0 || height == 0) return lasting_error();
  if (to.at == nullptr || from.at == nullptr) return cudaErrorInvalidValue;
  const bool in_capture = s->recording != nullptr;
  if (wait && in_capture) return refuse_in_capture(*s);
  const bool waits = wait || (!in_capture && (pageable(to.at) || pageable(from.at)));
  if (const cudaError_t error = give(*s, std::make_unique<copy_rows>(to, from, width, height)); error != cudaSuccess)
    return error;
  return waits ? static_cast<cudaError_t>(synchronize(*s)) : cudaSuccess;
}

cudaError_t copy_symbol(stream_state* s, void* to, const void* from, size_t bytes, bool to_symbol, bool wait) {
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return lasting_error();
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  const bool in_capture = s->recording != nullptr;
  if (wait && in_capture) return refuse_in_capture(*s);
  auto work = std::make_unique<copy_of_symbol>(current_device(), to, from, bytes);
  if (to_symbol && !wait && !in_capture && pageable(from)) work->stage();
  const bool waits = wait || (!to_symbol && !in_capture && pageable(to));
  if (const cudaError_t error = give(*s, std::move(work)); error != cudaSuccess) return error;
  return waits ? static_cast<cudaError_t>(synchronize(*s)) : cudaSuccess;
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

cudaError_t copy_to_symbol(void* symbol, const void* source, std::size_t bytes, cudaStream_t stream, bool wait) {
  const engine_guard hold;
  return keep(copy_symbol(find_stream(stream), symbol, source, bytes, true, wait));
}
cudaError_t copy_from_symbol(void* destination, const void* symbol, std::size_t bytes, cudaStream_t stream, bool wait) {
  const engine_guard hold;
  return keep(copy_symbol(find_stream(stream), destination, symbol, bytes, false, wait));
}

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
cudaError_t cudaMemcpy2D(void* destination, std::size_t destination_pitch, const void* source, std::size_t source_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  const engine_guard hold;
  return keep(copy_2d(find_stream(nullptr), {static_cast<char*>(destination), destination_pitch},
                      {static_cast<char*>(const_cast<void*>(source)), source_pitch}, width, height, kind, true));
}
cudaError_t cudaMemcpy2DAsync(void* destination, std::size_t destination_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const engine_guard hold;
  return keep(copy_2d(find_stream(stream), {static_cast<char*>(destination), destination_pitch},
                      {static_cast<char*>(const_cast<void*>(source)), source_pitch}, width, height, kind, false));
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
