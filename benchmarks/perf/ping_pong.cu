#include "perf/nccl_algorithms.hpp"
#include "perf/packet_algorithm.cuh"
#include "perf/random_data.hpp"

#include <algorithm>

namespace perf {
namespace {

using namespace devcomm;

using element = __nv_bfloat16;

/// A message back and forth between ranks 0 and 1 inside one kernel. Each block moves its own share of it.
struct ball {
  const element* input;
  sym_ptr<element> output;
  std::uint64_t count;
  std::uint64_t share;  // packs of a block
  int trips;            // one way
};

template <template <class> class Session, class Group>
__global__ void __launch_bounds__(max_threads, 1)
    through_packets(device_comm comm, typename Session<Group>::handle mailboxes, ball message) {
  if constexpr (devcomm::detail::is_same<Group, thread>) {
    if (threadIdx.x != 0) return;
  }
  Session<Group> session{Group{}, comm, mailboxes, blockIdx.x};
  const collective::slice packs =
      collective::slice_of_block(collective::packs_of<element>(message.count), message.share);
  const auto count = static_cast<std::uint32_t>(packs.size());
  const collective::from_memory<element> source{message.input, message.count};
  const collective::to_memory<element> result{message.output.local(), message.count};
  const int self = session.members().rank;
  for (int trip = 0; trip < message.trips; ++trip) {
    session.begin_round();
    if (trip % 2 == self) {
      for (auto at = session.cursor(); at.first() < count; at.next())
        session.send_pack(1 - self, at, at.is_below(count) ? source(packs.begin + at.index()) : pack<element>{});
    } else {
      for (auto at = session.cursor(); at.first() < count; at.next()) {
        pack<element> value[1];
        session.receive_packs(1 - self, 2 - self, at, value);
        if (at.is_below(count)) result(packs.begin + at.index(), value[0]);
      }
    }
  }
}

/// Packs of a message that a lane keeps in registers.
constexpr std::uint32_t held_packs = 4;

/// The same from registers, as a kernel passes on what it has computed: what a trip takes without the load of what is
/// sent. A thread moves up to 8 bytes, as one packet, or a warp up to `held_packs` packs a lane.
template <class Group>
__global__ void __launch_bounds__(32, 1) hold_message(device_comm comm, lsa::ll_handle mailboxes, ball message) {
  constexpr bool is_word = devcomm::detail::is_same<Group, thread>;
  if (is_word && threadIdx.x != 0) return;
  lsa::ll_session<Group> session{Group{}, comm, mailboxes, 0};
  const int self = session.members().rank;
  const auto packs = static_cast<std::uint32_t>(collective::packs_of<element>(message.count));
  const collective::from_memory<element> source{message.input, message.count};
  const collective::to_memory<element> result{message.output.local(), message.count};
  const auto each = [&](const auto& action) {
    DEVCOMM_UNROLL
    for (std::uint32_t k = 0; k < (is_word ? 1 : held_packs); ++k)
      if (const std::uint32_t i = session.group().thread_rank() + k * session.group().size(); i < packs) action(k, i);
  };
  pack<element> sent[held_packs]{}, received[held_packs][1]{};
  each([&](std::uint32_t k, std::uint32_t i) { sent[k] = source(i); });
  for (int trip = 0; trip < message.trips; ++trip) {
    session.begin_round();
    if constexpr (is_word) {
      std::uint64_t word[1][1]{};
      devcomm::detail::copy_bytes(word, &sent[0], 8);
      if (trip % 2 == self) {
        session.send(1 - self, 0, word[0][0]);
      } else {
        session.receive(1 - self, 2 - self, 0, word);
        devcomm::detail::copy_bytes(&received[0][0], word, 8);
      }
    } else if (trip % 2 == self) {
      each([&](std::uint32_t k, std::uint32_t i) { session.send_pack(1 - self, i, sent[k]); });
    } else {
      each([&](std::uint32_t k, std::uint32_t i) { session.receive_packs(1 - self, 2 - self, i, received[k]); });
    }
  }
  each([&](std::uint32_t k, std::uint32_t i) { result(i, received[k][0]); });
}

/// Stores into the peer's output, and a signal that releases them.
__global__ void __launch_bounds__(max_threads, 1)
    put_and_signal(device_comm comm, lsa::signal_handle signals, ball message) {
  lsa::signal_session signal{block{}, comm, signals, blockIdx.x};
  const int self = signal.members().rank;
  const collective::slice packs =
      collective::slice_of_block(collective::packs_of<element>(message.count), message.share);
  const auto element_of = [&](std::uint64_t pack_index) {
    const std::uint64_t first = std::uint64_t{pack<element>::size} * pack_index;
    return first < message.count ? first : message.count;
  };
  const std::uint64_t begin = element_of(packs.begin);
  const std::uint64_t length = element_of(packs.end) - begin;
  if (length == 0) return;
  for (int trip = 0; trip < message.trips; ++trip) {
    if (trip % 2 == self) {
      copy(block{}, message.output.lsa(1 - self) + begin, message.input + begin, length);
      signal.add(1 - self, 1);
    } else {
      signal.take(1 - self);
    }
  }
}

class ping_pong_algorithm : public device_algorithm {
 public:
  using device_algorithm::device_algorithm;

  [[nodiscard]] std::string why_not(const work& what) const override {
    return what.ranks != 2 ? "a ping-pong is between two ranks" : "";
  }
  [[nodiscard]] int times_in_call(const work& what) const override {
    if (is_simulated()) return 4;
    return what.bytes <= 65536 ? 200 : what.bytes <= (4u << 20) ? 20 : 4;
  }

 protected:
  [[nodiscard]] ball message_of(const work& what) const {
    const std::uint64_t count = what.bytes / sizeof(element);
    return {static_cast<const element*>(what.input), in_window<element>(what.output), count,
            collective::packs_per_block(collective::packs_of<element>(count), what.shape.blocks), times_in_call(what)};
  }
};

template <template <class> class Session>
class ping_pong_packets final : public ping_pong_algorithm {
 public:
  explicit ping_pong_packets(const rank_context& context) : ping_pong_algorithm(context) {
    requirements needs = comm().requirements();
    mailboxes_ = needs.add(lsa::mailboxes_for<Session<block>>(needs.lsa(), max_blocks, room()));
    if (const host::capability& lines = comm().properties().ll128;
        needs.required(demand::ll128) != 0 && !lines.available) {
      obstacle_ = "no " + protocol() + " mailboxes: " + lines.reason;
      return;
    }
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return "packets"; }
  [[nodiscard]] std::string protocol() const override { return to_string(Session<block>::handle::protocol); }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (!obstacle_.empty()) return obstacle_;
    if (shapes(what).empty()) return "too large for one round of packets";
    return ping_pong_algorithm::why_not(what);
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work& what) const override {
    std::vector<launch_shape> all = usual_shapes((what.bytes + 15) / 16, is_simulated());
    if (!is_simulated()) all.insert(all.begin(), {1, 32});
    std::erase_if(all, [&](const launch_shape& shape) { return !fits(what, shape); });
    return all;
  }
  [[nodiscard]] launch_shape fitted(const work& what) const override { return what.shape; }
  void start(const work& what) override {
    if (!fits(what, what.shape))
      throw usage_error("--blocks " + std::to_string(what.shape.blocks) + ": too few for one round of " + whole_name());
    const ball message = message_of(what);
    constexpr bool can_be_small = std::is_same_v<Session<block>, packets::ll>;
    if constexpr (can_be_small) {
      if (what.bytes <= 16 && what.shape.blocks == 1)
        return launch(through_packets<Session, thread>, shape_of(what), device_comm_->get(), mailboxes_, message);
    }
    if (what.shape.threads == 32)
      return launch(through_packets<Session, warp>, shape_of(what), device_comm_->get(), mailboxes_, message);
    launch(through_packets<Session, block>, shape_of(what), device_comm_->get(), mailboxes_, message);
  }

 private:
  /// A message takes one round, as in the next one it goes the other way.
  [[nodiscard]] bool fits(const work& what, const launch_shape& shape) const {
    return collective::packs_per_block((what.bytes + 15) / 16, shape.blocks) <= room();
  }
  [[nodiscard]] std::uint32_t room() const { return is_simulated() ? max_threads : packets::channel_room; }

  typename Session<block>::handle mailboxes_{};
  std::string obstacle_;
};

class ping_pong_held final : public ping_pong_algorithm {
 public:
  explicit ping_pong_held(const rank_context& context) : ping_pong_algorithm(context) {
    requirements needs = comm().requirements();
    mailboxes_ = needs.add(lsa::mailboxes_for<packets::ll>(needs.lsa(), 1, 32 * held_packs));
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return "registers"; }
  [[nodiscard]] std::string protocol() const override { return "ll"; }
  [[nodiscard]] std::string why_not(const work& what) const override {
    if (what.bytes > std::uint64_t{32} * held_packs * 16) return "more than a warp's registers hold";
    return ping_pong_algorithm::why_not(what);
  }
  [[nodiscard]] std::vector<launch_shape> shapes(const work&) const override { return {{1, 32}}; }
  [[nodiscard]] launch_shape fitted(const work&) const override { return {1, 32}; }
  void start(const work& what) override {
    launch(what.bytes <= 8 ? hold_message<thread> : hold_message<warp>,
           {.grid = 1, .block = 32, .stream = what.stream, .programmatic_dependent = what.dependent},
           device_comm_->get(), mailboxes_, message_of(what));
  }

 private:
  lsa::ll_handle mailboxes_{};
};

class ping_pong_put final : public ping_pong_algorithm {
 public:
  explicit ping_pong_put(const rank_context& context) : ping_pong_algorithm(context) {
    requirements needs = comm().requirements();
    signals_ = needs.add(lsa::signals{needs.lsa(), max_blocks});
    device_comm_ = comm().create_device_comm(needs);
  }

  [[nodiscard]] std::string name() const override { return "put_and_signal"; }
  [[nodiscard]] std::string protocol() const override { return "simple"; }
  void start(const work& what) override {
    launch(put_and_signal, shape_of(what), device_comm_->get(), signals_, message_of(what));
  }

 private:
  lsa::signal_handle signals_{};
};

class ping_pong final : public operation {
 public:
  [[nodiscard]] std::string name() const override { return "ping_pong"; }
  [[nodiscard]] std::string about() const override {
    return "bytes of a message between ranks 0 and 1; times of one way";
  }
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] bool can_be_in_place() const override { return false; }
  [[nodiscard]] choice choose(const work& what, unsigned blocks) const override {
    // A block of 512 moves 8 KiB at once; beyond one round of packets the links' bandwidth counts.
    const std::uint64_t packs = (what.bytes + 15) / 16;
    choice best;
    best.algorithm = what.bytes <= 262144 ? "packets" : "put_and_signal";
    best.protocol = what.bytes > 262144 ? "simple" : what.bytes <= 8192 ? "ll" : "ll128";
    best.shape.threads = packs <= 32 ? 32 : packs <= 128 ? 128 : max_threads;
    best.shape.blocks = static_cast<unsigned>(
        std::clamp<std::uint64_t>((packs + best.shape.threads - 1) / best.shape.threads, 1, blocks));
    best.why = best.algorithm + " " + best.protocol + ", a thread for each 16 bytes: by size";
    return best;
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<ping_pong_packets<lsa::ll_session>>(context));
    made.push_back(std::make_unique<ping_pong_packets<lsa::ll128_session>>(context));
    made.push_back(std::make_unique<ping_pong_held>(context));
    made.push_back(std::make_unique<ping_pong_put>(context));
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::ping_pong, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.count(), what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_pieces(what, {what.count(), 1 - what.rank}, seed);
  }
};

const bool is_registered = register_operation(std::make_unique<ping_pong>());

}  // namespace
}  // namespace perf
