#include "gpu/launch_shape.hpp"

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread uint3 blockDim;
__thread uint3 gridDim;

namespace devcomm::simulator::detail {

const char* wrong_cluster(const dim3& grid, const dim3& cluster) {
  constexpr uint64_t most = 16;  // with cudaFuncAttributeNonPortableClusterSizeAllowed, which is not asked for
  const uint64_t blocks = uint64_t{cluster.x} * cluster.y * cluster.z;
  if (blocks == 0 || blocks > most) return "a cluster has 1 to 16 blocks";
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    return "the grid is no multiple of the cluster in each dimension";
  return nullptr;
}

uint3 block_index(const dim3& grid, uint64_t block_rank) {
  return {static_cast<unsigned>(block_rank % grid.x), static_cast<unsigned>(block_rank / grid.x % grid.y),
          static_cast<unsigned>(block_rank / (uint64_t{grid.x} * grid.y))};
}

void set_block_variables(const dim3& grid, const dim3& block, uint64_t block_rank) {
  gridDim = grid;
  blockDim = block;
  blockIdx = block_index(grid, block_rank);
}

}  // namespace devcomm::simulator::detail
