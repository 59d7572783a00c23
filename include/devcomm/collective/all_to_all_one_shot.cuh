/// \file all_to_all_one_shot.cuh
/// All-to-all over the world for small shards: one trip of the network.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/barrier_session.cuh>
#include <devcomm/collective/detail/network_slot_end.cuh>
#include <devcomm/collective/network_slots.hpp>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/group.cuh>
#include <devcomm/team.hpp>

namespace devcomm::collective {

/// `all_to_all_hybrid` for small shards: those for other LSA teams go through slots, which say themselves when they
/// have come and when they may be used again. One trip of the network, without a barrier or a flush of it; two barriers
/// of the LSA team, none where it is one rank.
///
///     const auto slots = needs.add(collective::network_slots{.members = comm.world(), .groups = blocks});
///
///     collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x), blockIdx.x};
///     collective::all_to_all_one_shot<float>(barrier, input, output, slots, length);
///
/// Any length: where a block's part of a shard does not fit a slot, each slot of it takes one more trip. Input and
/// output do not overlap. LSA teams have one size, as the contexts beside LSA barriers require. A block has slots and
/// signals of its own, and stays with the context of its first call. *Ordering* is that of `all_to_all_hybrid`.
/// *Failure*: see `barrier_session`. A rank that waits for another host in vain does not arrive at the last LSA
/// barrier, so that its whole LSA team fails; outputs are undefined then, and no more calls are possible with the
/// device communicator.
///
/// *Collective* over the barrier's group on every rank of the world, once in each block of the grid, with the same grid
/// and `length`.
template <class T, class Group>
DEVCOMM_DEVICE void all_to_all_one_shot(barrier_session<Group>& barrier, sym_ptr<T> input, sym_ptr<T> output,
                                        const network_slot_handle& slots, uint64_t length) {
  const team world = barrier.members();
  const team lsa = barrier.inside().members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(lsa, output.memory),
                 "an all-to-all needs a window of the communicator that made the device communicator");
  detail::check_in_window(input, length * static_cast<uint64_t>(world.size));
  detail::check_in_window(output, length * static_cast<uint64_t>(world.size));
  const trace_span traced = barrier.trace_call(collective_call::all_to_all_one_shot, length);
  const slice mine = part_of_block<T>({0, length});
  if (mine.size() == 0) return;
  const Group& group = barrier.group();
  const bool is_alone = lsa.size == 1;
  const uint64_t most = uint64_t{slots.packs} * pack<T>::size;
  const auto shard = [&](sym_ptr<T> of, int rank, uint64_t begin) {
    return of + static_cast<int64_t>(static_cast<uint64_t>(rank) * length + begin);
  };
  const auto is_outside = [&](int rank) { return output.memory.lsa_member(rank) < 0; };

  detail::network_slot_end<Group> net(barrier, slots, world, arch::block_rank());
  if (barrier.agree() != status::success) return;
  for (uint64_t begin = mine.begin; begin < mine.end; begin += most) {
    const uint64_t size = most < mine.end - begin ? most : mine.end - begin;
    for (int rank = 0; rank < world.size; ++rank)
      if (is_outside(rank))
        copy(group, reinterpret_cast<T*>(net.to_send(rank)), static_cast<const T*>(shard(input, rank, begin).local()),
             size);
    net.put(size * sizeof(T), is_outside, [](int rank) { return rank; });
    if (begin == mine.begin && !is_alone) {  // the team's outputs may be written once it is here
      barrier.inside().sync();
      if (barrier.agree() != status::success) return;
    }
    for (int step = 0; step < lsa.size; ++step) {
      const int member = (lsa.rank + step) % lsa.size;
      copy(group, shard(output, world.rank, begin).lsa(member),
           static_cast<const T*>(shard(input, output.memory.world_rank(member), begin).local()), size);
    }
    if (!net.await(is_outside)) return;
    for (int rank = 0; rank < world.size; ++rank)
      if (is_outside(rank))
        copy(group, shard(output, rank, begin).local(), reinterpret_cast<const T*>(net.came(rank)), size);
    net.advance();
  }
  net.keep();
  if (!is_alone) barrier.inside().sync();
}

}  // namespace devcomm::collective
