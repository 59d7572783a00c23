/// \file context.hpp
/// The primary context of each device, which the CUDA runtime uses too.
#pragma once

#include "device/cuda/driver.hpp"

#include <chrono>
#include <cstddef>
#include <new>

namespace devcomm::host::cuda {

/// Retained on first use and for the life of the process, as the CUDA runtime does.
[[nodiscard]] CUcontext primary_context(int device);

/// Makes a device current for a block of code.
class on_device {
 public:
  explicit on_device(int device) : code_(driver().ctx_push_current(primary_context(device))) {
    check(code_, "cuCtxPushCurrent");
  }
  /// For destructors. *Requires* that the device was current before.
  on_device(int device, std::nothrow_t) noexcept : code_(driver().ctx_push_current(primary_context(device))) {
    report(code_, "cuCtxPushCurrent");
  }
  ~on_device() {
    CUcontext popped = nullptr;
    if (code_ == CUDA_SUCCESS) report(driver().ctx_pop_current(&popped), "cuCtxPopCurrent");
  }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;

 private:
  CUresult code_;
};

/// All are complete on return, and wait for no stream of the caller. Where the device does not get to it within `limit`
/// they throw `timeout_error`; it may still do so later.
void set_to_zero(int device, void* destination, std::size_t bytes, std::chrono::milliseconds limit);
void copy_to_device(int device, void* destination, const void* source, std::size_t bytes,
                    std::chrono::milliseconds limit);
void copy_to_host(int device, void* destination, const void* source, std::size_t bytes,
                  std::chrono::milliseconds limit);

/// Waits until the context has nothing left to do, at most for `limit`; whether that was so.
[[nodiscard]] bool wait_until_idle(int device, std::chrono::milliseconds limit);

}  // namespace devcomm::host::cuda
