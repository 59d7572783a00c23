#include "perf/chunked_all_reduce.hpp"
#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

#include <algorithm>

namespace perf {
namespace {

using namespace devcomm;

/// Groups of each block. While one waits at its barrier the other moves data, which pays as long as few blocks do.
constexpr unsigned most_groups = 2;
constexpr unsigned groups_of_block(const launch_shape& shape) {
  return shape.blocks <= 32 && shape.threads >= 128 ? most_groups : 1;
}
/// Bytes of the buffers for inputs, and for results: more is no faster, half is slower (docs/performance.md).
constexpr std::uint64_t buffer_bytes = 32 << 20;

template <class T, class Consume>
__global__ void __launch_bounds__(most_threads, 1)
    through_chunks(device_comm comm, collective::chunk_buffers buffers, std::uint32_t chunk_packs, const T* input,
                   Consume consume, std::uint64_t count, std::uint64_t group_packs, unsigned groups) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const unsigned warps = blockDim.x / 32 / groups;
  const unsigned part = threadIdx.x / 32 / warps;
  const unsigned index = blockIdx.x * groups + part;
  const warp_span group(part * warps, warps, 1 + part);
  lsa::barrier_session barrier{group, comm, index};
  collective::all_reduce_chunked<T>(
      barrier, group, comm, collective::chunk_room::of_group(comm, buffers, chunk_packs, index),
      collective::piece_of_length(collective::packs_of<T>(count), group_packs, static_cast<int>(index)),
      collective::from_memory<T>{input, count}, consume, sum{});
}

/// Results through memory of the library's to outputs anywhere, or straight into a window.
template <bool IntoWindow>
class chunked_all_reduce final : public device_algorithm {
 public:
  explicit chunked_all_reduce(const rank_context& context) : device_algorithm(context) {
    requirements needs = comm().requirements();
    needs.lsa_barriers(most_blocks * most_groups);
    buffers_ = collective::chunk_buffers::add(needs, is_simulated() ? 1 << 15 : buffer_bytes);
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return IntoWindow ? "chunked_to_window" : "chunked"; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] bool can_be_dependent() const override { return true; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  void start(const work& what) override {
    with_type(what.type, [&]<class T>(T) {
      if constexpr (IntoWindow) {
        run(what, collective::to_window<T>{in_window<T>(what.output), what.count()});
      } else {
        run(what, collective::to_memory<T>{static_cast<T*>(what.output), what.count()});
      }
    });
  }

 private:
  template <class T, template <class> class Consume>
  void run(const work& what, const Consume<T>& consume) {
    const unsigned groups = groups_of_block(what.shape);
    if (what.shape.threads % (32 * groups) != 0)
      throw usage_error("--threads " + std::to_string(what.shape.threads) + ": " + name() +
                        " takes whole warps for each of " + std::to_string(groups) +
                        " groups of a block: a multiple of " + std::to_string(32 * groups));
    const std::uint64_t all_groups = std::uint64_t{what.shape.blocks} * groups;
    const std::uint32_t chunk_packs = buffers_.packs_for(all_groups, comm().lsa().size);
    if (chunk_packs == 0)
      throw usage_error("--blocks " + std::to_string(what.shape.blocks) + ": too many for the buffers of " + name());
    launch(through_chunks<T, Consume<T>>, shape_of(what), device_comm_->get(), buffers_, chunk_packs,
           static_cast<const T*>(what.input), consume, what.count(),
           collective::packs_per_block(collective::packs_of<T>(what.count()), all_groups), groups);
  }

  collective::chunk_buffers buffers_{};
};

}  // namespace

void add_chunked_all_reduce(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<chunked_all_reduce<false>>(context));
  made.push_back(std::make_unique<chunked_all_reduce<true>>(context));
}

}  // namespace perf
