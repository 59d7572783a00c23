/// \file copy_bytes.hpp
/// The bytes of one object as another.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm::detail {

/// Copies `bytes` bytes; NVRTC has `memcpy` of its own and no built-in of GCC's.
DEVCOMM_HOST_DEVICE inline void copy_bytes(void* to, const void* from, size_t bytes) {
#if defined(__CUDACC_RTC__)
  memcpy(to, from, bytes);
#else
  __builtin_memcpy(to, from, bytes);
#endif
}

}  // namespace devcomm::detail
