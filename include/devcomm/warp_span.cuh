/// \file warp_span.cuh
/// Some consecutive warps of a block, meeting at a named barrier.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch.cuh>
#include <devcomm/detail/traits.hpp>

namespace devcomm {

/// `warps` warps of the block from `first_warp` on, so that parts of a block can work apart.
///
/// *Requires* that all their threads call each function together, and that groups that live at the
/// same time use different barriers.
class warp_span {
 public:
  /// `barrier`: a hardware barrier, 1 to 15. 0 is the block's own.
  DEVCOMM_DEVICE warp_span(uint32_t first_warp, uint32_t warps, uint32_t barrier)
      : first_(first_warp * detail::arch::warp_threads), size_(warps * detail::arch::warp_threads), barrier_(barrier) {
    DEVCOMM_ASSERT(barrier >= 1 && barrier < static_cast<uint32_t>(barriers),
                   "a warp_span needs a named barrier from 1 to 15");
    DEVCOMM_ASSERT(warps > 0 && first_ + size_ <= detail::arch::block_threads(),
                   "the warps of a warp_span must be whole warps of the block");
    DEVCOMM_ASSERT(thread_rank() < size_, "the calling thread is not in its warp_span");
  }

  DEVCOMM_DEVICE uint32_t thread_rank() const { return detail::arch::thread_rank() - first_; }
  DEVCOMM_DEVICE uint32_t size() const { return size_; }
  DEVCOMM_DEVICE void sync() const { detail::arch::sync_named(barrier_, size_); }
  DEVCOMM_DEVICE bool any(bool predicate) const { return detail::arch::sync_named_or(barrier_, size_, predicate); }

  /// `value` of member `root`, for all members. Uses 16 times `sizeof(T)` bytes of shared memory.
  template <class T>
  DEVCOMM_DEVICE T broadcast(const T& value, uint32_t root) const {
    static_assert(detail::is_trivially_copyable<T>, "only trivially copyable values are broadcast");
    DEVCOMM_ASSERT(root < size_, "broadcast root is outside the group");
    T* slot = detail::arch::shared_array<warp_span, T, barriers>() + barrier_;
    sync();  // the last broadcast has been read
    if (thread_rank() == root) *slot = value;
    sync();
    return *slot;
  }

 private:
  static constexpr int barriers = 16;

  uint32_t first_;
  uint32_t size_;
  uint32_t barrier_;
};

}  // namespace devcomm
