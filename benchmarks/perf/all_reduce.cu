#include "perf/channel_all_reduce.hpp"
#include "perf/chunked_all_reduce.hpp"
#include "perf/multimem_collectives.hpp"
#include "perf/nccl_algorithms.hpp"
#include "perf/packet_all_reduce.cuh"
#include "perf/random_data.hpp"
#include "perf/window_algorithm.cuh"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/all_reduce_plan.hpp>

#include <atomic>

namespace perf {
namespace {

using namespace devcomm;

struct all_reduce_two_shot_zero_copy {
  static constexpr const char* name = "two_shot_zero_copy";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = false;

  template <class T, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::all_reduce_two_shot_zero_copy<T>(barrier, input, output, count, sum{});
  }
};

class all_reduce final : public operation {
 public:
  [[nodiscard]] std::string name() const override { return "all_reduce"; }
  [[nodiscard]] std::string about() const override { return "bytes of each rank's vector"; }
  [[nodiscard]] double bus_factor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
  [[nodiscard]] choice choose(const work& what, unsigned blocks) const override {
    const bool lamport = with_type(what.type, []<class T>(T) { return lsa::is_lamport_type<T>; });
    const auto plan = host::plan_all_reduce({.bytes = what.bytes,
                                             .ranks = what.ranks,
                                             .max_blocks = blocks,
                                             .lamport = lamport,
                                             .in_windows = true,
                                             .chunks = true,
                                             .ll128 = ll128_,
                                             .multimem = multicast_,
                                             .fifos = true});
    return {to_string(plan.algorithm), to_string(plan.protocol), {plan.blocks, plan.threads}, plan.why};
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    ll128_ = context.comm->properties().ll128.available;  // the same on all ranks
    multicast_ = context.comm->properties().multicast.available;
    algorithms made;
    add_lamport_all_reduces(context, made);
    add_ll128_all_reduces(context, made);
    add_ll_all_reduces(context, made);
    made.push_back(std::make_unique<windows::window_algorithm<all_reduce_two_shot_zero_copy>>(context));
    add_chunked_all_reduce(context, made);
    add_channel_all_reduces(context, made);
    add_multimem_all_reduces(context, made);
    add_multimem_packet_all_reduces(context, made);
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::all_reduce, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_sums(what, 0, what.count(), seed);
  }

 private:
  mutable std::atomic<bool> ll128_{false};
  mutable std::atomic<bool> multicast_{false};
};

const bool is_registered = register_operation(std::make_unique<all_reduce>());

}  // namespace
}  // namespace perf
