/// \file chunk_groups.cuh
/// How kernels in chunks are launched: blocks of one or two groups, each with a barrier and chunks of its own.
#pragma once

#include "perf/device_algorithm.hpp"
#include "perf/options.hpp"

#include <devcomm/devcomm.cuh>

#include <cstdint>
#include <string>

namespace perf {

/// While one group waits at its barrier another moves data, which pays as long as few blocks do.
inline constexpr unsigned most_groups_of_block = 2;
constexpr unsigned groups_of_block(const launch_shape& shape) {
  return shape.blocks <= 32 && shape.threads >= 128 ? most_groups_of_block : 1;
}
/// The calling thread's group of the `groups` of its block.
struct chunk_group {
  devcomm::warp_span group;
  unsigned index;  ///< among all of the launch

  __device__ explicit chunk_group(unsigned groups) : chunk_group(groups, blockDim.x / 32 / groups) {}

 private:
  __device__ chunk_group(unsigned groups, unsigned warps) : chunk_group(groups, warps, threadIdx.x / 32 / warps) {}
  __device__ chunk_group(unsigned groups, unsigned warps, unsigned part)
      : group(part * warps, warps, 1 + part), index(blockIdx.x * groups + part) {}
};

/// What algorithms in chunks share: their resources, and what they ask of a launch's shape.
class chunked_algorithm : public device_algorithm {
 public:
  explicit chunked_algorithm(const rank_context& context) : device_algorithm(context) {
    devcomm::requirements needs = comm().requirements();
    needs.lsa_barriers(most_blocks * most_groups_of_block);
    // More than 32 MiB is no faster, half is slower (docs/performance.md).
    buffers_ = devcomm::collective::chunk_buffers::add(needs, is_simulated() ? 1 << 15 : 32 << 20);
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] bool can_be_dependent() const override { return true; }

 protected:
  /// Of the whole launch.
  [[nodiscard]] static std::uint64_t groups_of(const launch_shape& shape) {
    return std::uint64_t{shape.blocks} * groups_of_block(shape);
  }
  [[nodiscard]] std::uint32_t packs_for(std::uint64_t groups, std::uint32_t grain) const {
    return buffers_.packs_for(groups, comm().lsa().size, grain);
  }
  /// Packs of a chunk. Throws where the shape has no whole warps for each group, or the buffers no room.
  [[nodiscard]] std::uint32_t chunk_packs(const launch_shape& shape, std::uint32_t grain = 1) const {
    const unsigned groups = groups_of_block(shape);
    if (shape.threads % (32 * groups) != 0)
      throw usage_error("--threads " + std::to_string(shape.threads) + ": " + name() +
                        " takes whole warps for each of " + std::to_string(groups) +
                        " groups of a block: a multiple of " + std::to_string(32 * groups));
    const std::uint32_t packs = packs_for(groups_of(shape), grain);
    if (packs == 0)
      throw usage_error("--blocks " + std::to_string(shape.blocks) + ": too many for the buffers of " + name());
    return packs;
  }

  devcomm::collective::chunk_buffers buffers_{};
};

}  // namespace perf
