/// \file members.cuh
/// Who the members of a session are, and where their memory is.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/device_comm.hpp>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// In checked mode, names what is wrong with a session's `members`.
DEVCOMM_DEVICE inline void check_team([[maybe_unused]] const team& members, [[maybe_unused]] const device_comm& comm) {
  DEVCOMM_ASSERT(is_subset(members, comm.lsa()), "the team of a session must lie within the LSA team");
  DEVCOMM_ASSERT(members.contains(comm.rank) && members.world_rank(members.rank) == comm.rank,
                 "the caller is not the member that its team says");
}

/// Members that hold one channel each: the same one on several ranks, or several on one rank.
struct packet_members {
  team team_of;      ///< members' world ranks
  char* first;       ///< where member 0's channels begin
  int64_t stride;    ///< bytes from there to the next member's
  uint32_t index;    ///< member 0's channel
  int64_t channels;  ///< from a member's channel to the next's

  /// This member's channel.
  DEVCOMM_DEVICE uint32_t own() const {
    return index + static_cast<uint32_t>(channels) * static_cast<uint32_t>(team_of.rank);
  }

  DEVCOMM_DEVICE static packet_members of_ranks(const device_comm& comm, const team& ranks, uint64_t offset,
                                                uint32_t index) {
    check_team(ranks, comm);
    const auto first = static_cast<uint64_t>(ranks.world_rank(0) - comm.lsa_first);
    return {ranks, comm.resources.base + first * comm.resources.stride + offset,
            static_cast<int64_t>(comm.resources.stride) * ranks.stride, index, 0};
  }

  /// `count` channels were made.
  DEVCOMM_DEVICE static packet_members of_groups(const device_comm& comm, const lsa::local_team& groups,
                                                 uint64_t offset, [[maybe_unused]] uint32_t count) {
    DEVCOMM_ASSERT(groups.rank >= 0 && groups.rank < groups.size, "the caller is not among its local groups");
    DEVCOMM_ASSERT(groups.first % static_cast<uint32_t>(groups.size) == 0,
                   "the first channel of local groups must be a multiple of their number");
    DEVCOMM_ASSERT(uint64_t{groups.first} + static_cast<uint32_t>(groups.size) <= count,
                   "a local group's channel is past the channels that requirements asked for");
    return {{groups.rank, groups.size, comm.rank, 0}, comm.resources.local + offset, 0, groups.first, 1};
  }
};

/// Groups of one rank are a team whose members have all the same rank.
DEVCOMM_DEVICE inline bool among_groups(const team& members) { return members.stride == 0; }
/// The channel that `member` holds, where this one's is `own`.
DEVCOMM_DEVICE inline uint32_t channel_of(const team& members, uint32_t own, int member) {
  return among_groups(members) ? own + static_cast<uint32_t>(member - members.rank) : own;
}
/// As `awaited::peer`.
DEVCOMM_DEVICE inline int32_t awaited_peer(const team& members, uint32_t own, int member) {
  return among_groups(members) ? ~static_cast<int32_t>(channel_of(members, own, member)) : members.world_rank(member);
}

}  // namespace devcomm::detail
