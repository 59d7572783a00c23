/// \file agree.cuh
/// One outcome for a whole group.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/group.cuh>
#include <devcomm/status.hpp>

namespace devcomm::detail {

/// Whether a vote of the group is a barrier that orders memory. The votes of a warp are none.
template <class Group>
inline constexpr bool any_synchronizes = is_whole_block<Group>;
template <>
inline constexpr bool any_synchronizes<warp_span> = true;

/// Whether the first 32 threads of `Group` are the lanes of a warp, in order.
template <class Group>
inline constexpr bool starts_with_warp = is_whole_block<Group> || is_whole_warp<Group>;
template <>
inline constexpr bool starts_with_warp<warp_span> = true;

/// Whether the group can vote without memory.
template <class Group>
inline constexpr bool can_vote = has_any<Group> || is_whole_block<Group>;

/// Whether any member of `group` passes true; synchronizes the group. `word` is zeroed device memory
/// of this group's own, used and zeroed again only for groups that cannot vote without it.
template <class Group>
DEVCOMM_DEVICE bool any(const Group& group, bool predicate, uint32_t* word) {
  if constexpr (has_any<Group>) {
    static_cast<void>(word);
    const bool result = group.any(predicate);
    if constexpr (!any_synchronizes<Group>) group.sync();
    return result;
  } else if constexpr (is_whole_block<Group>) {
    static_cast<void>(word);
    return arch::sync_block_or_apart(predicate);
  } else {
    if (predicate) arch::store<memory_order::relaxed, scope::device>(word, 1u);
    group.sync();
    const bool result = arch::load<memory_order::relaxed, scope::device>(word) != 0;
    group.sync();  // all have read
    if (!result) return false;
    if (group.thread_rank() == 0) arch::store<memory_order::relaxed, scope::device>(word, 0u);
    group.sync();
    return true;
  }
}

/// One of the outcomes of the members of `group`, for all of them; synchronizes the group. A mismatch comes
/// first, then `prior`, which is `status::timeout` or `status::aborted`.
template <class Group>
DEVCOMM_DEVICE status agree(const Group& group, status mine, status prior, uint32_t* word) {
  if (!any(group, mine != status::success, word)) return status::success;
  if (any(group, mine == status::mismatch, word)) return status::mismatch;
  if (any(group, mine == prior, word)) return prior;
  return prior == status::timeout ? status::aborted : status::timeout;
}

}  // namespace devcomm::detail
