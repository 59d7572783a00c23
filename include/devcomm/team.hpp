/// \file team.hpp
/// Teams: arithmetic sequences of world ranks, and their algebra.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm {

/// `size` members; member `i` is world rank `first + i * stride`. `rank` is the caller's own index.
/// Every team a device communicator hands out (world, LSA, rail), and every inner or outer factor
/// of one, has this form, so that translating ranks is arithmetic and needs no table. Groups of one rank that send to
/// each other are an `lsa::local_team`.
///
///     const team lsa = comm.lsa();
///     const team pairs = inner_factor(lsa, 2);        // this rank and its neighbour
///     const int peer = convert(pairs, 1 - pairs.rank, lsa);
struct team {
  int32_t rank;
  int32_t size;
  int32_t first;
  int32_t stride;

  /// World rank of member `member`. *Requires* `0 <= member < size`.
  DEVCOMM_HOST_DEVICE constexpr int world_rank(int member) const { return first + member * stride; }

  /// Index of a world rank in this team, or -1 when it is not a member.
  DEVCOMM_HOST_DEVICE constexpr int member_of(int world_rank) const {
    const int distance = world_rank - first;
    if (distance % stride != 0) return -1;
    const int member = distance / stride;
    return member >= 0 && member < size ? member : -1;
  }

  DEVCOMM_HOST_DEVICE constexpr bool contains(int world_rank) const { return member_of(world_rank) >= 0; }

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
  return {t.rank - begin, factor, t.world_rank(begin), t.stride};
}

/// The members of `t` with the caller's index in their own inner factor: one of each run of
/// `factor`. *Requires* `factor` to divide `t.size`.
DEVCOMM_HOST_DEVICE constexpr team outer_factor(team t, int factor) {
  return {t.rank / factor, t.size / factor, t.world_rank(t.rank % factor), t.stride * factor};
}

/// Index in `to` of member `member` of `from`, or -1 when `to` lacks that rank.
DEVCOMM_HOST_DEVICE constexpr int convert(team from, int member, team to) {
  return to.member_of(from.world_rank(member));
}

/// Whether every member of `subset` is one of `t`.
DEVCOMM_HOST_DEVICE constexpr bool is_subset(team subset, team t) {
  for (int i = 0; i < subset.size; ++i) {
    if (!t.contains(subset.world_rank(i))) return false;
  }
  return true;
}

/// How many members of `t` are not in `removed`.
DEVCOMM_HOST_DEVICE constexpr int difference_size(team t, team removed) {
  int count = 0;
  for (int i = 0; i < t.size; ++i) count += removed.contains(t.world_rank(i)) ? 0 : 1;
  return count;
}

/// Index in `t` of its `index`-th member that is not in `removed`, or -1 past the last.
DEVCOMM_HOST_DEVICE constexpr int difference_member(team t, team removed, int index) {
  for (int i = 0; i < t.size; ++i) {
    if (removed.contains(t.world_rank(i))) continue;
    if (index-- == 0) return i;
  }
  return -1;
}

}  // namespace devcomm
