#include "device/cuda/context.hpp"

#include <devcomm/host/error.hpp>

#include "util/deadline.hpp"
#include "util/quiet_thread.hpp"

#include <algorithm>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace devcomm::host::cuda {
namespace {

class own_stream {
 public:
  explicit own_stream(int device) : device_(device) {
    check(driver().stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  /// Does not wait either.
  ~own_stream() { report(driver().stream_destroy(stream_), "cuStreamDestroy"); }
  own_stream(const own_stream&) = delete;
  own_stream& operator=(const own_stream&) = delete;

  [[nodiscard]] CUstream get() const noexcept { return stream_; }

  /// `what`: "zeroing memory".
  void wait(const char* what, std::chrono::milliseconds limit) const {
    const detail::deadline until(limit);
    for (std::chrono::microseconds pause(5);; pause = std::min(2 * pause, std::chrono::microseconds(1000))) {
      const CUresult code = driver().stream_query(stream_);
      if (code != CUDA_ERROR_NOT_READY) return check(code, "cuStreamQuery");
      if (until.passed()) {
        throw timeout_error(std::string(what) + " of device " + std::to_string(device_) + " did not end within " +
                            until.limit_text() +
                            ": kernels fill the device. Does one of them wait for a rank that is in this call or has "
                            "yet to come? Let kernels end before collective calls of the host, or leave a "
                            "multiprocessor free");
      }
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  int device_;
  CUstream stream_ = nullptr;
};

}  // namespace

CUcontext primary_context(int device) {
  // Never destroyed: owners may be static objects.
  static auto& mutex = *new std::mutex;
  static auto& contexts = *new std::map<int, CUcontext>;
  const std::lock_guard lock(mutex);
  const auto known = contexts.find(device);
  if (known != contexts.end()) return known->second;
  CUdevice handle = 0;
  check(driver().device_get(&handle, device), "cuDeviceGet");
  CUcontext context = nullptr;
  check(driver().device_primary_ctx_retain(&context, handle), "cuDevicePrimaryCtxRetain");
  contexts[device] = context;
  return context;
}

void set_to_zero(int device, void* destination, std::size_t bytes, std::chrono::milliseconds limit) {
  const on_device scope(device);
  const own_stream stream(device);
  check(driver().memset_d8_async(reinterpret_cast<CUdeviceptr>(destination), 0, bytes, stream.get()),
        "cuMemsetD8Async");
  stream.wait("zeroing memory", limit);
}

void copy_to_device(int device, void* destination, const void* source, std::size_t bytes,
                    std::chrono::milliseconds limit) {
  const on_device scope(device);
  const own_stream stream(device);
  check(driver().memcpy_htod_async(reinterpret_cast<CUdeviceptr>(destination), source, bytes, stream.get()),
        "cuMemcpyHtoDAsync");
  stream.wait("copying to memory", limit);
}

void copy_to_host(int device, void* destination, const void* source, std::size_t bytes,
                  std::chrono::milliseconds limit) {
  const on_device scope(device);
  const own_stream stream(device);
  check(driver().memcpy_dtoh_async(destination, reinterpret_cast<CUdeviceptr>(source), bytes, stream.get()),
        "cuMemcpyDtoHAsync");
  stream.wait("reading memory", limit);
}

// The driver's call has no limit, so a thread that may be left behind makes it.
bool wait_until_idle(int device, std::chrono::milliseconds limit) {
  const auto answer = std::make_shared<std::promise<void>>();
  std::future<void> idle = answer->get_future();
  detail::quiet_thread([answer, context = primary_context(device)] {
    try {
      check(driver().ctx_set_current(context), "cuCtxSetCurrent");
      check(driver().ctx_synchronize(), "cuCtxSynchronize");
      answer->set_value();
    } catch (...) {
      answer->set_exception(std::current_exception());
    }
  }).detach();
  if (idle.wait_for(limit) != std::future_status::ready) return false;
  idle.get();
  return true;
}

}  // namespace devcomm::host::cuda
