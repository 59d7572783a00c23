#include "perf/channel_all_reduce.hpp"

#include "perf/chunk_groups.cuh"
#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

namespace perf {
namespace {

using namespace devcomm;
using channel::protocol;

/// Two groups of a block, each with FIFOs of its own: while one waits for a fence or a step, the other moves data.
constexpr unsigned groups_of_channel(const launch_shape& shape) { return shape.threads >= 256 ? 2 : 1; }

struct ring {
  static constexpr const char* name = "ring";
  static constexpr std::uint32_t fifos_of_group = 1;
  static constexpr std::uint32_t simple_packs = 8192;

  template <class T, class Group, class Handle, class Consume>
  __device__ static void run(const Group& group, const device_comm& comm, const Handle& fifos, std::uint32_t index,
                             slice packs, const collective::from_memory<T>& input, const Consume& consume) {
    channel::session session{group, comm, fifos, channel::from_previous(comm.lsa(), index),
                             channel::to_next(comm.lsa(), index)};
    collective::all_reduce_ring<T>(session, packs, input, consume, sum{});
  }
};

struct tree {
  static constexpr const char* name = "tree";
  static constexpr std::uint32_t fifos_of_group = collective::fifos_of_tree;
  static constexpr std::uint32_t simple_packs = 4096;

  template <class T, class Group, class Handle, class Consume>
  __device__ static void run(const Group& group, const device_comm& comm, const Handle& fifos, std::uint32_t index,
                             slice packs, const collective::from_memory<T>& input, const Consume& consume) {
    const collective::tree_position position{group, comm, comm.lsa(), fifos, index};
    collective::all_reduce_tree<T>(position, packs, input, consume, sum{});
  }
};

template <class Way, class T, protocol Protocol, class Consume>
__global__ void __launch_bounds__(max_threads, 1)
    through_fifos(device_comm comm, channel::fifo_handle<Protocol> fifos, const T* input, Consume consume,
                  std::uint64_t count, std::uint64_t group_packs, unsigned groups) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const chunk_group part(groups);
  Way::template run<T>(part.group, comm, fifos, part.index,
                       collective::shard_of_length(packs_of<T>(count), group_packs, static_cast<int>(part.index)),
                       collective::from_memory<T>{input, count}, consume);
}

/// With `IntoWindow` results go straight into the next rank's output.
template <class Way, protocol Protocol, bool IntoWindow = false>
class channel_all_reduce final : public device_algorithm {
 public:
  explicit channel_all_reduce(const rank_context& context) : device_algorithm(context) {
    requirements needs = comm().requirements();
    channel::fifos<Protocol> wanted{needs.lsa(), max_blocks * max_groups_of_block * Way::fifos_of_group};
    if (Protocol == protocol::simple) wanted.packs = Way::simple_packs;
    if (is_simulated()) wanted.packs = 60;  // so that small messages take several steps, too
    fifos_ = needs.add(wanted);
    if (const host::capability& lines = comm().properties().ll128;
        needs.required(demand::ll128) != 0 && !lines.available) {
      obstacle_ = std::string("no FIFOs with LL128: ") + lines.reason;
      return;
    }
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return std::string(Way::name) + (IntoWindow ? "_to_window" : ""); }
  [[nodiscard]] std::string protocol() const override { return to_string(Protocol); }
  [[nodiscard]] bool can_be_dependent() const override { return !IntoWindow; }
  [[nodiscard]] std::string why_not(const work&) const override { return obstacle_; }
  void start(const work& what) override {
    const unsigned groups = groups_of_channel(what.shape);
    if (what.shape.threads % (32 * groups) != 0)
      throw usage_error("--threads " + std::to_string(what.shape.threads) + ": " + name() +
                        " takes whole warps for each of " + std::to_string(groups) + " groups of a block");
    with_type(what.type, [&]<class T>(T) {
      if constexpr (IntoWindow) {
        run(what, groups, collective::to_window<T>{in_window<T>(what.output), what.count()});
      } else {
        run(what, groups, collective::to_memory<T>{static_cast<T*>(what.output), what.count()});
      }
    });
  }

 private:
  template <class T, template <class> class Consume>
  void run(const work& what, unsigned groups, const Consume<T>& consume) {
    const std::uint64_t group_packs =
        collective::packs_per_block(packs_of<T>(what.count()), std::uint64_t{what.shape.blocks} * groups);
    launch(through_fifos<Way, T, Protocol, Consume<T>>, shape_of(what), device_comm_->get(), fifos_,
           static_cast<const T*>(what.input), consume, what.count(), group_packs, groups);
  }

  channel::fifo_handle<Protocol> fifos_{};
  std::string obstacle_;
};

}  // namespace

void add_channel_all_reduces(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<channel_all_reduce<ring, protocol::simple>>(context));
  made.push_back(std::make_unique<channel_all_reduce<ring, protocol::simple, true>>(context));
  made.push_back(std::make_unique<channel_all_reduce<ring, protocol::ll>>(context));
  made.push_back(std::make_unique<channel_all_reduce<ring, protocol::ll128>>(context));
  made.push_back(std::make_unique<channel_all_reduce<tree, protocol::simple>>(context));
  made.push_back(std::make_unique<channel_all_reduce<tree, protocol::ll>>(context));
  made.push_back(std::make_unique<channel_all_reduce<tree, protocol::ll128>>(context));
}

}  // namespace perf
