/// \file agree.cuh
/// One outcome for a whole group.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/group.cuh>
#include <devcomm/status.hpp>

namespace devcomm::detail {

/// Whether `Group::any` is a barrier that orders memory. The votes of a warp are none.
template <class Group>
inline constexpr bool any_synchronizes = false;
template <>
inline constexpr bool any_synchronizes<block> = true;
template <>
inline constexpr bool any_synchronizes<warp_span> = true;

/// Whether the first 32 threads of `Group` are the lanes of a warp, in order.
template <class Group>
inline constexpr bool starts_with_warp = false;
template <>
inline constexpr bool starts_with_warp<block> = true;
template <>
inline constexpr bool starts_with_warp<warp_span> = true;

/// Whether any member of `group` passes true; synchronizes the group. `word` is zeroed device memory
/// of this group's own, used and zeroed again only for groups that lack a member `any`.
template <class Group>
DEVCOMM_DEVICE bool any(const Group& group, bool predicate, uint32_t* word) {
  if constexpr (has_any<Group>) {
    static_cast<void>(word);
    const bool result = group.any(predicate);
    if constexpr (!any_synchronizes<Group>) group.sync();
    return result;
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
