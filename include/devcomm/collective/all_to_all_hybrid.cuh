/// \file all_to_all_hybrid.cuh
/// All-to-all over the world: stores inside an LSA team, puts across.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/barrier_session.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/copy.cuh>
#include <devcomm/group.cuh>
#include <devcomm/team.hpp>

namespace devcomm::collective {

/// Every rank of the world writes `length` elements to the output of each, and gets as many from each: shard `r` of
/// `input` is for rank `r`, and shard `r` of `output` comes from it. Shards for ranks of the own LSA team are stored to
/// their outputs; the others are put, one put for each rank and part of a block, which threads of the group post side
/// by side and the network moves while the stores go on. All bits are transferred unchanged. Any count, and any
/// alignment of elements.
///
///     collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
///     collective::all_to_all_hybrid<float>(barrier, input, output, length);
///
/// Input and output are in windows and do not overlap. *Ordering*: as `all_to_all_zero_copy`: inputs must be complete
/// before the launch, and outputs are complete, and inputs may be written again, after it; or the grid is synchronized
/// before and after the call.
///
/// *Collective* over the barrier's group on every rank of the world, once in each block of the grid, with the same grid
/// and `length`. After a failure, see `barrier_session`, outputs are undefined; a failure at the first barrier leaves
/// them unchanged.
template <class T, class Group>
DEVCOMM_DEVICE void all_to_all_hybrid(barrier_session<Group>& barrier, sym_ptr<T> input, sym_ptr<T> output,
                                      uint64_t length) {
  const team world = barrier.members();
  const team lsa = barrier.inside().members();
  DEVCOMM_ASSERT(detail::spans_lsa_team(lsa, output.memory),
                 "an all-to-all needs a window of the communicator that made the device communicator");
  detail::check_in_window(input, length * static_cast<uint64_t>(world.size));
  detail::check_in_window(output, length * static_cast<uint64_t>(world.size));
  const trace_span traced = barrier.trace_call(collective_call::all_to_all_hybrid, length);
  barrier.sync(gin::fence_level::none);
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  const auto shard = [&](sym_ptr<T> of, int rank, slice part) {
    return of + static_cast<int64_t>(static_cast<uint64_t>(rank) * length + part.begin);
  };
  // Ranks to put to are those behind the own team, so that not all put to the same one at once; where the team's are
  // not consecutive, those behind this rank.
  const bool together = lsa.has_world_ranks();
  const int begin = together ? lsa.first + lsa.size : world.rank + 1;
  const auto turns = static_cast<uint32_t>(world.size - (together ? lsa.size : 1));
  {
    auto net = barrier.context(thread{});
    for_each_part_of_block<T>({0, length}, [&](slice part) {
      for (uint32_t i = barrier.group().thread_rank(); i < turns; i += barrier.group().size()) {
        const int rank = (begin + static_cast<int>(i)) % world.size;
        if (!together && output.memory.lsa_member(rank) >= 0) continue;
        net.put(rank, shard(output, world.rank, part), shard(input, rank, part), part.size());
      }
    });
  }
  for_each_part_of_block<T>({0, length}, [&](slice part) {
    for (int step = 0; step < lsa.size; ++step) {
      const int member = (lsa.rank + step) % lsa.size;
      copy(barrier.group(), shard(output, world.rank, part).lsa(member),
           static_cast<const T*>(shard(input, output.memory.world_rank(member), part).local()), part.size());
    }
  });
  barrier.sync_across(gin::fence_level::put);
  barrier.context(barrier.group()).flush();
}

}  // namespace devcomm::collective
