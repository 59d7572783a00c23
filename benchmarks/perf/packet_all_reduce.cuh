/// \file packet_all_reduce.cuh
/// All-reduces over packets. Each protocol has a file of its own, as its kernels take long to compile.
#pragma once

#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

namespace perf {

/// One shot and two shots, over LL, LL128 and Lamport channels.
void add_ll_all_reduces(const rank_context& context, algorithms& made);
void add_ll128_all_reduces(const rank_context& context, algorithms& made);
void add_lamport_all_reduces(const rank_context& context, algorithms& made);

namespace packets {

using namespace devcomm;

struct one_shot {
  static constexpr const char* name = "one_shot";
  /// Vectors above which the two-shot way is always ahead.
  static constexpr std::uint64_t most_bytes = 16 << 20;
  /// Packs that one round takes over a channel with room for `room`.
  static std::uint64_t packs_in_round(std::uint64_t room, std::uint64_t) { return room; }

  template <class T, class Channel, class Produce, class Consume>
  __device__ static void run(Channel& channel, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_reduce_one_shot<T>(channel, packs, produce, consume, sum{});
  }
};

struct two_shot {
  static constexpr const char* name = "two_shot";
  static constexpr std::uint64_t most_bytes = ~std::uint64_t{0};
  static std::uint64_t packs_in_round(std::uint64_t room, std::uint64_t ranks) { return room / 2 * ranks; }

  template <class T, class Channel, class Produce, class Consume>
  __device__ static void run(Channel& channel, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_reduce_two_shot<T>(channel, packs, produce, consume, sum{});
  }
};

template <class Algorithm, class Protocol, class T>
__global__ void __launch_bounds__(most_threads, 1)
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

template <class Algorithm, class Protocol>
class packet_all_reduce final : public device_algorithm {
 public:
  explicit packet_all_reduce(const rank_context& context) : device_algorithm(context) {
    const host::capability channels = Protocol::available(comm());
    if (!channels.available) obstacle_ = std::string("no ") + Protocol::name + " channels: " + channels.reason;
    if (!obstacle_.empty()) return;
    requirements needs = comm().requirements();
    channels_ = Protocol::add(needs, is_simulated() ? 64 : 4096);
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return Algorithm::name; }
  [[nodiscard]] std::string protocol() const override { return Protocol::name; }
  [[nodiscard]] bool can_be_dependent() const override { return true; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (!obstacle_.empty()) return obstacle_;
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
  std::string obstacle_;  ///< why there are no channels
};

/// One shot and two shots.
template <class Protocol>
void add_all_reduces(const rank_context& context, algorithms& made) {
  made.push_back(std::make_unique<packet_all_reduce<one_shot, Protocol>>(context));
  made.push_back(std::make_unique<packet_all_reduce<two_shot, Protocol>>(context));
}

}  // namespace packets
}  // namespace perf
