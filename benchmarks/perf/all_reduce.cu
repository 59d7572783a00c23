#include "perf/chunked_all_reduce.hpp"
#include "perf/nccl_all_reduce.hpp"
#include "perf/packet_all_reduce.cuh"
#include "perf/random_data.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/all_reduce_plan.hpp>

#include <atomic>

namespace perf {
namespace {

using namespace devcomm;

template <class T>
__global__ void __launch_bounds__(most_threads, 1)
    through_windows(device_comm comm, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  collective::all_reduce_direct<T>(barrier, block{}, comm, input, output, count, sum{});
}

class direct_all_reduce final : public device_algorithm {
 public:
  explicit direct_all_reduce(const rank_context& context) : device_algorithm(context) {
    device_comm_ = comm().create_device_comm(comm().requirements().lsa_barriers(most_blocks));
  }

  [[nodiscard]] std::string name() const override { return "direct"; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  void start(const work& what) override {
    with_type(what.type, [&]<class T>(T) {
      launch(through_windows<T>, shape_of(what), device_comm_->get(), in_window<T>(what.input),
             in_window<T>(what.output), what.count());
    });
  }
};

class all_reduce final : public operation {
 public:
  [[nodiscard]] std::string name() const override { return "all_reduce"; }
  [[nodiscard]] double bus_factor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
  [[nodiscard]] choice choose(const work& what, int ranks, unsigned blocks) const override {
    const bool lamport = with_type(what.type, []<class T>(T) { return lsa::is_lamport_type<T>; });
    const auto plan = host::plan_all_reduce({.bytes = what.bytes,
                                             .ranks = ranks,
                                             .most_blocks = blocks,
                                             .lamport = lamport,
                                             .in_windows = true,
                                             .chunks = true,
                                             .ll128 = ll128_});
    return {to_string(plan.algorithm), to_string(plan.protocol), {plan.blocks, plan.threads}, plan.why};
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    ll128_ = context.comm->properties().ll128.available;  // the same on all ranks
    algorithms made;
    add_lamport_all_reduces(context, made);
    add_ll128_all_reduces(context, made);
    add_ll_all_reduces(context, made);
    made.push_back(std::make_unique<direct_all_reduce>(context));
    add_chunked_all_reduce(context, made);
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl_all_reduce(context);
  }
  void fill(const work& what, int rank, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, int ranks, std::uint64_t seed) const override {
    return count_wrong_sums(what.output, what.count(), what.type, ranks, seed, what.stream);
  }

 private:
  mutable std::atomic<bool> ll128_{false};
};

const bool is_registered = register_operation(std::make_unique<all_reduce>());

}  // namespace
}  // namespace perf
