/// \file multimem.cuh
/// Collectives straight between windows by NVLink multicast: the switch reduces, and one store reaches all ranks.
///
///     multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};  // or an lsa::barrier_session
///     collective::all_reduce_two_shot_multimem<float>(barrier, tensor, tensor, count, sum{});
///
/// They take windows with multimem, on their first 16 bytes or not: what is no whole pack of 16 bytes in all windows,
/// and everything where two windows differ modulo 16, goes by loads and stores, as does all of it where multimem is in
/// software. Then they do what the collectives of the same names between windows do, and as fast. `Mode` is that of
/// `multimem::ptr`: `multimem::software` takes any window, and never its multicast address.
///
/// *Operators and types*: those that multimem reduces, see `multimem::ptr`. Sums of half and bfloat16 are accumulated
/// in float. What a switch adds up is not defined in its order: see docs/multimem.md for what ranks agree on.
///
/// *Blocks*: block `b` synchronizes only with block `b` of the other ranks. Inputs must be complete before the launch,
/// and outputs are complete after it, or the grid is synchronized before and after the call. A few blocks of 512
/// threads saturate the links, see `multimem_blocks`.
///
/// *Collective* over the barrier's group on every rank of the LSA team, once in each block of the grid, with the same
/// grid and `count`. After a failure the output is undefined; a failure at the first barrier leaves outputs unchanged.
#pragma once

#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/multimem/barrier_session.cuh>
#include <devcomm/multimem/ptr.cuh>

namespace devcomm::collective {

/// Blocks of 512 threads with 128 bytes of each under way that are enough for NVLink of Hopper, or `of_blackwell`.
DEVCOMM_HOST_DEVICE constexpr unsigned multimem_blocks(int ranks, bool of_blackwell) {
  const unsigned all = of_blackwell ? 32 : 16;
  const auto members = static_cast<unsigned>(ranks);
  return (all + members - 1) / members;
}

}  // namespace devcomm::collective

namespace devcomm::detail {

/// Between a barrier and accesses by a multicast address, and between those and the next barrier: what other barriers
/// than `multimem::barrier_session` lack.
template <class Barrier>
DEVCOMM_DEVICE void fence_aliases(const Barrier&, bool is_hardware) {
  if (is_hardware) multimem::fence_alias();
}
template <class Group>
DEVCOMM_DEVICE void fence_aliases(const multimem::barrier_session<Group>& barrier, bool is_hardware) {
  if (is_hardware && !barrier.fences_aliases()) multimem::fence_alias();
}

/// 16 bytes of elements from `p` on, reduced over all members; by several accesses of types that have none of 16.
template <class Operator, class T, class Mode>
DEVCOMM_DEVICE pack<T> load_reduced_pack(const multimem::ptr<T, Mode>& p) {
  constexpr int bytes = multimem::widest<T>;
  if constexpr (bytes == 16) {
    return p.template load_reduce<Operator>();
  } else {
    pack<T> result;
    DEVCOMM_UNROLL
    for (int e = 0; e < pack<T>::size; ++e) result[e] = (p + e).template load_reduce<Operator>();
    return result;
  }
}

/// Elements before the first whole pack of a window's elements from `offset` bytes on, whole packs, and the rest.
template <class T>
DEVCOMM_DEVICE split_range split_at(uint64_t offset, uint64_t count) {
  constexpr auto per_pack = static_cast<uint64_t>(pack<T>::size);
  if (offset % sizeof(T) != 0) return {count, 0, 0};
  const uint64_t before = (16 - offset % 16) % 16 / sizeof(T);
  const uint64_t head = before < count ? before : count;
  const uint64_t packs = (count - head) / per_pack;
  return {head, packs, count - head - packs * per_pack};
}

/// Calls `each(first, elements)` for the elements beside the whole packs. A loop, as `each` is long.
template <class Each>
DEVCOMM_DEVICE void for_head_and_tail(const split_range& range, uint64_t count, const Each& each) {
  DEVCOMM_UNROLL_BY(1)
  for (int end = 0; end < 2; ++end) {
    const uint64_t elements = end == 0 ? range.head : range.tail;
    if (elements != 0) each(end == 0 ? 0 : count - range.tail, elements);
  }
}

/// Calls `each(p)` for the packs of `packs` that fall to the calling thread, `InFlight` at a time, a row of 32 packs to
/// each warp. `load(p)` returns what `each(p, value)` takes.
template <int InFlight, class Group, class Load, class Each>
DEVCOMM_DEVICE void for_each_pack(const Group& group, collective::slice packs, const Load& load, const Each& each) {
  const uint64_t threads = group.size();
  uint64_t p = packs.begin + group.thread_rank();
  for (; p + (InFlight - 1) * threads < packs.end; p += InFlight * threads) {
    decltype(load(p)) values[InFlight];
    DEVCOMM_UNROLL
    for (int u = 0; u < InFlight; ++u) values[u] = load(p + static_cast<uint64_t>(u) * threads);
    DEVCOMM_UNROLL
    for (int u = 0; u < InFlight; ++u) each(p + static_cast<uint64_t>(u) * threads, values[u]);
  }
  for (; p < packs.end; p += threads) each(p, load(p));
}

/// The same in place, where `load` and `each` access a pack by two addresses, one of them multicast: an alias fence is
/// between the two. No other thread of any rank touches the pack, so the fence of the calling thread is enough: packs
/// lie at the same indices of both vectors, and elements beside them are accessed by members' own addresses only. It is
/// a loop of its own, so that out of place pays nothing.
template <int InFlight, class Group, class Load, class Each>
DEVCOMM_DEVICE void for_each_pack_in_place(const Group& group, collective::slice packs, const Load& load,
                                           const Each& each) {
  const uint64_t threads = group.size();
  for (uint64_t p = packs.begin + group.thread_rank(); p < packs.end; p += InFlight * threads) {
    decltype(load(p)) values[InFlight];
    DEVCOMM_UNROLL
    for (int u = 0; u < InFlight; ++u) {
      const uint64_t next = p + static_cast<uint64_t>(u) * threads;
      if (next < packs.end) values[u] = load(next);
    }
    multimem::fence_alias();
    DEVCOMM_UNROLL
    for (int u = 0; u < InFlight; ++u) {
      const uint64_t next = p + static_cast<uint64_t>(u) * threads;
      if (next < packs.end) each(next, values[u]);
    }
  }
}

/// `reduce_copy` of `count` elements of all members from `input` on to this rank's `output`, or to all of `outputs`.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void reduce_members_to(const Group& group, sym_ptr<T> input, T* output, uint64_t count, Operator op) {
  reduce_copy<T>(
      group, input.memory.lsa_size, [&](int rank) { return static_cast<const T*>(input.lsa(rank)); }, 1,
      [&](int) { return output; }, count, op);
}
/// A pack in registers of the first of `count` elements from `input` on, of all members in their order, and zeros.
template <class T, class Operator>
DEVCOMM_DEVICE pack<T> reduce_members_by_element(sym_ptr<T> input, uint64_t count, Operator op) {
  using accumulator = accumulator_t<T>;
  const int members = input.memory.lsa_size;
  accumulator total[pack<T>::size]{};
  DEVCOMM_UNROLL_BY(1)
  for (int rank = 0; rank < members; ++rank) {
    const T* const from = input.lsa(rank);
    DEVCOMM_UNROLL
    for (int e = 0; e < pack<T>::size; ++e) {
      if (static_cast<uint64_t>(e) >= count) continue;
      const accumulator value = to_accumulator<T>(from[e], op);
      total[e] = rank == 0 ? value : op(total[e], value);
    }
  }
  pack<T> result{};
  DEVCOMM_UNROLL
  for (int e = 0; e < pack<T>::size; ++e)
    if (static_cast<uint64_t>(e) < count) result[e] = from_accumulator<T>(total[e], members, op);
  return result;
}
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void reduce_members_to_all(const Group& group, sym_ptr<T> input, sym_ptr<T> output, uint64_t count,
                                          Operator op) {
  const int members = input.memory.lsa_size;
  reduce_copy<T>(
      group, members, [&](int rank) { return static_cast<const T*>(input.lsa(rank)); }, members,
      [&](int step) {  // ranks write to different peers at a time
        const int rank = output.memory.lsa_rank + step;
        return output.lsa(rank < members ? rank : rank - members);
      },
      count, op);
}
template <class T, class Group>
DEVCOMM_DEVICE void copy_to_members(const Group& group, const T* input, sym_ptr<T> output, uint64_t count) {
  const int members = output.memory.lsa_size;
  const auto destination = [&](int step) {
    const int rank = output.memory.lsa_rank + step;
    return output.lsa(rank < members ? rank : rank - members);
  };
  copy_to_all<T>(group, members, destination, input, count);
}

/// `count` elements of this rank's `input` to all members, by multicast where they are whole packs of the output.
template <int InFlight, class T, class Mode, class Group>
DEVCOMM_DEVICE void multicast_part(const Group& group, const T* input, const multimem::ptr<T, Mode>& output,
                                   uint64_t count) {
  const sym_ptr<T> members = output.symmetric();
  const split_range range = output.is_hardware() ? split_at<T>(members.offset, count) : split_range{count, 0, 0};
  if (output.is_hardware()) {
    const auto to = output.known_hardware();
    const collective::from_memory<T> source{input + range.head, range.units * pack<T>::size};
    const auto store = [&](uint64_t p, const pack<T>& value) {
      (to + static_cast<int64_t>(range.head + p * pack<T>::size)).store(value);
    };
    if (input == members.local()) {
      for_each_pack_in_place<InFlight>(group, {0, range.units}, source, store);
    } else {
      for_each_pack<InFlight>(group, {0, range.units}, source, store);
    }
  }
  for_head_and_tail(range, count, [&](uint64_t first, uint64_t elements) {
    copy_to_members(group, input + first, members + static_cast<int64_t>(first), elements);
  });
}

template <class T, class Operator>
DEVCOMM_HOST_DEVICE constexpr void check_multimem_collective() {
  check_load_reduce<Operator, T, multimem::widest<T>>();
}

}  // namespace devcomm::detail

namespace devcomm::collective {

/// One-shot: each rank reduces the whole vector for itself and consumes it at once. For small vectors, and for kernels
/// that go on with the result. `consume(i, pack)` takes pack `i` of this rank's result, each once, by a thread of the
/// group; the last pack is filled up with zeros. Ranks may get different last bits, see docs/multimem.md.
///
/// *Requires* `input` at a multiple of 16 bytes of its window, and that `consume` leaves it as it is: peers read it. A
/// window over registered memory that is no multiple of 16 bytes on some member takes single elements, and longer.
template <class T, int InFlight = 8, class Mode = multimem::automatic, class Barrier, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_one_shot_multimem(Barrier& barrier, sym_ptr<T> input, uint64_t count,
                                                 const Consume& consume, Operator op) {
  detail::check_multimem_collective<T, Operator>();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), input.memory),
                 "multimem collectives need a barrier of the whole LSA team");
  detail::check_in_window(input, count);
  DEVCOMM_ASSERT(input.offset % 16 == 0, "the input of a one-shot multimem all-reduce is aligned to 16 bytes");
  const trace_span traced = barrier.trace_call(collective_call::all_reduce_one_shot_multimem, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  const multimem::ptr<T, Mode> all(input);
  detail::fence_aliases(barrier, all.is_hardware());
  const uint64_t whole = detail::is_aligned_on_members<16>(input) ? count / pack<T>::size : 0;
  const slice mine = slice_of_block(packs_of<T>(count));
  detail::for_each_pack<InFlight>(
      barrier.group(), {mine.begin, mine.end < whole ? mine.end : whole},
      [&](uint64_t p) { return detail::load_reduced_pack<Operator>(all + static_cast<int64_t>(p * pack<T>::size)); },
      [&](uint64_t p, const pack<T>& value) { consume(p, value); });
  // The last, in part, or all.
  const uint64_t rest = mine.begin > whole ? mine.begin : whole;
  for (uint64_t p = rest + barrier.group().thread_rank(); p < mine.end; p += barrier.group().size()) {
    const uint64_t first = p * pack<T>::size;
    const pack<T> elements =
        detail::reduce_members_by_element<T>(input + static_cast<int64_t>(first), count - first, op);
    consume(p, elements);
  }
  detail::fence_aliases(barrier, all.is_hardware());
  barrier.sync(memory_order::acq_rel);
}

/// Two-shot: each rank reduces its share by load_reduce and stores the result to all outputs. All ranks get the same
/// bits; not in every run. `input` and `output` may be the same memory.
///
/// Ranks take rows of 32 packs for each of `InFlight` accesses in turn, so that all work in one stretch of memory that
/// moves on.
template <class T, int InFlight = 8, class Mode = multimem::automatic, class Barrier, class Operator>
DEVCOMM_DEVICE void all_reduce_two_shot_multimem(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, uint64_t count,
                                                 Operator op) {
  detail::check_multimem_collective<T, Operator>();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "multimem collectives need a barrier of the whole LSA team");
  detail::check_in_window(input, count);
  detail::check_in_window(output, count);
  const team ranks = barrier.members();
  const auto& group = barrier.group();
  const trace_span traced = barrier.trace_call(collective_call::all_reduce_two_shot_multimem, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory

  const multimem::ptr<T, Mode> from(input);
  const multimem::ptr<T, Mode> to(output);
  const bool by_switch = from.is_hardware() || to.is_hardware();
  detail::fence_aliases(barrier, by_switch);
  const bool packed = from.is_hardware() && to.is_hardware() && input.offset % 16 == output.offset % 16;
  const auto range = packed ? detail::split_at<T>(input.offset, count) : detail::split_range{count, 0, 0};
  // Warps are numbered by rank, then block, then warp, and take rows in turn.
  const uint64_t threads = group.size();
  const uint64_t width = threads % 32 == 0 ? 32 : threads;
  const uint64_t row = group.thread_rank() / width;
  const uint64_t lane = group.thread_rank() % width;
  const uint64_t blocks = arch::grid_blocks();
  const uint64_t members = static_cast<uint64_t>(ranks.size);
  const uint64_t self = (row * blocks + arch::block_rank()) * members + static_cast<uint64_t>(ranks.rank);
  const uint64_t all = threads / width * blocks * members;
  const auto element = [&](uint64_t p) { return static_cast<int64_t>(range.head + p * pack<T>::size); };
  if (packed) {
    const auto source = from.known_hardware();
    const auto target = to.known_hardware();
    for (uint64_t r = self * width * InFlight; r < range.units; r += all * width * InFlight) {
      pack<T> values[InFlight];
      DEVCOMM_UNROLL
      for (int u = 0; u < InFlight; ++u) {
        const uint64_t p = r + static_cast<uint64_t>(u) * width + lane;
        if (p < range.units) values[u] = detail::load_reduced_pack<Operator>(source + element(p));
      }
      DEVCOMM_UNROLL
      for (int u = 0; u < InFlight; ++u) {
        const uint64_t p = r + static_cast<uint64_t>(u) * width + lane;
        if (p < range.units) (target + element(p)).store(values[u]);
      }
    }
  }
  // What is left, or everything: a shard to each rank.
  detail::for_head_and_tail(range, count, [&](uint64_t first, uint64_t elements) {
    for_each_part_of_block<T>(shard_of(elements, ranks.size, ranks.rank), [&](slice part) {
      const auto begin = static_cast<int64_t>(first + part.begin);
      detail::reduce_members_to_all<T>(group, input + begin, output + begin, part.size(), op);
    });
  });
  detail::fence_aliases(barrier, by_switch);
  barrier.sync(memory_order::acq_rel);
}

/// Each rank gets its shard, `shard_of(count, ranks, rank)`, reduced over all ranks, in its private `output`, which may
/// be the shard's own position in `input`, and else does not overlap it.
template <class T, int InFlight = 8, class Mode = multimem::automatic, class Barrier, class Operator>
DEVCOMM_DEVICE void reduce_scatter_multimem(Barrier& barrier, sym_ptr<T> input, T* output, uint64_t count,
                                            Operator op) {
  detail::check_multimem_collective<T, Operator>();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), input.memory),
                 "multimem collectives need a barrier of the whole LSA team");
  detail::check_in_window(input, count);
  const team ranks = barrier.members();
  const trace_span traced = barrier.trace_call(collective_call::reduce_scatter_multimem, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  const multimem::ptr<T, Mode> all(input);
  detail::fence_aliases(barrier, all.is_hardware());
  const slice shard = shard_of(count, ranks.size, ranks.rank);
  for_each_part_of_block<T>(shard, [&](slice part) {
    const sym_ptr<T> first = input + static_cast<int64_t>(part.begin);
    T* const to = output + (part.begin - shard.begin);
    const auto range =
        all.is_hardware() ? detail::split_at<T>(first.offset, part.size()) : detail::split_range{part.size(), 0, 0};
    if (all.is_hardware()) {
      const auto from = all.known_hardware() + static_cast<int64_t>(part.begin + range.head);
      const to_memory<T> rest{to + range.head, range.units * pack<T>::size};
      const auto load = [&](uint64_t p) {
        return detail::load_reduced_pack<Operator>(from + static_cast<int64_t>(p * pack<T>::size));
      };
      if (to == first.local()) {
        detail::for_each_pack_in_place<InFlight>(barrier.group(), {0, range.units}, load, rest);
      } else {
        detail::for_each_pack<InFlight>(barrier.group(), {0, range.units}, load, rest);
      }
    }
    detail::for_head_and_tail(range, part.size(), [&](uint64_t begin, uint64_t elements) {
      detail::reduce_members_to<T>(barrier.group(), first + static_cast<int64_t>(begin), to + begin, elements, op);
    });
  });
  detail::fence_aliases(barrier, all.is_hardware());
  barrier.sync(memory_order::acq_rel);
}

/// Each rank stores its shard, of which `input` is its own memory, to all outputs. Transfers all bits. `input` may be
/// the shard's own position in `output`, and else does not overlap it.
template <class T, int InFlight = 8, class Mode = multimem::automatic, class Barrier>
DEVCOMM_DEVICE void all_gather_multimem(Barrier& barrier, const T* input, sym_ptr<T> output, uint64_t count) {
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "multimem collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, count);
  const team ranks = barrier.members();
  const trace_span traced = barrier.trace_call(collective_call::all_gather_multimem, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  const multimem::ptr<T, Mode> all(output);
  detail::fence_aliases(barrier, all.is_hardware());
  const slice shard = shard_of(count, ranks.size, ranks.rank);
  for_each_part_of_block<T>(shard, [&](slice part) {
    detail::multicast_part<InFlight>(barrier.group(), input + (part.begin - shard.begin),
                                     all + static_cast<int64_t>(part.begin), part.size());
  });
  detail::fence_aliases(barrier, all.is_hardware());
  barrier.sync(memory_order::acq_rel);
}

/// The root stores its vector to all outputs, its own too. `input` is private to the root, and ignored on other ranks;
/// it may be the root's output, and else does not overlap it. Transfers all bits. *Requires* that `root` is a member of
/// the LSA team; otherwise does nothing.
template <class T, int InFlight = 8, class Mode = multimem::automatic, class Barrier>
DEVCOMM_DEVICE void broadcast_multimem(Barrier& barrier, int root, const T* input, sym_ptr<T> output, uint64_t count) {
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "multimem collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, count);
  const team ranks = barrier.members();
  DEVCOMM_ASSERT(root >= 0 && root < ranks.size, "the root of a broadcast is outside the LSA team");
  if (root < 0 || root >= ranks.size) return;
  const trace_span traced = barrier.trace_call(collective_call::broadcast_multimem, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  if (ranks.rank == root) {
    const multimem::ptr<T, Mode> all(output);
    detail::fence_aliases(barrier, all.is_hardware());
    for_each_part_of_block<T>({0, count}, [&](slice part) {
      detail::multicast_part<InFlight>(barrier.group(), input + part.begin, all + static_cast<int64_t>(part.begin),
                                       part.size());
    });
    detail::fence_aliases(barrier, all.is_hardware());
  }
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
