/// \file packet_algorithm.cuh
/// Collectives over packets, from memory to memory.
#pragma once

#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

namespace perf::packets {

using namespace devcomm;

/// Packs of a message that a channel has room for.
inline constexpr std::uint32_t channel_room = 4096;
inline constexpr std::uint32_t simulated_room = 64;  ///< so that small messages take several rounds, too

struct ll {
  using handle = ll_handle;
  using session = lsa::ll_session<block>;
  static constexpr const char* name = "ll";
  static host::capability available(const host::communicator&) { return {true, "everywhere"}; }
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_ll_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

struct lamport {
  using handle = lamport_handle;
  using session = lsa::lamport_session<block>;
  static constexpr const char* name = "lamport";
  static host::capability available(const host::communicator&) { return {true, "everywhere"}; }
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_lamport_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

struct ll128 {
  using handle = ll128_handle;
  using session = lsa::ll128_session<block>;
  static constexpr const char* name = "ll128";
  static host::capability available(const host::communicator& comm) { return comm.properties().ll128; }
  static handle add(requirements& needs, std::uint32_t packs) {
    return needs.add_ll128_channels(needs.lsa(), most_blocks, session::packets_for(packs));
  }
};

/// The vectors of a call. Blocks share out the packs of `length` elements: of the vector, or of each rank's piece.
template <class T>
struct vectors {
  const T* input;
  T* output;
  std::uint64_t count;
  std::uint64_t length;
};

template <class Collective, class T>
__device__ auto source_of(const vectors<T>& on) {
  if constexpr (Collective::in_pieces == pieces::of_input) {
    return collective::from_pieces<T>{on.input, on.count, on.length};
  } else {
    return collective::from_memory<T>{on.input, on.length};
  }
}
template <class Collective, class T>
__device__ auto destination_of(const vectors<T>& on) {
  if constexpr (Collective::in_pieces == pieces::of_output) {
    return collective::to_pieces<T>{on.output, on.count, on.length};
  } else {
    return collective::to_memory<T>{on.output, on.length};
  }
}

template <class Collective, class Protocol, class T>
__global__ void __launch_bounds__(most_threads, 1)
    through_packets(device_comm comm, typename Protocol::handle channels, vectors<T> on, std::uint64_t block_packs) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const auto source = source_of<Collective>(on);
  const auto destination = destination_of<Collective>(on);
  typename Protocol::session channel{block{}, comm, channels, blockIdx.x};
  Collective::template run<T>(channel, collective::slice_of_block(collective::packs_of<T>(on.length), block_packs),
                              source, destination);
}

/// `Collective` has, beside what `device_algorithm.hpp` asks for, `most_bytes`, above which other ways are always
/// ahead, and `run<T>(channel, packs, produce, consume)`.
template <class Collective, class Protocol>
class packet_algorithm final : public device_algorithm {
 public:
  explicit packet_algorithm(const rank_context& context) : device_algorithm(context) {
    const host::capability channels = Protocol::available(comm());
    if (!channels.available) {
      obstacle_ = std::string("no ") + Protocol::name + " channels: " + channels.reason;
      return;
    }
    requirements needs = comm().requirements();
    channels_ = Protocol::add(needs, is_simulated() ? simulated_room : channel_room);
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return Collective::name; }
  [[nodiscard]] std::string protocol() const override { return Protocol::name; }
  [[nodiscard]] bool can_be_dependent() const override { return true; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (!obstacle_.empty()) return obstacle_;
    const bool can = with_type(what.type, []<class T>(T) { return Protocol::session::template can_carry<T>; });
    if (!can) return std::string("Lamport channels do not carry ") + to_string(what.type);
    return what.bytes > Collective::most_bytes ? std::string("too large for ") + name() : "";
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes(packs_of_call<Collective>(what), is_simulated());
  }
  void start(const work& what) override {
    if (protocol() == "ll128" && what.shape.threads % 32 != 0)
      throw usage_error("--threads " + std::to_string(what.shape.threads) + ": " + name() +
                        " over LL128 takes whole warps");
    with_element<Collective>(what.type, [&]<class T>(T) {
      if constexpr (Protocol::session::template can_carry<T>) {
        const vectors<T> on{static_cast<const T*>(what.input), static_cast<T*>(what.output), what.bytes / sizeof(T),
                            length_of_call<Collective>(what) / sizeof(T)};
        launch(through_packets<Collective, Protocol, T>, shape_of(what), device_comm_->get(), channels_, on,
               collective::packs_per_block(collective::packs_of<T>(on.length), what.shape.blocks));
      }
    });
  }

 private:
  typename Protocol::handle channels_{};
  std::string obstacle_;  ///< why there are no channels
};

}  // namespace perf::packets
