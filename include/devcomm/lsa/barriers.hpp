/// \file barriers.hpp
/// Barriers of a team: how to ask for them, and how their words are laid out. `barrier_session` uses them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::lsa {

/// Independent barriers of one team. Plain data; pass it to the kernel.
struct barrier_handle : resource_handle {};

/// Where the parts of `count` barriers of `members` ranks are, in bytes from the handle's offset.
///
/// First the arrival flags of all barriers side by side: on Hopper a release fence under way on many
/// multiprocessors at once is faster the fewer lines the stores around it touch. Then what only this
/// rank uses, and the launch contracts of checked launches.
struct barrier_layout {
  uint32_t count;
  uint32_t members;

  /// The flag of barrier `index` that member `writer` stores to.
  DEVCOMM_HOST_DEVICE constexpr uint64_t flag(uint32_t index, uint32_t writer) const {
    return (uint64_t{index} * members + writer) * sizeof(uint32_t);
  }
  /// This rank's epoch of barrier `index`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t epoch(uint32_t index) const {
    return own() + uint64_t{index} * 2 * sizeof(uint32_t);
  }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t index) const { return epoch(index) + sizeof(uint32_t); }
  /// The contract of barrier `index` that member `writer` stores to for an even or odd `epoch`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t contract(uint32_t index, uint32_t writer, uint32_t epoch) const {
    return contracts() + ((uint64_t{index} * 2 + epoch % 2) * members + writer) * sizeof(launch_contract);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const {
    return detail::round_up_to_line(contracts() + uint64_t{2} * count * members * sizeof(launch_contract));
  }

 private:
  DEVCOMM_HOST_DEVICE constexpr uint64_t own() const { return detail::round_up_to_line(flag(count, 0)); }
  DEVCOMM_HOST_DEVICE constexpr uint64_t contracts() const { return detail::round_up_to_line(epoch(count)); }
};

/// Asks for `count` barriers of any team within the LSA team: `needs.add(lsa::barriers{members, count})`. Barriers of
/// the whole LSA team that need no handle come from `requirements::lsa_barriers`.
struct barriers {
  team members;
  uint32_t count;

  DEVCOMM_HOST_DEVICE constexpr barrier_handle add_to(requirements& needs) const {
    const auto size = static_cast<uint32_t>(members.size);
    return {needs.add_items(barrier_layout{count, size}.bytes(), 128, {size, count}, count, size)};
  }
};

}  // namespace devcomm::lsa
