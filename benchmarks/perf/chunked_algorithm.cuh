/// \file chunked_algorithm.cuh
/// The base of algorithms in chunks.
#pragma once

#include "perf/chunk_groups.cuh"
#include "perf/device_algorithm.hpp"
#include "perf/options.hpp"

#include <devcomm/devcomm.cuh>

#include <cstdint>
#include <string>

namespace perf {

/// What algorithms in chunks share: their resources, and what they ask of a launch's shape.
class chunked_algorithm : public device_algorithm {
 public:
  explicit chunked_algorithm(const rank_context& context) : device_algorithm(context) {
    devcomm::requirements needs = comm().requirements();
    needs.lsa_barriers(max_blocks * max_groups_of_block);
    // More than 32 MiB is no faster, half is slower (docs/internals/performance_notes.md).
    buffers_ = needs.add(devcomm::collective::chunk_buffer_bytes{std::uint64_t{32} << (is_simulated() ? 10 : 20)});
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] bool can_be_dependent() const override { return true; }

 protected:
  /// Of the whole launch.
  [[nodiscard]] static std::uint64_t groups_of(const launch_shape& shape) {
    return std::uint64_t{shape.blocks} * groups_of_block(shape);
  }
  [[nodiscard]] std::uint32_t packs_for(std::uint64_t groups, std::uint32_t granularity) const {
    return buffers_.packs_for(groups, comm().lsa().size, granularity);
  }
  /// Packs of a chunk. Throws where the shape has no whole warps for each group, or the buffers are too small.
  [[nodiscard]] std::uint32_t chunk_packs(const launch_shape& shape, std::uint32_t granularity = 1) const {
    const unsigned groups = groups_of_block(shape);
    if (shape.threads % (32 * groups) != 0)
      throw usage_error("--threads " + std::to_string(shape.threads) + ": " + name() +
                        " takes whole warps for each of " + std::to_string(groups) +
                        " groups of a block: a multiple of " + std::to_string(32 * groups));
    const std::uint32_t packs = packs_for(groups_of(shape), granularity);
    if (packs == 0)
      throw usage_error("--blocks " + std::to_string(shape.blocks) + ": too many for the buffers of " + name());
    return packs;
  }

  devcomm::collective::chunk_buffers buffers_{};
};

}  // namespace perf
