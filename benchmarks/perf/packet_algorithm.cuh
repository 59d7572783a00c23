/// \file packet_algorithm.cuh
/// Collectives over packets, from memory to memory.
#pragma once

#include "perf/device_algorithm.hpp"

#include <devcomm/devcomm.cuh>

namespace perf::packets {

using namespace devcomm;

/// Packs of a message that fit into one round.
inline constexpr std::uint32_t channel_room = 4096;
inline constexpr std::uint32_t simulated_room = 64;  ///< so that small messages take several rounds, too

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;
using ll128 = lsa::ll128_session<block>;
/// The same, each packet for all ranks by one multimem store.
using multimem_ll = multimem::packet_session<ll>;
using multimem_lamport = multimem::packet_session<lamport>;

template <class Session>
inline constexpr bool is_by_switch = false;
template <class Session>
inline constexpr bool is_by_switch<multimem::packet_session<Session>> = true;

/// The vectors of a call. Blocks share out the packs of `length` elements: of the vector, or of each rank's shard.
template <class T>
struct vectors {
  const T* input;
  T* output;
  std::uint64_t count;
  std::uint64_t length;
};

template <class Collective, class T>
__device__ auto source_of(const vectors<T>& on) {
  if constexpr (Collective::in_shards == shards::of_input || Collective::in_shards == shards::of_both) {
    return collective::from_shards<T>{on.input, on.count, on.length};
  } else {
    return collective::from_memory<T>{on.input, on.length};
  }
}
template <class Collective, class T>
__device__ auto destination_of(const vectors<T>& on) {
  if constexpr (Collective::in_shards == shards::of_output || Collective::in_shards == shards::of_both) {
    return collective::to_shards<T>{on.output, on.count, on.length};
  } else {
    return collective::to_memory<T>{on.output, on.length};
  }
}

template <class Collective, class Session, class T>
__global__ void __launch_bounds__(max_threads, 1)
    through_packets(device_comm comm, typename Session::handle mailboxes, vectors<T> on, std::uint64_t block_packs) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const auto source = source_of<Collective>(on);
  const auto destination = destination_of<Collective>(on);
  Session session{block{}, comm, mailboxes, blockIdx.x};
  Collective::template run<T>(session, collective::slice_of_block(collective::packs_of<T>(on.length), block_packs),
                              source, destination);
}

/// `Collective` has, beside what `device_algorithm.hpp` asks for, `max_bytes`, above which other ways are always
/// ahead, and `run<T>(session, packs, produce, consume)`. A session by multimem makes its multicast object when it is
/// first measured, so that no other row has one.
template <class Collective, class Session>
class packet_algorithm final : public device_algorithm {
 public:
  explicit packet_algorithm(const rank_context& context) : device_algorithm(context) {
    const host::properties& has = comm().properties();
    if (constexpr bool lines = Session::handle::protocol == packet_protocol::ll128; lines && !has.ll128.available)
      obstacle_ = "no " + protocol() + " mailboxes: " + has.ll128.reason;
    if (is_by_switch<Session> && !has.multicast.available) obstacle_ = "no multicast: " + has.multicast.reason;
    if (obstacle_.empty() && !is_by_switch<Session>) make_device_comm();
  }

  [[nodiscard]] std::string name() const override {
    return std::string(Collective::name) + (is_by_switch<Session> ? "_multimem" : "");
  }
  [[nodiscard]] std::string protocol() const override { return to_string(Session::handle::protocol); }
  [[nodiscard]] bool can_be_dependent() const override { return true; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (!obstacle_.empty()) return obstacle_;
    const bool can = with_type(what.type, []<class T>(T) { return Session::template can_carry<T>; });
    if (!can) return std::string("Lamport mailboxes do not carry ") + to_string(what.type);
    return what.bytes > Collective::max_bytes ? std::string("too large for ") + name() : "";
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    return usual_shapes(packs_of_call<Collective>(what), is_simulated());
  }
  [[nodiscard]] std::byte* memory() override {
    if (!device_comm_) make_device_comm();
    return nullptr;  // the usual
  }
  void start(const work& what) override {
    if (what.shape.threads % Session::group_multiple != 0)
      throw usage_error("--threads " + std::to_string(what.shape.threads) + ": " + whole_name() +
                        " takes a multiple of " + std::to_string(Session::group_multiple));
    with_element<Collective>(what.type, [&]<class T>(T) {
      if constexpr (Session::template can_carry<T>) {
        const vectors<T> on{static_cast<const T*>(what.input), static_cast<T*>(what.output), what.bytes / sizeof(T),
                            length_of_call<Collective>(what) / sizeof(T)};
        launch(through_packets<Collective, Session, T>, shape_of(what), device_comm_->get(), mailboxes_, on,
               collective::packs_per_block(collective::packs_of<T>(on.length), what.shape.blocks));
      }
    });
  }

 private:
  void make_device_comm() {
    requirements needs = comm().requirements();
    if (is_by_switch<Session>) needs.with(multimem::resources{multimem::policy::required});
    mailboxes_ =
        needs.add(lsa::mailboxes_for<Session>(needs.lsa(), max_blocks, is_simulated() ? simulated_room : channel_room));
    device_comm_ = comm().create_device_comm(needs);
  }

  typename Session::handle mailboxes_{};
  std::string obstacle_;  ///< why there are no mailboxes
};

}  // namespace perf::packets
