/// \file barrier_memory.cuh
/// Where the words of a barrier lie.
#pragma once

#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>

namespace devcomm::detail {

/// One barrier as one rank finds it.
struct barrier_memory {
  const device_comm& comm;
  team members;
  barrier_handle barriers;
  uint32_t index;

  /// The flag on member `owner` that member `writer` stores to.
  DEVCOMM_DEVICE uint32_t* flag(int owner, int writer) const {
    return reinterpret_cast<uint32_t*>(on(owner) + layout().flag(index, static_cast<uint32_t>(writer)));
  }
  /// The contract on member `owner` that member `writer` stores to. Even and odd epochs are apart: a
  /// peer one epoch ahead overwrites none that is still to be compared.
  DEVCOMM_DEVICE launch_contract* contract(int owner, int writer, uint32_t epoch) const {
    return reinterpret_cast<launch_contract*>(on(owner) +
                                              layout().contract(index, static_cast<uint32_t>(writer), epoch));
  }
  /// Bytes from a word on one member to the same on the next.
  DEVCOMM_DEVICE int64_t stride() const { return static_cast<int64_t>(comm.resources.stride) * members.stride; }
  DEVCOMM_DEVICE uint32_t* epoch() const { return own_word(layout().epoch(index)); }
  DEVCOMM_DEVICE uint32_t* outcome() const { return own_word(layout().outcome(index)); }

 private:
  DEVCOMM_DEVICE barrier_layout layout() const { return {barriers.count, barriers.members}; }
  /// This team's barriers on one of its members. The resource window is always strided.
  DEVCOMM_DEVICE char* on(int member) const {
    const auto place = static_cast<uint64_t>(members.world_rank(member) - comm.lsa_first);
    return comm.resources.base + place * comm.resources.stride + barriers.offset;
  }
  DEVCOMM_DEVICE uint32_t* own_word(uint64_t place) const {
    return reinterpret_cast<uint32_t*>(comm.resources.local + barriers.offset + place);
  }
};

/// A peer as one thread of a group sees it.
struct peer_flags {
  int member;        ///< of the team
  uint32_t* theirs;  ///< stored to when this rank arrives
  uint32_t* ours;    ///< polled until the peer has arrived
};

/// The `i`-th peer, not counting this rank.
DEVCOMM_DEVICE inline peer_flags nth_peer_flags(const barrier_memory& memory, int i) {
  const int self = memory.members.rank;
  const int member = nth_peer(i, self);
  return {member, memory.flag(member, self), memory.flag(self, member)};
}

/// The same out of line, for paths off the usual one.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline peer_flags find_peer_flags(const resource_header* home, team members,
                                                                  barrier_handle barriers, uint32_t index, int i) {
  return nth_peer_flags({home->comm, members, barriers, index}, i);
}

/// Tells a peer of an arrival.
DEVCOMM_DEVICE inline void store_flag(uint32_t* flag, uint32_t epoch, memory_order order) {
  if (releases(order)) {
    arch::store<memory_order::release, scope::system>(flag, epoch);
  } else {
    arch::store<memory_order::relaxed, scope::system>(flag, epoch);
  }
}

/// Shows this launch to one thread's peers, which compare it once this rank arrives at `epoch`.
DEVCOMM_DEVICE inline void show_launch(const barrier_memory& memory, uint32_t epoch, int first, int step,
                                       launch_contract mine) {
  const team& members = memory.members;
  auto* slot = reinterpret_cast<char*>(memory.contract(0, members.rank, epoch));
  show_contract(slot, memory.stride(), members.rank, members.size, first, step, mine);
}

/// Compares this launch with those of one thread's peers, whose arrival at `epoch` has been seen, and leaves a
/// record of the first that differs.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status compare_launches(resource_header* home, team members,
                                                               barrier_handle barriers, uint32_t index, uint32_t epoch,
                                                               int first, int step) {
  const barrier_memory memory{home->comm, members, barriers, index};
  const launch_contract* slots = memory.contract(members.rank, 0, epoch);
  const int member = first_difference(slots, members.rank, members.size, first, step);
  if (member < 0) return status::success;
  report(home, status::mismatch, {operation::lsa_barrier, index, members.world_rank(member), epoch, epoch},
         slots + members.rank, slots + member);
  return status::mismatch;
}

}  // namespace devcomm::detail
