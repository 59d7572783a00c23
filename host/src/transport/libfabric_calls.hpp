/// \file libfabric_calls.hpp
/// The functions that libfabric's library exports; all others are members of its objects.
#pragma once

#include <cstdint>
#include <string>

struct fi_info;
struct fi_fabric_attr;
struct fid_fabric;

namespace devcomm::host::detail {

struct libfabric_calls {
  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                 const struct fi_info* hints, struct fi_info** info);
  void (*freeinfo)(struct fi_info* info);
  struct fi_info* (*dupinfo)(const struct fi_info* info);
  int (*fabric)(struct fi_fabric_attr* attributes, struct fid_fabric** fabric, void* context);
  const char* (*strerror)(int code);
  std::uint32_t (*version)();

  /// "Connection refused" of -111 or 111.
  [[nodiscard]] std::string text_of(long code) const;
};

/// Loads the library on first use. Throws `not_supported` where it is not installed, or too old.
[[nodiscard]] const libfabric_calls& libfabric_library();

}  // namespace devcomm::host::detail
