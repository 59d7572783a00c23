/// \file one_shot.cuh
/// One-shot all-reduce through packets: the least latency for small vectors. See `all_reduce_algorithm`.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/diagnostics/failure.hpp>
#include <devcomm/diagnostics/trace_span.cuh>

namespace devcomm::detail {

template <class T, class Session, class Produce, class Consume, class Operator>
struct one_shot_rounds {
  Session& session;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  Operator op;
  uint32_t capacity;

  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    for (uint64_t begin = packs.begin; begin < packs.end; begin += capacity) {
      const auto count = static_cast<uint32_t>(packs.end - begin < capacity ? packs.end - begin : capacity);
      session.begin_round();
      {
        const trace_span phase = session.trace({"send", span_kind::copy});
        for (auto at = session.cursor(); at.first() < count; at.next())
          session.template send_pack_to_all<Ranks>(
              at, at.is_below(count) ? static_cast<pack<T>>(produce(begin + at.index())) : pack<T>{});
      }
      {
        const trace_span phase = session.trace({"reduce", span_kind::reduction});
        for (auto at = session.cursor(); at.first() < count; at.next()) {
          const pack<T> result = receive_and_reduce<Ranks, T>(session, session.members().size, at, op);
          if (session.is_alive() && at.is_below(count)) consume(begin + at.index(), result);
        }
      }
    }
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Capacity in packs that a session needs to all-reduce `packs` packs in one round of `all_reduce_one_shot`.
DEVCOMM_HOST_DEVICE constexpr uint32_t one_shot_capacity(uint64_t packs) {
  return packs < 0xffffffffu ? static_cast<uint32_t>(packs) : 0xffffffffu;
}

/// Every rank sends its vector to all ranks and reduces all vectors itself: one trip over the links, without a barrier.
/// Each rank sends `ranks - 1` times the vector, with LL twice that.
///
///     lsa::lamport_session session{block{}, comm, mailboxes, blockIdx.x};
///     const collective::slice packs = collective::slice_of_block(collective::packs_of<float>(count));
///     collective::all_reduce_one_shot<float>(session, packs, collective::from_memory<float>{input, count},
///                                            collective::to_memory<float>{output, count}, sum{});
///
/// `produce(i)` returns pack `i` of this rank's vector; `consume(i, pack)` takes pack `i` of the result. Each is called
/// once for each `i` in the slice `packs`, both by the same thread of the session's group, so a kernel can compute its
/// input in the producer and use the result in the consumer. Inputs and outputs are private: peers do not access them.
///
/// `session` is an `lsa::ll_session`, an `lsa::ll128_session` or, for floating-point types, an `lsa::lamport_session`.
/// Vectors longer than its capacity take several rounds. Elements accumulate in `accumulator_t<T>` in the order of the
/// ranks, so all ranks get the same bits in every run.
///
/// *Collective* over the session's group, with the same `packs` on every rank. Checked launches compare them; otherwise
/// ranks that differ time out or get wrong sums. After a failure, see `ll_session`, `consume` is called only for packs
/// that arrived from every rank.
template <class T, class Session, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE void all_reduce_one_shot(Session& session, slice packs, const Produce& produce, const Consume& consume,
                                        Operator op) {
  static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
  static_assert(detail::takes_packs_only<Consume, T>,
                "only all_reduce_two_shot_chunked calls map and complete of a consumer");
  const uint32_t capacity = session.pack_capacity();
  DEVCOMM_ASSERT(capacity > 0, "the mailbox of an all-reduce needs a capacity of at least one pack");
  if (capacity == 0) return;
  session.begin_call(call_contract::of<collective_call::all_reduce_one_shot>(packs.begin, packs.end, sizeof(T)));
  const trace_span traced = session.trace_call(collective_call::all_reduce_one_shot, packs.size());
  detail::with_ranks(session.members().size, detail::one_shot_rounds<T, Session, Produce, Consume, Operator>{
                                                 session, packs, produce, consume, op, capacity});
}

}  // namespace devcomm::collective
