/// \file two_shot_chunked.cuh
/// Two-shot all-reduce in chunks: large vectors at the bandwidth of the links, with few blocks. See
/// `all_reduce_algorithm`; chunks.cuh has the protocol.
#pragma once

#include <devcomm/collective/chunks.cuh>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>

namespace devcomm::collective {

/// Each rank owns a shard of the vector: it receives the shard from all ranks, reduces it, and sends the result to all.
/// Each rank sends `2 * (ranks - 1) / ranks` times the vector, chunk by chunk. `n` rounds of chunks take `n + 1`
/// barriers; while one group waits at a barrier other groups send, so give a block two groups, each with a barrier,
/// scratch and a slice of its own.
///
///     const auto scratch = collective::chunk_scratch::of_group(comm, buffers, buffers.packs_for(groups, ranks),
///     group); collective::all_reduce_two_shot_chunked<float>(barrier, scratch, packs,
///     collective::from_memory<float>{input, count},
///                                                    collective::to_memory<float>{output, count}, sum{});
///
/// Hooks, order of reduction and determinism are those of `all_reduce_one_shot`, for any type. Inputs and outputs are
/// private. With `to_window` as `consume` results are stored straight to all outputs instead of the scratch memory:
/// less work, so fewer blocks are needed. Then outputs may be the inputs, and are complete when the call returns.
///
/// A consumer may have two more const members. `map(i, sum)` is called by the owner of a result, and all ranks'
/// consumers get what it returns. `complete(packs)` is called by the whole group for consecutive slices that cover the
/// call's: all packs of the slice were consumed, or have arrived in this rank's window, and the group's threads see
/// each other's stores. It may synchronize the group. Slices begin and end at multiples of `scratch.granularity` from
/// `packs.begin`, except the end of the last.
///
/// *Collective* over the barrier's group, on every rank of the LSA team, with the same `packs` and scratch. Checked
/// launches do not compare these: put them into `device_comm::with_launch_key`. Two calls of one launch whose outputs
/// in windows overlap and belong to different groups need a barrier of all groups between them. Does nothing where the
/// scratch holds 0 packs, or no multiple of its granularity. After a failure, see `barrier_session`, `consume` is
/// called only for packs that arrived from every rank.
template <class T, class Group, class Produce, class Consume, class Operator>
DEVCOMM_DEVICE DEVCOMM_FORCEINLINE void all_reduce_two_shot_chunked(lsa::barrier_session<Group>& barrier,
                                                                    const chunk_scratch& scratch, slice packs,
                                                                    const Produce& produce, const Consume& consume,
                                                                    Operator op) {
  static_assert(detail::members_are_const<Consume, T>, "a consumer's store, map and complete are const members");
  if (!detail::has_whole_rows(scratch, barrier.members())) return;
  const trace_span traced = barrier.trace_call(collective_call::all_reduce_two_shot_chunked, packs.size());
  detail::with_ranks(barrier.members().size, detail::chunked_reduction<true, T, Group, Produce, Consume, Operator>{
                                                 barrier, barrier.members(), scratch, packs, produce, consume, op});
}

}  // namespace devcomm::collective
