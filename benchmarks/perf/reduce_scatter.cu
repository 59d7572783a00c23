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
