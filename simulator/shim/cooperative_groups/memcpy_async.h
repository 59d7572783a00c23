/// \file memcpy_async.h
/// `cg::memcpy_async` and `cg::wait` for the simulator: elements go by `cp.async` where their size and alignment allow.
#pragma once

#include <cooperative_groups.h>
#include <cuda_pipeline_primitives.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cooperative_groups {
namespace detail {

template <std::size_t Size, class Group>
void copy_by_parts(const Group& group, char* to, const char* from, std::size_t bytes) {
  const std::size_t parts = bytes / Size;
  for (std::size_t i = group.thread_rank(); i < parts; i += group.size())
    __pipeline_memcpy_async(to + i * Size, from + i * Size, Size);
  for (std::size_t i = parts * Size + group.thread_rank(); i < bytes; i += group.size()) to[i] = from[i];
}

}  // namespace detail

/// Every thread of the group copies its share, and commits it.
template <class Group, class T>
void memcpy_async(const Group& group, T* destination, const T* source, std::size_t bytes) {
  auto* const to = const_cast<char*>(reinterpret_cast<const volatile char*>(destination));
  auto* const from = reinterpret_cast<const char*>(source);
  const auto misaligned = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  const auto& shared = devcomm::simulator::detail::shared_of_block;
  if (!shared.contains(to) || shared.contains(from) || misaligned % 4 != 0) {
    for (std::size_t i = group.thread_rank(); i < bytes; i += group.size()) to[i] = from[i];
  } else if (misaligned % 16 == 0) {
    detail::copy_by_parts<16>(group, to, from, bytes);
  } else if (misaligned % 8 == 0) {
    detail::copy_by_parts<8>(group, to, from, bytes);
  } else {
    detail::copy_by_parts<4>(group, to, from, bytes);
  }
  __pipeline_commit();
}
/// Counts are of elements; the smaller one is copied.
template <class Group, class T>
void memcpy_async(const Group& group, T* destination, std::size_t room, const T* source, std::size_t count) {
  memcpy_async(group, destination, source, (room < count ? room : count) * sizeof(T));
}

/// Until all copies of the group but those of its latest `Pending` calls are done.
template <unsigned Pending, class Group>
void wait_prior(const Group& group) {
  __pipeline_wait_prior(Pending);
  group.sync();
}
template <class Group>
void wait(const Group& group) {
  wait_prior<0>(group);
}

}  // namespace cooperative_groups
