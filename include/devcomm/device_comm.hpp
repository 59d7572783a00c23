/// \file device_comm.hpp
/// The device communicator as kernels receive it: by value.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/team.hpp>
#include <devcomm/window.hpp>

namespace devcomm {

struct failure_log;

/// Who this rank is, whom it can reach, and where its resources lie. Made by
/// `host::communicator::create_device_comm`; valid until its owner is destroyed.
///
/// *Blocks*: two launches that use one device communicator must not run at the same time on a rank,
/// unless they use different barriers and buffers of it.
struct device_comm {
  /// Changes whenever the layout of anything that enters a kernel changes. The host library refuses
  /// to make a communicator for a program built with another one.
  static constexpr uint32_t layout_version = 13;

  uint32_t version;              ///< `layout_version` of the host library that made it
  uint32_t flags;                ///< `check_launch`, `round_robin`, `no_rails`, `no_lsa_atomics`
  int32_t rank;                  ///< world rank
  int32_t size;                  ///< ranks in the world
  int32_t lsa_first;             ///< number of LSA member 0 in teams: its world rank, or see `first_lsa_number`
  int32_t lsa_size;              ///< size of the LSA team
  window resources;              ///< where barriers and buffers of `requirements` live
  resource_handle lsa_barriers;  ///< see `requirements::lsa_barriers`; its `owner` is that of all handles
  failure_log* failures;         ///< host memory that kernels can write
  uint64_t timeout;              ///< nanoseconds a wait without a deadline of its own may take
  uint64_t launch_key;           ///< must agree across ranks when launches are checked

  /// Compare grid, group and key of a launch with every peer's at the first barrier of each session and, in checked
  /// mode, at the first round of packets of each session and of each call of a collective.
  static constexpr uint32_t check_launch = 1;
  /// Rank `r` is in LSA team `r % n` of `n`: ranks were dealt to hosts in turn.
  static constexpr uint32_t round_robin = 2;
  /// LSA teams differ in size, or are placed so that no rail is an arithmetic sequence of ranks.
  static constexpr uint32_t no_rails = 4;
  /// Ranks of the LSA team may have no atomic operations on each other's memory: they are not known to have NVLink.
  static constexpr uint32_t no_lsa_atomics = 8;

  /// This rank's index in the LSA team: what `sym_ptr::lsa` and the sessions of `lsa` take. It is `rank` only where the
  /// LSA team is the world.
  DEVCOMM_HOST_DEVICE constexpr int lsa_rank() const { return resources.lsa_rank; }

  DEVCOMM_HOST_DEVICE constexpr team world() const { return {rank, size, 0, 1}; }
  /// The ranks that can load and store each other's memory.
  DEVCOMM_HOST_DEVICE constexpr team lsa() const { return {lsa_rank(), lsa_size, lsa_first, 1}; }
  /// The ranks with the caller's index in each LSA team. *Requires* LSA teams of one size, of consecutive ranks or
  /// dealt in turn: `host::communicator::rail` throws where that is not so.
  DEVCOMM_HOST_DEVICE constexpr team rail() const {
    DEVCOMM_ASSERT((flags & no_rails) == 0,
                   "there are no rails: LSA teams differ in size or are placed unevenly, see host::properties::rail");
    if ((flags & round_robin) != 0) {
      const int teams = size / lsa_size;
      return {rank % teams, teams, lsa_rank() * teams, 1};
    }
    return outer_factor(world(), lsa_size);
  }

  /// World rank of member `member` of any team: one load where `members.has_world_ranks()` is false.
  DEVCOMM_HOST_DEVICE int world_rank(const team& members, int member) const {
    return world_rank_of(members.number(member));
  }
  /// Of a number as `team::number` gives it; -1, for no particular rank, stays.
  DEVCOMM_HOST_DEVICE int world_rank_of(int number) const {
    return number < first_lsa_number ? number : resources.lsa_ranks[number - lsa_first];
  }
  /// Index of a world rank in the LSA team, or -1 when it is no member.
  DEVCOMM_HOST_DEVICE int lsa_member(int world_rank) const { return resources.lsa_member(world_rank); }

  /// A copy whose launches must agree on `key`; give a hash of the arguments that must be the same on
  /// all ranks. Compared only where `check_launch` is set.
  DEVCOMM_HOST_DEVICE constexpr device_comm with_launch_key(uint64_t key) const {
    device_comm copy = *this;
    copy.launch_key = key;
    return copy;
  }

  /// In checked mode, refuses a handle of other requirements than those that this device communicator was made of.
  template <class Handle>
  DEVCOMM_HOST_DEVICE constexpr void check_owner([[maybe_unused]] const Handle& handle) const {
    DEVCOMM_ASSERT(handle.owner == 0 || lsa_barriers.owner == 0 || handle.owner == lsa_barriers.owner,
                   "a handle of another device communicator: give each kernel the handles that the requirements of its "
                   "device communicator returned");
  }

  /// A buffer that `requirements::add_buffer` placed.
  template <class T>
  DEVCOMM_HOST_DEVICE sym_ptr<T> buffer(buffer_handle<T> handle) const {
    check_owner(handle);
    return {resources, handle.offset};
  }
};

static_assert(sizeof(device_comm) == 24 + sizeof(window) + 40, "change layout_version with the layout");

}  // namespace devcomm
