/// \file memory_file.hpp
/// Memory that processes share: files without a name, sent by descriptor or opened through /proc.
#pragma once

#include <util/unique_fd.hpp>

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace devcomm::simulator::detail {

/// Throws `host::system_error` with the text of `errno`.
[[noreturn]] void fail_call(const char* call);

[[nodiscard]] struct stat status_of(int descriptor);
/// A new file of zeros.
[[nodiscard]] host::detail::unique_fd make_file(std::size_t bytes);
/// The descriptor's copy, which the caller closes.
[[nodiscard]] int copy_of(int descriptor);

/// A memfd of a process of this host, as bytes: both fabric handles and CUDA IPC are implemented by it.
struct remote_descriptor {
  std::int64_t pid;
  std::int64_t descriptor;
  std::uint64_t inode;
  std::uint64_t bytes;
};

[[nodiscard]] std::vector<std::byte> export_by_name(int descriptor, std::size_t bytes);
[[nodiscard]] remote_descriptor parse_name(std::span<const std::byte> handle);
[[nodiscard]] host::detail::unique_fd open_by_name(const remote_descriptor& name);

}  // namespace devcomm::simulator::detail
