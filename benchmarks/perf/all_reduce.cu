#include "perf/nccl_all_reduce.hpp"
#include "perf/random_data.hpp"

#include <devcomm/devcomm.cuh>

#include <optional>

namespace perf {
namespace {

using namespace devcomm;

constexpr unsigned most_blocks = 132;
constexpr unsigned most_threads = 512;

struct one_shot {
  static constexpr const char* name = "one_shot";
  /// Vectors above which the two-shot way is always ahead.
  static constexpr std::uint64_t most_bytes = 16 << 20;

  template <class T, class Channel>
  __device__ static void run(Channel& channel, collective::slice packs, const collective::from_memory<T>& source,
                             const collective::to_memory<T>& destination) {
    collective::all_reduce_one_shot<T>(channel, packs, source, destination, sum{});
  }
};

struct two_shot {
  static constexpr const char* name = "two_shot";
  static constexpr std::uint64_t most_bytes = ~std::uint64_t{0};

  template <class T, class Channel>
  __device__ static void run(Channel& channel, collective::slice packs, const collective::from_memory<T>& source,
                             const collective::to_memory<T>& destination) {
    collective::all_reduce_two_shot<T>(channel, packs, source, destination, sum{});
  }
};

struct ll {
  using handle = ll_handle;
  using session = lsa::ll_session<block>;
  static constexpr const char* name = "ll";
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_ll_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

struct lamport {
  using handle = lamport_handle;
  using session = lsa::lamport_session<block>;
  static constexpr const char* name = "lamport";
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_lamport_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

template <class Algorithm, class Protocol, class T>
__global__ void __launch_bounds__(most_threads)
    through_packets(device_comm comm, typename Protocol::handle channels, const T* input, T* output,
                    std::uint64_t count, std::uint64_t block_packs) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const collective::from_memory<T> source{input, count};
  const collective::to_memory<T> destination{output, count};
  typename Protocol::session channel{block{}, comm, channels, blockIdx.x};
  Algorithm::template run<T>(channel, collective::slice_of_block(collective::packs_of<T>(count), block_packs), source,
                             destination);
}

template <class T>
__global__ void __launch_bounds__(most_threads)
    through_windows(device_comm comm, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  collective::all_reduce_direct<T>(barrier, block{}, comm, input, output, count, sum{});
}

/// Powers of two, and all multiprocessors; no more threads than half of them would have work.
std::vector<launch_shape> usual_shapes(std::uint64_t packs, bool few) {
  std::vector<launch_shape> shapes;
  if (few) return {{1, 32}, {2, 32}};
  for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, most_blocks})
    for (const unsigned threads : {64u, 128u, 256u, most_threads})
      if ((blocks == 1 && threads == 64) || std::uint64_t{blocks} * threads <= 2 * packs)
        shapes.push_back({blocks, threads});
  return shapes;
}

/// What the algorithms share: resources on the device, made together.
class device_algorithm : public algorithm {
 public:
  explicit device_algorithm(const rank_context& context) : context_(context) {}

  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes((what.bytes + 15) / 16, is_simulated());
  }
  void check() override { device_comm_->check(); }

 protected:
  [[nodiscard]] bool is_simulated() const { return context_.comm->properties().backend == "simulator"; }
  [[nodiscard]] launch_config shape_of(const work& what) const {
    return {.grid = what.shape.blocks,
            .block = what.shape.threads,
            .stream = what.stream,
            .programmatic_dependent = what.dependent};
  }
  [[nodiscard]] devcomm::host::communicator& comm() const { return *context_.comm; }
  [[nodiscard]] const rank_context& context() const { return context_; }

  std::optional<devcomm::host::device_communicator> device_comm_;

 private:
  rank_context context_;
};

template <class Algorithm, class Protocol>
class packet_all_reduce final : public device_algorithm {
 public:
  explicit packet_all_reduce(const rank_context& context) : device_algorithm(context) {
    requirements needs = comm().requirements();
    channels_ = Protocol::add(needs, is_simulated() ? 64 : 4096);
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return Algorithm::name; }
  [[nodiscard]] std::string protocol() const override { return Protocol::name; }
  [[nodiscard]] bool can_be_dependent() const override { return true; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    const bool can = with_type(what.type, []<class T>(T) { return Protocol::session::template can_carry<T>; });
    if (!can) return std::string("Lamport channels do not carry ") + to_string(what.type);
    return what.bytes > Algorithm::most_bytes ? "too large for one shot" : "";
  }
  void start(const work& what) override {
    with_type(what.type, [&]<class T>(T) {
      if constexpr (Protocol::session::template can_carry<T>)
        launch(through_packets<Algorithm, Protocol, T>, shape_of(what), device_comm_->get(), channels_,
               static_cast<const T*>(what.input), static_cast<T*>(what.output), what.count(),
               collective::packs_per_block(collective::packs_of<T>(what.count()), what.shape.blocks));
    });
  }

 private:
  typename Protocol::handle channels_{};
};

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

 private:
  template <class T>
  [[nodiscard]] sym_ptr<T> in_window(void* address) const {
    const auto* base = static_cast<const std::byte*>(context().window->data());
    return {context().window->window(), static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base)};
  }
};

class all_reduce final : public operation {
 public:
  [[nodiscard]] std::string name() const override { return "all_reduce"; }
  [[nodiscard]] double bus_factor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<packet_all_reduce<one_shot, lamport>>(context));
    made.push_back(std::make_unique<packet_all_reduce<two_shot, lamport>>(context));
    made.push_back(std::make_unique<packet_all_reduce<one_shot, ll>>(context));
    made.push_back(std::make_unique<packet_all_reduce<two_shot, ll>>(context));
    made.push_back(std::make_unique<direct_all_reduce>(context));
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
};

const bool is_registered = register_operation(std::make_unique<all_reduce>());

}  // namespace
}  // namespace perf
