/// \file host_accesses.hpp
/// Counts what kernels do to pinned host memory by atomic and strong accesses. On GPUs each of them crosses PCIe, so
/// waits of many threads that poll such memory slow down everything else.
#pragma once

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {

void add_host_range(const void* base, size_t bytes);
void remove_host_range(const void* base);

/// Counts an access of a kernel to `address` if that is host memory.
void count_access(const void* address);
[[nodiscard]] uint64_t host_accesses();

}  // namespace devcomm::simulator::detail
