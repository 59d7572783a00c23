/// \file all_to_all.cuh
/// All-to-all: every rank sends a shard of its vector to each. Through packets, one trip over the links; or straight
/// into the peers' outputs, between two flags.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/team.hpp>

namespace devcomm::detail {

template <class T, class Session, class Produce, class Consume>
struct all_to_all_rounds {
  Session& session;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  uint32_t capacity;

  /// `Ranks` is the team's size, or 0 where it is not known.
  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    constexpr int at_once = Ranks == 2 ? 1 : 4;
    const auto start = session.cursor();
    const int members = Ranks != 0 ? Ranks : session.members().size;
    const int self = session.members().rank;
    DEVCOMM_UNROLL_BY(1)
    for (uint64_t begin = packs.begin; begin < packs.end; begin += capacity) {
      const auto count = static_cast<uint32_t>(packs.end - begin < capacity ? packs.end - begin : capacity);
      auto sent = start;
      const auto make = [&](int member) {
        return sent.is_below(count) ? static_cast<pack<T>>(produce(member, begin + sent.index())) : pack<T>{};
      };
      packs_for_peers<at_once, T> loaded{};  // while the session's epoch is, which the round begins with
      if (sent.first() < count) loaded.load(self, members, 1, make);
      session.begin_round();
      {
        const trace_span phase = session.trace({"send", span_kind::copy});
        DEVCOMM_UNROLL_BY(1)
        for (; sent.first() < count; sent.next()) {
          if (sent.first() != start.first()) loaded.load(self, members, 1, make);
          loaded.send(session, self, members, 1, sent);
          DEVCOMM_UNROLL_BY(1)
          for (int step = 1 + at_once; step < members; step += at_once) {
            loaded.load(self, members, step, make);
            loaded.send(session, self, members, step, sent);
          }
        }
        DEVCOMM_UNROLL_BY(1)
        for (auto at = start; at.first() < count; at.next())  // this rank's own, while packets are under way
          if (at.is_below(count))
            consume(self, begin + at.index(), static_cast<pack<T>>(produce(self, begin + at.index())));
      }
      {
        const trace_span phase = session.trace({"receive", span_kind::copy});
        DEVCOMM_UNROLL_BY(1)
        for (auto at = start; at.first() < count; at.next()) {
          const auto take = [&](int member, const pack<T>& value) {
            if (at.is_below(count)) consume(member, begin + at.index(), value);
          };
          if constexpr (Ranks == 2) {
            receive_from<1, T>(session, 1 - self, 2 - self, at, take);
          } else {
            receive_from<at_once, T>(session, 0, self, at, take);
            receive_from<at_once, T>(session, self + 1, members, at, take);
          }
        }
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Every rank sends each peer that peer's shard of its vector, and gets its own shard of all vectors: one trip over the
/// links, without a barrier. Each rank sends `(ranks - 1) / ranks` times the vector, with LL twice that.
///
/// `produce(rank, i)` returns pack `i` of what this rank has for `rank`; `consume(rank, i, pack)` takes pack `i` of
/// what `rank` has for this one. Each is called once for each rank and each `i` in the slice `packs`, both by the same
/// thread of the session's group, `produce` first. Inputs and outputs are private: peers do not access them, and the
/// output may be the input. `from_shards` and `to_shards` are such functors for vectors in memory. What a rank has for
/// itself takes no packets.
///
/// `session` is an `lsa::ll_session` or an `lsa::ll128_session`, which transfer all bits, or, for floating-point types,
/// an `lsa::lamport_session`, which may change the bits of a NaN. Shards longer than its capacity take several rounds.
///
///     lsa::ll128_session session{block{}, comm, mailboxes, blockIdx.x};
///     const std::uint64_t count = comm.lsa_size * length;  // elements; of each shard `length`
///     collective::all_to_all<T>(session, collective::slice_of_block(collective::packs_of<T>(length)),
///                               collective::from_shards<T>{input, count, length},
///                               collective::to_shards<T>{output, count, length});
///
/// *Collective* over the session's group, with the same `packs` on every rank. Checked launches compare them; otherwise
/// ranks that differ time out or get wrong results. After a failure, see `ll_session`, `consume` is called only for
/// packs that arrived, and for this rank's own.
template <class T, class Session, class Produce, class Consume>
DEVCOMM_DEVICE void all_to_all(Session& session, slice packs, const Produce& produce, const Consume& consume) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  const uint32_t capacity = session.pack_capacity();
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of an all-to-all needs a capacity of at least one pack");
  if (capacity == 0) return;
  session.begin_call(call_contract::of<collective_call::all_to_all>(packs.begin, packs.end, sizeof(T)));
  const trace_span traced = session.trace_call(collective_call::all_to_all, packs.size());
  const detail::all_to_all_rounds<T, Session, Produce, Consume> rounds{session, packs, produce, consume, capacity};
  if (session.members().size == 2) {
    rounds.template run<2>();
  } else {
    rounds.template run<0>();
  }
}

/// Every rank writes `length` elements to the output of each, and gets as many from each. Shard `m` of `input` is for
/// member `m` of the LSA team, and shard `m` of `output` comes from it. Each rank writes `ranks - 1` shards over its
/// links. Only outputs are in a window: `input` is private, and is not in the output. All bits are transferred
/// unchanged.
///
/// *Ordering*, *Blocks* and failures are those of `exchange_zero_copy`.
///
/// *Collective* over the barrier's group, on every rank of the LSA team, once in each block of the grid, with the same
/// grid and `length`.
template <class T, class Group>
DEVCOMM_DEVICE void all_to_all_zero_copy(lsa::barrier_session<Group>& barrier, const T* input, sym_ptr<T> output,
                                         uint64_t length, copy_buffers outputs = copy_buffers::reused) {
  const team ranks = barrier.members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(barrier.members(), output.memory),
                 "zero-copy collectives need a barrier of the whole LSA team");
  detail::check_in_window(output, length * static_cast<uint64_t>(ranks.size));
  const trace_span traced = barrier.trace_call(collective_call::all_to_all_zero_copy, length);
  if (outputs == copy_buffers::reused) barrier.sync(lsa::at_launch);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  // Each rank starts with another. Every other block starts with what stays here, so that the links are busy from the
  // beginning and local memory is not left to the end.
  const int first = arch::block_rank() % 2 == 0 ? 1 : 0;
  for_each_part_of_block<T>({0, length}, [&](slice part) {
    DEVCOMM_UNROLL_BY(1)
    for (int step = first; step < first + ranks.size; ++step) {
      const int rank = ranks.rank + step < ranks.size ? ranks.rank + step : ranks.rank + step - ranks.size;
      copy(barrier.group(), output.lsa(rank) + static_cast<uint64_t>(ranks.rank) * length + part.begin,
           input + static_cast<uint64_t>(rank) * length + part.begin, part.size());
    }
  });
  barrier.sync(memory_order::acq_rel);
}

}  // namespace devcomm::collective
