/// \file window.hpp
/// A symmetric memory window as kernels receive it: by value.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/config.hpp>

namespace devcomm {

namespace multimem {
struct automatic;
struct window_record;
template <class T, class Mode>
class ptr;
}  // namespace multimem

/// A communicator's windows have ids from a multiple of this on, counting up. Communicators that live in a process have
/// different multiples, so that a window of another communicator is found out by its id.
inline constexpr uint32_t window_ids_of_communicator = 1u << 22;

/// The same span of memory on every rank, addressable for load and store on each LSA peer.
///
/// Two layouts. *Strided*: one reservation of address space with a slot for each LSA member at a
/// constant stride, so a peer's address is arithmetic on kernel arguments. *Table*: memory that the
/// caller allocated and registered is anywhere on each rank, so addresses come from a table in
/// device memory, one dependent load. Offsets are in bytes and the same on all ranks.
struct window {
  char* base;  ///< strided: slot of LSA member 0; table: null
  union {
    char* const* table;                        ///< table: address of each LSA member's memory
    const multimem::window_record* multicast;  ///< strided: null where multimem was not asked for
  };
  char* local;        ///< this rank's memory
  uint64_t stride;    ///< bytes from one slot to the next
  uint64_t bytes;     ///< usable bytes on each rank
  int32_t lsa_first;  ///< number of LSA member 0 in teams: its world rank, or see `first_lsa_number`
  int32_t lsa_size;   ///< members that can be addressed
  int32_t lsa_rank;   ///< this rank's index among them
  uint32_t id;        ///< the same on all ranks
  /// World ranks of the LSA members, ascending, in device memory; null where they are consecutive from `lsa_first` on.
  const int32_t* lsa_ranks;

  /// The number that messages use for the window.
  DEVCOMM_HOST_DEVICE constexpr uint32_t number() const { return id % window_ids_of_communicator; }

  /// This rank's memory at `offset`.
  DEVCOMM_HOST_DEVICE char* local_pointer(uint64_t offset = 0) const {
    DEVCOMM_ASSERT_OF(offset <= bytes, "byte", offset, bytes, "window offset is past the window's end");
    return local + offset;
  }

  /// Memory of LSA member `member` at `offset`. *Requires* `0 <= member < lsa_size`.
  DEVCOMM_HOST_DEVICE char* lsa_pointer(int member, uint64_t offset = 0) const {
    DEVCOMM_ASSERT_OF(member >= 0 && member < lsa_size, "member", member, lsa_size,
                      "LSA peer is outside the LSA team of this window; peers are its members, from 0 on");
    DEVCOMM_ASSERT_OF(offset <= bytes, "byte", offset, bytes, "window offset is past the window's end");
    char* slot = base != nullptr ? base + static_cast<uint64_t>(member) * stride : table[member];
    DEVCOMM_ASSERT(slot != nullptr,
                   "the buffer was added while a graph was captured, and is not registered yet; call "
                   "communicator::register_buffers when the capture has ended, before the graph is launched");
    return slot + offset;
  }

  /// Index of a world rank in the LSA team, or -1 when it is no member. A search where members are not consecutive.
  DEVCOMM_HOST_DEVICE int lsa_member(int world_rank) const {
    if (lsa_ranks != nullptr) {
      for (int member = 0; member < lsa_size; ++member)
        if (lsa_ranks[member] == world_rank) return member;
      return -1;
    }
    const int member = world_rank - lsa_first;
    return member >= 0 && member < lsa_size ? member : -1;
  }

  /// World rank of LSA member `member`. *Requires* `0 <= member < lsa_size`.
  DEVCOMM_HOST_DEVICE int world_rank(int member) const {
    return lsa_ranks != nullptr ? lsa_ranks[member] : lsa_first + member;
  }

  /// Memory of a world rank at `offset`, or null when it cannot be reached by load and store.
  DEVCOMM_HOST_DEVICE char* peer_pointer(int world_rank, uint64_t offset = 0) const {
    const int member = lsa_member(world_rank);
    return member >= 0 ? lsa_pointer(member, offset) : nullptr;
  }

  /// Memory of all LSA members at once, from `offset` on. *Requires* `multimem/ptr.cuh`.
  template <class T, class Mode = devcomm::multimem::automatic>
  DEVCOMM_DEVICE devcomm::multimem::ptr<T, Mode> multimem(uint64_t offset = 0) const;
};

static_assert(sizeof(window) == 64, "layout enters kernels; change device_comm::layout_version with it");

}  // namespace devcomm
