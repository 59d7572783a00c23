/// \file signals.hpp
/// Signals of a team: how to ask for them, and how their words are laid out. `signal_session` uses them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/operation.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::lsa {

/// Independent signals of one team. Plain data; pass it to the kernel.
struct signal_handle : resource_handle {};

/// The peer of a wait that any member of the team may end.
inline constexpr int any_peer = -1;

/// Where the parts of `count` signals are, in bytes from the handle's offset: first the words that peers store to, then
/// what only this rank uses.
struct signal_layout {
  uint32_t count;

  /// The word of signal `index`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t word(uint32_t index) const { return uint64_t{index} * sizeof(uint64_t); }
  /// How much this rank has taken from signal `index`, see `signal_session::take`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t taken(uint32_t index) const {
    return detail::round_up_to_line(word(count)) + uint64_t{index} * 2 * sizeof(uint64_t);
  }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t index) const { return taken(index) + sizeof(uint64_t); }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return detail::round_up_to_line(taken(count)); }
};

/// Asks for `count` signals of any team within the LSA team: `needs.add(lsa::signals{members, count})`. Every member
/// has a word of 64 bits for each, zero at first, that all members may store to. Nothing resets it: it outlives the
/// kernel.
///
/// *Why 64 bits*. What is counted by signals are packets, elements and bytes, not only rounds: 32 bits are passed
/// within a second, 64 never, so that values need no epochs and comparisons no care. A word may also carry a value,
/// such as an offset. On NVLink and in the polling GPU's L2 cache a word of 8 bytes costs what one of 4 does.
struct signals {
  team members;
  uint32_t count;

  DEVCOMM_HOST_DEVICE constexpr signal_handle add_to(requirements& needs) const {
    const auto size = static_cast<uint32_t>(members.size);
    const resource_shape what{size, count, static_cast<uint64_t>(operation::lsa_signal)};
    return {needs.add_items(signal_layout{count}.bytes(), 128, what, count, size)};
  }
};

}  // namespace devcomm::lsa
