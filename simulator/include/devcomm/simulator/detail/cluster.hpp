/// \file cluster.hpp
/// Clusters of thread blocks. Without a cluster dimension each block is a cluster of its own.
///
/// Addresses of `.shared::cluster` have the block's rank in its cluster plus one in their upper 8 bits, and where the
/// byte is in its shared memory in the lower 24; those of `.shared::cta` are the caller's own.
#pragma once

#include <vector_types.h>

#include <cstdint>

namespace devcomm::simulator::detail {

/// The kernel has `__cluster_dims__(x, y, z)`: put into its body by devcomm_translate.py.
void use_clusters(unsigned x, unsigned y = 1, unsigned z = 1);

struct place_in_cluster {
  dim3 blocks;  ///< of the cluster
  uint3 index;  ///< of the calling block in it
  uint32_t rank;
};
[[nodiscard]] place_in_cluster own_place_in_cluster();

void arrive_at_cluster(bool releases);
void wait_for_cluster(bool acquires);

/// Where an address of `.shared::cluster` is. Throws `misuse` for others.
[[nodiscard]] void* shared_of_cluster(uint32_t address);
/// The same place in the shared memory of that block, as address and as pointer. Throws `misuse` for other memory.
[[nodiscard]] uint32_t mapped_address(uint32_t address, uint32_t rank);
[[nodiscard]] void* mapped_pointer(const void* pointer, uint32_t rank);
/// The rank of the block that has it.
[[nodiscard]] uint32_t rank_of_address(uint32_t address);
[[nodiscard]] uint32_t rank_of_pointer(const void* pointer);
/// Whether it is in the shared memory of any block of the cluster.
[[nodiscard]] bool is_in_cluster(const void* pointer);

}  // namespace devcomm::simulator::detail
