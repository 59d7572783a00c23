/// \file cluster.hpp
/// The blocks of a cluster: they start together, meet at a barrier, access each other's shared memory, and keep it
/// until all have ended.
#pragma once

#include "base/sanitizer.hpp"

#include <devcomm/simulator/detail/cluster.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

class block;
struct fiber;
struct grid;

struct cluster {
  std::vector<block*> blocks;  ///< by rank; null: not started
  uint64_t arrived = 0;        ///< threads
  uint64_t live = 0;           ///< threads that have not exited
  uint64_t phase = 0;          ///< of its barrier
  sanitizer::cell cells[2];    ///< of even and odd phases
  uint32_t ended = 0;          ///< blocks
};

/// The blocks of each cluster start together from now on, also those of clusters of which one has started.
void begin_clusters(grid& g);
/// The block becomes part of its cluster, whose size is known.
void join_cluster(block& b);
/// Its shared memory is there from now on.
void share_with_cluster(block& b);
/// The thread has exited.
void leave_cluster(block& b, const fiber& f);
/// All threads of the block have exited. Whether its shared memory may go, as all of its cluster have ended.
[[nodiscard]] bool end_in_cluster(block& b);
/// "the barrier of its cluster, at which 32 of 64 threads have arrived", if the block's threads poll that.
[[nodiscard]] std::string describe_cluster_barrier(const block& b, const void* polled);

}  // namespace devcomm::simulator::detail
