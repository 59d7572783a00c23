#include "gpu/launch_shape.hpp"

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread uint3 blockDim;
__thread uint3 gridDim;

namespace devcomm::simulator::detail {

void set_block_variables(const dim3& grid, const dim3& block, uint64_t block_rank) {
  gridDim = grid;
  blockDim = block;
  blockIdx = {static_cast<unsigned>(block_rank % grid.x), static_cast<unsigned>(block_rank / grid.x % grid.y),
              static_cast<unsigned>(block_rank / (uint64_t{grid.x} * grid.y))};
}

}  // namespace devcomm::simulator::detail
