/// \file reduce_scatter.cuh
/// Reduce-scatter: through packets, one trip over the links; or straight from the peers' inputs, between two barriers.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::detail {

template <class T, class Channel, class Produce, class Consume, class Operator>
struct reduce_scatter_rounds {
  Channel& channel;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  Operator op;
  uint32_t room;

  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    const auto start = channel.walk();
    const int members = Ranks != 0 ? Ranks : channel.members().size;
    for (uint64_t begin = packs.begin; begin < packs.end; begin += room) {
      const auto count = static_cast<uint32_t>(packs.end - begin < room ? packs.end - begin : room);
      channel.begin_round();
      {
        const trace_span phase = channel.trace({"send", span_kind::copy});
        for (auto at = start; at.first() < count; at.next())
          send_pieces<pieces_at_once<Ranks>, T>(channel, members, at, [&](int member) {
            return at.is_below(count) ? static_cast<pack<T>>(produce(member, begin + at.index())) : pack<T>{};
          });
      }
      {
        const trace_span phase = channel.trace({"reduce", span_kind::reduction});
        for (auto at = start; at.first() < count; at.next()) {
          const pack<T> result = receive_and_reduce<Ranks, T>(channel, members, at, op);
          if (channel.is_alive() && at.is_below(count)) consume(begin + at.index(), result);
        }
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank sends each its piece of the vector, and reduces the pieces that it gets: one trip over the links, no
/// barrier before or after. Each rank sends `(ranks - 1) / ranks` times the vector, or with LL twice that.
///
/// `produce(rank, i)` returns pack `i` of the piece that is for `rank`, `consume(i, pack)` takes pack `i` of this
/// rank's reduced piece; each is called once for each `i` in the slice `packs`, and each rank, by one thread of the
/// channel's group, the same for both. So the result may take the place of this rank's own piece. Inputs and outputs
/// are this rank's alone: peers touch neither. `from_pieces` and `to_memory` are such functors for vectors in memory.
///
/// `channel` is an `lsa::ll_session`, an `lsa::ll128_session` or, for floating-point types, an `lsa::lamport_session`.
/// Pieces longer than its capacity take several rounds. Elements accumulate in `accumulator_t<T>` in the order of the
/// ranks: the same bits in every run, and those of `all_reduce_one_shot`.
///
/// *Collective* over the channel's group, with the same `packs` on every rank: checked launches compare them; else
/// ranks that differ wait in vain or get wrong results. After a failure, see `ll_session`, `consume` is not called for
/// packs that did not come from every rank: what it gets is complete.
template <class T, class Channel, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void reduce_scatter(Channel& channel, slice packs, const Produce& produce, const Consume& consume,
                                   Operator op) {
  static_assert(Channel::template can_carry<T>, "this channel cannot carry this type; use an LL mailbox");
  static_assert(detail::takes_packs_only<Consume, T>, "only all_reduce_chunked calls map and complete of a consumer");
  const uint32_t room = channel.pack_capacity();
  DEVCOMM_ASSERT(room > 0, "the channel of a reduce-scatter needs a capacity of one pack at least");
  if (room == 0) return;
  channel.begin_call(call_contract::of("reduce_scatter", packs.begin, packs.end, sizeof(T)));
  const trace_span traced = channel.trace_call(collective_call::reduce_scatter, packs.size());
  detail::with_ranks(channel.members().size, detail::reduce_scatter_rounds<T, Channel, Produce, Consume, Operator>{
                                                 channel, packs, produce, consume, op, room});
}

}  // namespace devcomm::collective

namespace devcomm::collective {

/// Every rank reads its piece of all inputs and reduces it. Each rank reads `(ranks - 1) / ranks` times the vector of
/// `count` elements over its links, and only inputs lie in a window: `output` is this rank's alone, and takes
/// `piece_of(count, ranks, rank)`. It may be the place of that piece in the input.
///
/// Blocks, order of reduction and failures are those of `all_reduce_one_shot_pull`.
///
/// *Collective* over `group`, which is the barrier's, on every rank of `comm.lsa()`, once in each block of the grid,
/// with the same grid and `count`.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void reduce_scatter_direct(lsa::barrier_session<Group>& barrier, const Group& group,
                                          const device_comm& comm, sym_ptr<T> input, T* output, uint64_t count,
                                          Operator op) {
  const team ranks = comm.lsa();
  const slice piece = piece_of(count, ranks.size, ranks.rank);
  const slice mine = part_of_block<T>(piece);
  const trace_span traced = barrier.trace_call(collective_call::reduce_scatter_direct, count);
  barrier.sync(memory_order::acq_rel);
  if (barrier.agree() != status::success) return;
  reduce_copy<T>(
      group, ranks.size, [&](int rank) { return static_cast<const T*>(input.lsa(rank)) + mine.begin; }, 1,
      [&](int) { return output + (mine.begin - piece.begin); }, mine.size(), op);
  barrier.sync(memory_order::acq_rel);  // inputs are read
}

}  // namespace devcomm::collective
