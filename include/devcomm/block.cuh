/// \file block.cuh
/// The whole thread block.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch.cuh>
#include <devcomm/detail/traits.hpp>

namespace devcomm {

/// All threads of the block.
///
/// *Requires* that all of them call each function together.
struct block {
  DEVCOMM_DEVICE static uint32_t thread_rank() { return detail::arch::thread_rank(); }
  DEVCOMM_DEVICE static uint32_t size() { return detail::arch::block_threads(); }
  DEVCOMM_DEVICE static void sync() { detail::arch::sync_block(); }
  DEVCOMM_DEVICE static bool any(bool predicate) { return detail::arch::sync_block_or(predicate); }

  /// `value` of member `root`, for all members. Uses `sizeof(T)` bytes of shared memory.
  template <class T>
  DEVCOMM_DEVICE static T broadcast(const T& value, uint32_t root) {
    static_assert(detail::is_trivially_copyable<T>, "only trivially copyable values are broadcast");
    DEVCOMM_ASSERT(root < size(), "broadcast root is outside the group");
    T* slot = detail::arch::shared_array<block, T, 1>();
    sync();  // the last broadcast has been read
    if (thread_rank() == root) *slot = value;
    sync();
    return *slot;
  }
};

}  // namespace devcomm
