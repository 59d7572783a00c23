/// \file coop.h
/// Groups of threads: devcomm's, with NCCL's names.
#ifndef DEVCOMM_NCCL_DEVICE_COOP_H_
#define DEVCOMM_NCCL_DEVICE_COOP_H_

#include <devcomm/any_group.cuh>
#include <devcomm/group.cuh>
#include <nccl_device/core.h>

namespace devcomm::nccl {

/// What NCCL's groups have of `Group`.
template <class Group>
class coop : public Group {
 public:
  using Group::Group;
  DEVCOMM_DEVICE coop(const Group& group) : Group(group) {}

  using devcomm_group = Group;

  DEVCOMM_DEVICE int thread_rank() const { return static_cast<int>(Group::thread_rank()); }
  DEVCOMM_DEVICE int size() const { return static_cast<int>(Group::size()); }
  DEVCOMM_DEVICE int num_threads() const { return size(); }
};

/// A class of the program's own whose members are not const, as NCCL does not ask for it.
template <class Coop>
class own_group {
 public:
  DEVCOMM_DEVICE own_group(const Coop& coop) : coop_(coop) {}
  DEVCOMM_DEVICE uint32_t thread_rank() const { return static_cast<uint32_t>(coop_.thread_rank()); }
  DEVCOMM_DEVICE uint32_t size() const { return static_cast<uint32_t>(coop_.size()); }
  DEVCOMM_DEVICE void sync() const { coop_.sync(); }

 private:
  mutable Coop coop_;
};

/// The group that devcomm's calls take: for other classes than NCCL's, themselves where they can be.
template <class Coop, class = void>
struct group_of_coop {
  using type = devcomm::detail::conditional_t<is_group<Coop>, Coop, own_group<Coop>>;
};
template <class Coop>
struct group_of_coop<Coop, devcomm::detail::void_t<typename Coop::devcomm_group>> {
  using type = typename Coop::devcomm_group;
};
template <class Coop>
using group_t = typename group_of_coop<Coop>::type;
template <class Coop>
DEVCOMM_DEVICE group_t<Coop> group_of(const Coop& coop) {
  return coop;
}

}  // namespace devcomm::nccl

/// `nThreadsPow2` consecutive lanes.
template <int nThreadsPow2>
struct ncclCoopTile : devcomm::nccl::coop<devcomm::tile<nThreadsPow2>> {
  DEVCOMM_DEVICE static uint32_t laneMask() { return devcomm::tile<nThreadsPow2>::mask(); }
};
typedef ncclCoopTile<1> ncclCoopThread;
typedef ncclCoopTile<32> ncclCoopWarp;

/// The lanes of a mask.
struct ncclCoopLanes : devcomm::nccl::coop<devcomm::lanes> {
  DEVCOMM_DEVICE explicit ncclCoopLanes(uint32_t lmask = devcomm::arch::full_mask)
      : devcomm::nccl::coop<devcomm::lanes>(devcomm::lanes(lmask)) {}
  DEVCOMM_DEVICE uint32_t getLaneMask() const { return mask(); }
};

/// `nWarps` warps from `warp0` on. Groups that live at the same time have different `id`, 0 to 14.
struct ncclCoopWarpSpan : devcomm::nccl::coop<devcomm::warp_span> {
  DEVCOMM_DEVICE ncclCoopWarpSpan(int warp0, int nWarps, int id)
      : devcomm::nccl::coop<devcomm::warp_span>(devcomm::warp_span(
            static_cast<uint32_t>(warp0), static_cast<uint32_t>(nWarps), static_cast<uint32_t>(id) + 1)) {}
};

/// All threads of the block.
struct ncclCoopCta : devcomm::nccl::coop<devcomm::block> {};

/// Any of the groups.
struct ncclCoopAny : devcomm::nccl::coop<devcomm::any_group> {
  template <class Group>
  DEVCOMM_DEVICE ncclCoopAny(const devcomm::nccl::coop<Group>& group)
      : devcomm::nccl::coop<devcomm::any_group>(devcomm::any_group(static_cast<const Group&>(group))) {}
};

NCCL_DEVICE_INLINE ncclCoopLanes ncclCoopCoalesced() { return ncclCoopLanes(devcomm::arch::active_mask()); }

template <class Coop>
NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(const Coop&) {
  return false;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(const ncclCoopThread&) { return true; }

/// Whether the group's threads are of one warp.
template <class Coop>
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(const Coop&) {
  return false;
}
template <int n>
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(const ncclCoopTile<n>&) {
  return true;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(const ncclCoopLanes&) { return true; }

/// The lanes of the caller's warp that are in the group.
template <class Coop>
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(Coop) {
  return devcomm::arch::full_mask;
}
template <int n>
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopTile<n>) {
  return ncclCoopTile<n>::laneMask();
}
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopLanes coop) { return coop.getLaneMask(); }

/// The lanes of the group that reach this call together.
template <class Coop>
NCCL_DEVICE_INLINE ncclCoopLanes ncclCoopCoalesced(Coop coop) {
  return ncclCoopLanes(devcomm::arch::active_mask() & ncclCoopGetLaneMask(coop));
}
NCCL_DEVICE_INLINE ncclCoopThread ncclCoopCoalesced(ncclCoopThread) { return {}; }

/// `value` of member `root`, for all members. Always synchronizes first.
template <class Coop, class T>
NCCL_DEVICE_INLINE T ncclCoopBcast(Coop coop, T value, int root, bool entrySync = true) {
  static_cast<void>(entrySync);
  return coop.broadcast(value, static_cast<uint32_t>(root));
}

#endif
