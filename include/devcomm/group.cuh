/// \file group.cuh
/// What a thread group is, and how groups that are not devcomm's own take part.
#pragma once

#include <devcomm/any_group.cuh>
#include <devcomm/detail/traits.hpp>

namespace devcomm {

namespace detail {

template <class Group, class = void>
inline constexpr bool has_group_members = false;
template <class Group>
inline constexpr bool has_group_members<
    Group, void_t<decltype(declval<const Group&>().thread_rank()), decltype(declval<const Group&>().size()),
                  decltype(declval<const Group&>().sync())>> = true;

template <class Group, class = void>
inline constexpr bool has_any = false;
template <class Group>
inline constexpr bool has_any<Group, void_t<decltype(declval<const Group&>().any(true))>> = true;

template <class Group, class T, class = void>
inline constexpr bool has_broadcast = false;
template <class Group, class T>
inline constexpr bool
    has_broadcast<Group, T, void_t<decltype(declval<const Group&>().broadcast(declval<const T&>(), 0u))>> = true;

}  // namespace detail

/// Whether `Group` can take part in devcomm's calls: `thread_rank()`, `size()` and `sync()`, as
/// CUDA's cooperative groups have. A group that also has `any(bool)`, returning whether any member
/// passed true to all of them, saves a look at memory after each wait.
template <class Group>
inline constexpr bool is_group = detail::has_group_members<Group>;

/// `value` of member `root`, for all members of `group`.
template <class Group, class T>
DEVCOMM_DEVICE T broadcast(const Group& group, const T& value, uint32_t root) {
  static_assert(detail::has_broadcast<Group, T>,
                "this group cannot broadcast: use a group of devcomm, or give it a member broadcast(value, root)");
  return group.broadcast(value, root);
}

}  // namespace devcomm
