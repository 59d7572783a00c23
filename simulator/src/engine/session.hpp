/// \file session.hpp
/// What sessions are called, who holds which, and what their groups may not do.
#pragma once

#include "engine/session_table.hpp"

#include <devcomm/arch/observed.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

struct fiber;

/// "LSA barrier 1 of rank 0".
[[nodiscard]] std::string describe(const devcomm::detail::session_id& id);
/// ", in a session of LSA barrier 1" for each session that the thread is in and the text `beside` it does not name.
[[nodiscard]] std::string describe_sessions(const fiber& f, const std::string& beside);

/// The session of `f` that waits with that label, or null.
[[nodiscard]] const session* session_of(const fiber& f, const devcomm::detail::wait_label& label);
/// The sessions of `rank` on barrier or channel `index`, of the same kind as that of `s`.
[[nodiscard]] std::vector<const session*> sessions_of_peer(const session_table& table, const session& s, int rank,
                                                           uint32_t index);

/// The thread ends, or is abandoned.
void forget_sessions(fiber& f);

}  // namespace devcomm::simulator::detail
