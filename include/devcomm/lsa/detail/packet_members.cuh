/// \file packet_members.cuh
/// Who the members of a packet session are, and where their mailboxes are.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/device_comm.hpp>
#include <devcomm/lsa/detail/members.cuh>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// Who sends packets to whom: the ranks of a team, which use the same mailbox, or the groups of a local team, each with
/// a mailbox of its own.
struct packet_members {
  int32_t rank;   ///< this member
  int32_t size;   ///< members
  team ranks;     ///< of the members; of a local team, its one rank
  bool is_local;  ///< the members are groups of one rank

  DEVCOMM_DEVICE int number(int member) const { return is_local ? ranks.first : ranks.number(member); }
  /// The mailbox of `member`, where this member's is `own`.
  DEVCOMM_DEVICE uint32_t mailbox(uint32_t own, int member) const {
    return is_local ? own + static_cast<uint32_t>(member - rank) : own;
  }
};

/// Where the members' mailboxes are.
struct packet_memory {
  packet_members members;
  char* first;        ///< mailboxes of member 0
  int64_t stride;     ///< bytes from there to the next member's
  uint32_t index;     ///< member 0's mailbox
  int64_t mailboxes;  ///< from one member's mailbox to the next's

  /// This member's mailbox.
  DEVCOMM_DEVICE uint32_t own() const {
    return index + static_cast<uint32_t>(mailboxes) * static_cast<uint32_t>(members.rank);
  }

  DEVCOMM_DEVICE static packet_memory of_ranks(const device_comm& comm, const team& ranks, uint64_t offset,
                                               uint32_t index) {
    check_team(ranks, comm);
    const auto first = static_cast<uint64_t>(ranks.number(0) - comm.lsa_first);
    return {{ranks.rank, ranks.size, ranks, false},
            comm.resources.base + first * comm.resources.stride + offset,
            static_cast<int64_t>(comm.resources.stride) * ranks.stride,
            index,
            0};
  }

  /// `count` mailboxes were made.
  DEVCOMM_DEVICE static packet_memory of_groups(const device_comm& comm, const lsa::local_team& groups, uint64_t offset,
                                                [[maybe_unused]] uint32_t count) {
    DEVCOMM_ASSERT(groups.rank >= 0 && groups.rank < groups.size, "the caller is not a member of its local team");
    DEVCOMM_ASSERT(groups.first % static_cast<uint32_t>(groups.size) == 0,
                   "the first mailbox of a local team must be a multiple of its size");
    DEVCOMM_ASSERT(uint64_t{groups.first} + static_cast<uint32_t>(groups.size) <= count,
                   "the local team's mailboxes are past those that requirements asked for");
    return {{groups.rank, groups.size, {0, 1, comm.rank, 1}, true}, comm.resources.local + offset, 0, groups.first, 1};
  }
};

}  // namespace devcomm::detail
