/// \file random.hpp
/// Unpredictable bytes.
#pragma once

#include <devcomm/host/error.hpp>

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <type_traits>

namespace devcomm::host::detail {

/// A value of random bytes from the kernel.
template <class T>
[[nodiscard]] T random_value() {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256, "getrandom gives up to 256 bytes at once");
  T value;
  if (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    throw system_error(std::string("getrandom failed: ") + std::strerror(errno));
  }
  return value;
}

}  // namespace devcomm::host::detail
