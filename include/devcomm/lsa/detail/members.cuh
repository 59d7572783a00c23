/// \file members.cuh
/// Checks of the team of a session.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/device_comm.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// In checked mode, names what is wrong with a session's `members`.
DEVCOMM_DEVICE inline void check_team([[maybe_unused]] const team& members, [[maybe_unused]] const device_comm& comm) {
  DEVCOMM_ASSERT(is_subset(members, comm.lsa()), "the team of a session must lie within the LSA team");
  DEVCOMM_ASSERT(members.number(members.rank) == comm.lsa().number(comm.lsa_rank()),
                 "the caller is not the member that its team says");
}

}  // namespace devcomm::detail
