#include "perf/multimem_collectives.hpp"

#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

#include <optional>
#include <string>

namespace perf {
namespace {

using namespace devcomm;

constexpr int in_flight = 8;  // packs of a thread

struct one_shot_multimem {
  static constexpr const char* shots = "one_shot_";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = false;
  static constexpr bool in_place = false;

  template <class T, class Mode, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::all_reduce_one_shot_multimem<T, in_flight, Mode>(
        barrier, input, count, collective::to_memory<T>{output.local(), count}, sum{});
  }
};

struct two_shot_multimem {
  static constexpr const char* shots = "two_shot_";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = false;
  static constexpr bool in_place = true;

  template <class T, class Mode, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::all_reduce_two_shot_multimem<T, in_flight, Mode>(barrier, input, output, count, sum{});
  }
};

struct scatter_multimem {
  static constexpr const char* shots = "";
  static constexpr shards in_shards = shards::of_input;
  static constexpr bool only_moves = false;
  static constexpr bool in_place = true;

  template <class T, class Mode, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::reduce_scatter_multimem<T, in_flight, Mode>(barrier, input, output.local(), count, sum{});
  }
};

struct gather_multimem {
  static constexpr const char* shots = "";
  static constexpr shards in_shards = shards::of_output;
  static constexpr bool only_moves = true;
  static constexpr bool in_place = true;

  template <class T, class Mode, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::all_gather_multimem<T, in_flight, Mode>(barrier, input.local(), output, count);
  }
};

struct send_multimem {
  static constexpr const char* shots = "";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = true;
  static constexpr bool in_place = true;

  template <class T, class Mode, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::broadcast_multimem<T, in_flight, Mode>(barrier, 0, input.local(), output, count);
  }
};

template <class Collective, class T>
__global__ void __launch_bounds__(max_threads, 1) by_switch(device_comm comm, multimem::barrier_handle barriers,
                                                            sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
  multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
  Collective::template run<T, multimem::automatic>(barrier, input, output, count);
}
template <class Collective, class T>
__global__ void __launch_bounds__(max_threads, 1)
    in_software(device_comm comm, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  Collective::template run<T, multimem::software>(barrier, input, output, count);
}

/// By loads and stores of each rank's memory, whatever the devices have.
template <class Collective>
class software_algorithm final : public device_algorithm {
 public:
  explicit software_algorithm(const rank_context& context) : device_algorithm(context) {
    device_comm_ = comm().create_device_comm(comm().requirements().lsa_barriers(max_blocks));
  }

  [[nodiscard]] std::string name() const override { return std::string(Collective::shots) + "software_multimem"; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] bool can_be_in_place() const override { return Collective::in_place; }
  [[nodiscard]] std::string why_not(const work&) const override { return ""; }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes(packs_of_call<Collective>(what), is_simulated());
  }
  void start(const work& what) override {
    with_element<Collective>(what.type, [&]<class T>(T) {
      launch(in_software<Collective, T>, shape_of(what), device_comm_->get(), in_window<T>(what.input),
             in_window<T>(what.output), what.bytes / sizeof(T));
    });
  }
};

/// By NVLink multicast. Makes its multicast objects, of its own window and of its barriers, when it is first measured,
/// so that no other row has one.
template <class Collective>
class switch_algorithm final : public device_algorithm {
 public:
  explicit switch_algorithm(const rank_context& context) : device_algorithm(context) {}

  [[nodiscard]] std::string name() const override { return std::string(Collective::shots) + "multimem"; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  [[nodiscard]] bool can_be_in_place() const override { return Collective::in_place; }
  [[nodiscard]] std::string why_not(const work&) const override {
    const host::capability& multicast = comm().properties().multicast;
    return multicast.available ? "" : "no multicast: " + multicast.reason;
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes(packs_of_call<Collective>(what), is_simulated());
  }
  [[nodiscard]] std::byte* memory() override {
    if (!window_) {
      window_ = comm().allocate(2 * context().max_bytes, "vectors by multimem", host::multimem_policy::required);
      requirements needs = comm().requirements();
      barriers_ = needs.add(multimem::barriers{max_blocks, multimem::policy::required});
      device_comm_ = comm().create_device_comm(needs);
    }
    return static_cast<std::byte*>(window_->data());
  }
  void start(const work& what) override {
    with_element<Collective>(what.type, [&]<class T>(T) {
      launch(by_switch<Collective, T>, shape_of(what), device_comm_->get(), barriers_, place<T>(what.input),
             place<T>(what.output), what.bytes / sizeof(T));
    });
  }

 private:
  template <class T>
  [[nodiscard]] sym_ptr<T> place(const void* address) const {
    const auto* const base = static_cast<const std::byte*>(window_->data());
    return {window_->window(), static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base)};
  }

  std::optional<host::symmetric_memory> window_;
  multimem::barrier_handle barriers_{};
};

template <class Collective>
void add_both(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<switch_algorithm<Collective>>(context));
  made.push_back(std::make_unique<software_algorithm<Collective>>(context));
}

}  // namespace

void add_multimem_all_reduces(const rank_context& context, algorithms& made) {
  add_both<one_shot_multimem>(context, made);
  add_both<two_shot_multimem>(context, made);
}
void add_multimem_reduce_scatters(const rank_context& context, algorithms& made) {
  add_both<scatter_multimem>(context, made);
}
void add_multimem_all_gathers(const rank_context& context, algorithms& made) {
  add_both<gather_multimem>(context, made);
}
void add_multimem_broadcasts(const rank_context& context, algorithms& made) { add_both<send_multimem>(context, made); }

}  // namespace perf
