/// \file team.hpp
/// Teams: arithmetic sequences of ranks, and their algebra.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/config.hpp>

namespace devcomm {

/// Numbers from here on are no world ranks: they count the members of an LSA team that are not consecutive ranks, from
/// `device_comm::lsa_first` on.
inline constexpr int32_t first_lsa_number = 1 << 20;

/// `size` members; member `i` has the number `first + i * stride`. `rank` is the caller's own index.
/// Every team a device communicator hands out (world, LSA, rail), and every inner or outer factor
/// of one, has this form, so that translating ranks is arithmetic and needs no table. Groups of one rank that send to
/// each other are an `lsa::local_team`.
///
///     const team lsa = comm.lsa();
///     const team pairs = inner_factor(lsa, 2);        // this rank and its neighbor
///     const int peer = convert(pairs, 1 - pairs.rank, lsa);
///
/// Numbers are world ranks, but for teams within an LSA team whose members are not consecutive ranks, as with ranks
/// dealt to hosts in turn, see `first_lsa_number`. `device_comm::world_rank(team, member)` is right for every team.
struct team {
  int32_t rank;
  int32_t size;
  int32_t first;
  int32_t stride;

  /// Number of member `member`. *Requires* `0 <= member < size`.
  DEVCOMM_HOST_DEVICE constexpr int number(int member) const { return first + member * stride; }
  /// Whether its numbers are world ranks.
  DEVCOMM_HOST_DEVICE constexpr bool has_world_ranks() const { return first < first_lsa_number; }

  /// World rank of member `member`. *Requires* `0 <= member < size` and `has_world_ranks()`.
  DEVCOMM_HOST_DEVICE constexpr int world_rank(int member) const {
    DEVCOMM_ASSERT(has_world_ranks(),
                   "the members of this LSA team are not consecutive ranks, which arithmetic does not give; call "
                   "comm.world_rank(team, member)");
    return number(member);
  }

  /// Index of the member with a number, or -1 when there is none: of a world rank, if `has_world_ranks()`; otherwise
  /// see `device_comm::lsa_member`.
  DEVCOMM_HOST_DEVICE constexpr int member_of(int number) const {
    const int distance = number - first;
    if (distance % stride != 0) return -1;
    const int member = distance / stride;
    return member >= 0 && member < size ? member : -1;
  }

  DEVCOMM_HOST_DEVICE constexpr bool contains(int number) const { return member_of(number) >= 0; }

  DEVCOMM_HOST_DEVICE friend constexpr bool operator==(const team& a, const team& b) {
    return a.rank == b.rank && a.size == b.size && a.first == b.first && a.stride == b.stride;
  }
  DEVCOMM_HOST_DEVICE friend constexpr bool operator!=(const team& a, const team& b) { return !(a == b); }
};

/// The team of all `size` ranks as seen by `rank`.
DEVCOMM_HOST_DEVICE constexpr team world_team(int rank, int size) { return {rank, size, 0, 1}; }

/// The caller's run of `factor` consecutive members of `t`. *Requires* `factor` to divide `t.size`.
DEVCOMM_HOST_DEVICE constexpr team inner_factor(team t, int factor) {
  const int begin = t.rank / factor * factor;
  return {t.rank - begin, factor, t.number(begin), t.stride};
}

/// The members of `t` with the caller's index in their own inner factor: one of each run of
/// `factor`. *Requires* `factor` to divide `t.size`.
DEVCOMM_HOST_DEVICE constexpr team outer_factor(team t, int factor) {
  return {t.rank / factor, t.size / factor, t.number(t.rank % factor), t.stride * factor};
}

/// Index in `to` of member `member` of `from`, or -1 when `to` lacks that rank. *Requires* teams that both have world
/// ranks, or both not.
DEVCOMM_HOST_DEVICE constexpr int convert(team from, int member, team to) {
  DEVCOMM_ASSERT(from.has_world_ranks() == to.has_world_ranks(),
                 "one of the teams is of an LSA team whose members are not consecutive ranks; convert by "
                 "comm.world_rank(team, member) and comm.lsa_member(world_rank)");
  return to.member_of(from.number(member));
}

/// Whether every member of `subset` is one of `t`.
DEVCOMM_HOST_DEVICE constexpr bool is_subset(team subset, team t) {
  for (int i = 0; i < subset.size; ++i) {
    if (!t.contains(subset.number(i))) return false;
  }
  return true;
}

/// How many members of `t` are not in `removed`.
DEVCOMM_HOST_DEVICE constexpr int difference_size(team t, team removed) {
  int count = 0;
  for (int i = 0; i < t.size; ++i) count += removed.contains(t.number(i)) ? 0 : 1;
  return count;
}

/// Index in `t` of its `index`-th member that is not in `removed`, or -1 past the last.
DEVCOMM_HOST_DEVICE constexpr int difference_member(team t, team removed, int index) {
  for (int i = 0; i < t.size; ++i) {
    if (removed.contains(t.number(i))) continue;
    if (index-- == 0) return i;
  }
  return -1;
}

}  // namespace devcomm
