#include "perf/chunked_algorithm.cuh"
#include "perf/multimem_collectives.hpp"
#include "perf/nccl_algorithms.hpp"
#include "perf/packets_or_windows.cuh"
#include "perf/random_data.hpp"

namespace perf {
namespace {

using namespace devcomm;

struct scatter_packets {
  static constexpr const char* name = "one_shot";
  static constexpr shards in_shards = shards::of_input;
  static constexpr bool only_moves = false;
  static constexpr std::uint64_t max_bytes = ~std::uint64_t{0};

  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::reduce_scatter<T>(session, packs, produce, consume, sum{});
  }
};

struct scatter_direct {
  static constexpr const char* name = "zero_copy";
  static constexpr shards in_shards = shards::of_input;
  static constexpr bool only_moves = false;

  template <class T, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::reduce_scatter_zero_copy<T>(barrier, input, output.local(), count, sum{});
  }
};

template <class T>
__global__ void __launch_bounds__(max_threads, 1)
    scatter_through_chunks(device_comm comm, collective::chunk_buffers buffers, std::uint32_t chunk_packs,
                           const T* input, T* output, std::uint64_t shard, std::uint64_t group_packs, unsigned groups) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const chunk_group part(groups);
  lsa::barrier_session barrier{part.group, comm, part.index};
  collective::reduce_scatter_chunked<T>(
      barrier, collective::chunk_scratch::of_group(comm, buffers, chunk_packs, part.index),
      collective::shard_of_length(collective::packs_of<T>(shard), group_packs, static_cast<int>(part.index)),
      collective::from_shards<T>{input, shard * static_cast<std::uint64_t>(comm.lsa_size), shard},
      collective::to_memory<T>{output, shard}, sum{});
}

class scatter_in_chunks final : public chunked_algorithm {
 public:
  using chunked_algorithm::chunked_algorithm;

  [[nodiscard]] std::string name() const override { return "chunked"; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  void start(const work& what) override {
    with_type(what.type, [&]<class T>(T) {
      launch(scatter_through_chunks<T>, shape_of(what), device_comm_->get(), buffers_, chunk_packs(what.shape),
             static_cast<const T*>(what.input), static_cast<T*>(what.output), what.shard(),
             collective::packs_per_block(collective::packs_of<T>(what.shard()), groups_of(what.shape)),
             groups_of_block(what.shape));
    });
  }
};

class reduce_scatter final : public packets_or_windows<scatter_packets, scatter_direct> {
 public:
  [[nodiscard]] std::string name() const override { return "reduce_scatter"; }
  [[nodiscard]] std::string about() const override { return "bytes of each rank's input, of which a shard comes out"; }
  [[nodiscard]] double bus_factor(int ranks) const override { return (ranks - 1.0) / ranks; }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override { return granularity_of_shards(what); }
  void place(work& call) const override {
    if (call.in_place) call.output = call.shard_of(call.output);
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made = packets_or_windows::make_algorithms(context);
    made.push_back(std::make_unique<scatter_in_chunks>(context));
    add_multimem_reduce_scatters(context, made);
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::reduce_scatter, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_sums(what, static_cast<std::uint64_t>(what.rank) * what.shard(), what.shard(), seed);
  }

 protected:
  [[nodiscard]] link_load load(const work& what) const override { return load_of_shards(what); }
};

const bool is_registered = register_operation(std::make_unique<reduce_scatter>());

}  // namespace
}  // namespace perf
