/// \file lanes.cuh
/// Any set of lanes of one warp.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch.cuh>
#include <devcomm/detail/shuffle.cuh>

namespace devcomm {

/// The lanes of the caller's warp whose bit is set in `mask`, ranked from the lowest.
///
/// *Requires* that the caller is one of them, and that all of them call each function together.
class lanes {
 public:
  DEVCOMM_DEVICE explicit lanes(uint32_t mask) : mask_(mask) {
    DEVCOMM_ASSERT((mask >> detail::arch::lane() & 1u) != 0, "the calling lane is not in the mask of its group");
  }

  DEVCOMM_DEVICE uint32_t thread_rank() const { return count(mask_ & ((1u << detail::arch::lane()) - 1u)); }
  DEVCOMM_DEVICE uint32_t size() const { return count(mask_); }
  DEVCOMM_DEVICE void sync() const { detail::arch::sync_warp(mask_); }
  DEVCOMM_DEVICE bool any(bool predicate) const { return detail::arch::any(mask_, predicate); }

  /// `value` of member `root`, for all members.
  template <class T>
  DEVCOMM_DEVICE T broadcast(const T& value, uint32_t root) const {
    DEVCOMM_ASSERT(root < size(), "broadcast root is outside the group");
    return detail::shuffle(mask_, value, lane_of(root));
  }

  DEVCOMM_DEVICE uint32_t mask() const { return mask_; }

 private:
  DEVCOMM_DEVICE static uint32_t count(uint32_t bits) {  // set bits, the usual tree of sums
    bits -= bits >> 1 & 0x55555555u;
    bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
    return ((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
  }
  /// Lane of the member with `rank` set bits below it.
  DEVCOMM_DEVICE uint32_t lane_of(uint32_t rank) const {
    uint32_t rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return count((rest & (0u - rest)) - 1u);
  }

  uint32_t mask_;
};

/// The lanes that reach this call together, as far as the hardware tells.
DEVCOMM_DEVICE inline lanes coalesced() { return lanes(detail::arch::active_mask()); }

}  // namespace devcomm
