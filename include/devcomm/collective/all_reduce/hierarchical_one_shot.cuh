/// \file hierarchical_one_shot.cuh
/// All-reduce over the world for small vectors: one trip of the network.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/all_reduce/hierarchical.cuh>
#include <devcomm/collective/barrier_session.cuh>
#include <devcomm/collective/detail/network_slot_end.cuh>
#include <devcomm/collective/network_slots.hpp>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/reduce_copy.cuh>
#include <devcomm/group.cuh>
#include <devcomm/team.hpp>

namespace devcomm::collective {

/// `all_reduce_hierarchical` for small vectors, see `rail_exchange::one_shot`: each rank reduces the inputs of its LSA
/// team, all of the vector, puts the result to every other rank of its rail, and adds up what comes from there. One
/// trip of the network, without a barrier or a flush of it; two barriers of the LSA team, none where it is one rank.
///
///     const auto slots = needs.add(collective::network_slots{.members = comm.rail(), .groups = blocks});
///
///     collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x), blockIdx.x};
///     collective::all_reduce_hierarchical_one_shot<float>(barrier, tensor, tensor, slots, count, sum{});
///
/// Any count: where a block's part does not fit a slot, each slot of it takes one more trip. `input` and `output` may
/// be the same memory. The order of sums, and so the bits, are those of `all_reduce_hierarchical`. A block has slots
/// and signals of its own, and stays with the context of its first call.
///
/// *Ordering*: inputs must be complete before the launch, and outputs are complete after it, or the grid is
/// synchronized before and after the call. *Failure*: see `barrier_session`. A rank whose rail has failed does not
/// arrive at the LSA barrier that follows, so that its whole LSA team fails; nothing is written of the part that
/// failed. No more calls are possible with the device communicator then.
///
/// *Collective* over the barrier's group on every rank of the world, once in each block of the grid, with the same grid
/// and `count`.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void all_reduce_hierarchical_one_shot(barrier_session<Group>& barrier, sym_ptr<T> input,
                                                     sym_ptr<T> output, const network_slot_handle& slots,
                                                     uint64_t count, Operator op) {
  const team lsa = barrier.inside().members();
  const team rail = barrier.rail();
  DEVCOMM_ASSERT(detail::spans_lsa_team(lsa, input.memory),
                 "an all-reduce needs windows of the communicator that made the device communicator");
  detail::check_in_window(input, count);
  detail::check_in_window(output, count);
  const trace_span traced = barrier.trace_call(collective_call::all_reduce_hierarchical_one_shot, count);
  const slice mine = slice_of_block(packs_of<T>(count));
  if (mine.size() == 0) return;
  const Group& group = barrier.group();
  const bool is_alone = lsa.size == 1;
  const auto element = [&](uint64_t p) {
    const uint64_t i = (p < mine.end ? p : mine.end) * pack<T>::size;
    return i < count ? i : count;
  };
  const auto all = [](int) { return true; };

  detail::network_slot_end<Group> net(barrier, slots, rail, arch::block_rank());
  if (!is_alone) barrier.inside().sync();
  if (barrier.agree() != status::success) return;
  for (uint64_t begin = mine.begin; begin < mine.end; begin += slots.packs) {
    const slice part{element(begin), element(begin + slots.packs)};
    T* const partial = reinterpret_cast<T*>(net.to_send(rail.rank));
    reduce_copy<T>(
        group, lsa.size,
        [&](int member) { return static_cast<const T*>((input + static_cast<int64_t>(part.begin)).lsa(member)); }, 1,
        [&](int) { return partial; }, part.size(), detail::partial_reduction<Operator>{op});
    net.put(part.size() * sizeof(T), all, [&](int) { return rail.rank; });
    if (!net.await(all)) return;
    // From here on the team's inputs may be overwritten. A rank whose rail has failed does not come.
    if (!is_alone) {
      barrier.inside().sync();
      if (barrier.agree() != status::success) return;
    }
    reduce_copy<T>(
        group, rail.size,
        [&](int t) {
          return t == rail.rank ? static_cast<const T*>(partial) : reinterpret_cast<const T*>(net.came(t));
        },
        1, [&](int) { return (output + static_cast<int64_t>(part.begin)).local(); }, part.size(),
        detail::rest_of_reduction<Operator>{op, barrier.members().size});
    net.advance();
  }
  net.keep();
}

}  // namespace devcomm::collective
