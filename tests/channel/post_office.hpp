/// \file post_office.hpp
/// Groups of messages that all ranks plan alike, sent, received and compared.
#pragma once

#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"
#include "support/watched.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace test {

/// A message of a plan that all ranks make alike.
struct planned {
  int from;
  int to;
  std::uint64_t bytes;
};

/// Sends and receives of many rounds, each with messages that all ranks know.
class post_office {
 public:
  /// Bytes for what a rank sends, and as much for what it receives, of each kind.
  static constexpr std::uint64_t room = is_watched ? 1 << 17 : 1 << 20;

  explicit post_office(devcomm::host::communicator& comm, std::uint32_t stripes, std::uint32_t slots = 2,
                       std::uint32_t slot_bytes = 1024, std::uint32_t inline_bytes = 512)
      : comm_(comm), window_(comm.allocate(room)), outputs_(room), inputs_(room), table_(1024, 1), stripes_(stripes) {
    devcomm::requirements needs = comm.requirements();
    connections_ = needs.add(devcomm::channel::connections{comm.lsa(), stripes, slots, slot_bytes, inline_bytes});
    device_comm_.emplace(comm.create_device_comm(needs));
  }

  /// What byte `i` of message `number` of a plan is.
  static std::uint8_t byte_of(int from, int to, std::uint64_t number, std::uint64_t i) {
    const std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + number * 0xbf58476d1ce4e5b9u +
                            static_cast<std::uint64_t>(from * 64 + to + 1) * 0x94d049bb133111ebu;
    return static_cast<std::uint8_t>(x >> 40);
  }

  /// All counts of all connections, as if so many messages had gone through.
  void start_at(std::uint32_t count) {
    const auto layout = connections_.layout;
    char* own = device_comm_->get().resources.local + connections_.offset;
    const auto set = [&](std::uint64_t at, std::uint32_t value) {
      devcomm::check_cuda(cudaMemcpyAsync(own + at, &value, sizeof value, cudaMemcpyDefault, cudaStreamPerThread),
                          "copy");
    };
    for (std::uint32_t stripe = 0; stripe < stripes_; ++stripe) {
      set(layout.own(stripe), count);  // passes
      for (std::uint32_t m = 0; m < connections_.members; ++m) {
        set(layout.sent(stripe, m), count);
        for (const std::uint32_t last : {count - 1, count - 2}) {  // their numbers are one more
          set_note<devcomm::channel::message_cts>(layout.cts(stripe, m, last), last + 1, set);
          set_note<devcomm::channel::message_rts>(layout.rts(stripe, m, last), last + 1, set);
        }
        for (const auto way : {devcomm::channel::direction::send, devcomm::channel::direction::receive})
          for (std::uint32_t word = 0; word < 4; ++word) set(layout.state(stripe, m, way) + word * 4, count);
      }
    }
    finish("counts");
    comm_.barrier();
  }

  /// From now on what a rank receives goes into its window, or some of it, as each rank draws.
  void receive_in_window_only(bool only) { only_windows_ = only; }

  /// Its number, and the flags of its packets: the upper half of each 8 bytes.
  template <class Note, class Set>
  static void set_note(std::uint64_t at, std::uint32_t number, const Set& set) {
    for (std::uint32_t half = 0; half < 2 * Note::words; ++half) set(at + half * 8 + 4, number);
    set(at + offsetof(devcomm::channel::posted_note<Note>, number), number);
  }

  /// Moves the messages of a plan; `random` shuffles this rank's list and says what goes into the window. Messages
  /// between two ranks keep their order.
  void move(const std::vector<planned>& plan, std::mt19937& random, unsigned blocks, unsigned threads) {
    const int me = comm_.rank();
    std::vector<std::uint8_t> sent(room, 0x77), expected(room, 0x5a), expected_in_window(room, 0x5a);
    std::vector<devcomm::channel::message> sends, receives;
    std::uint64_t out = 0, in = 0, in_window = 0;
    for (std::size_t n = 0; n < plan.size(); ++n) {
      const planned& m = plan[n];
      if (m.from == me) {
        out += random() % 19;
        for (std::uint64_t i = 0; i < m.bytes; ++i) sent[out + i] = byte_of(m.from, m.to, n, i);
        sends.push_back(devcomm::channel::message::send(m.to, outputs_.get() + out, m.bytes));
        out += m.bytes;
      }
      if (m.to == me) {
        const bool direct = only_windows_ || random() % 2 == 0;
        std::uint64_t& at = direct ? in_window : in;
        at += random() % 19;
        auto& image = direct ? expected_in_window : expected;
        for (std::uint64_t i = 0; i < m.bytes; ++i) image[at + i] = byte_of(m.from, m.to, n, i);
        receives.push_back(direct ? devcomm::channel::message::receive(
                                        m.from, devcomm::sym_ptr<std::uint8_t>{window_.window(), at}, m.bytes)
                                  : devcomm::channel::message::receive(m.from, inputs_.get() + at, m.bytes));
        at += m.bytes;
      }
      require(out <= room && in <= room && in_window <= room, "the test's buffers are too small");
    }
    outputs_.write(sent);
    inputs_.write(std::vector<std::uint8_t>(room, 0x5a));
    devcomm::check_cuda(cudaMemsetAsync(window_.data(), 0x5a, room, cudaStreamPerThread), "cudaMemsetAsync");
    table_.assign(shuffled(sends, receives, random), {window_.window()}, cudaStreamPerThread);
    comm_.barrier();
    devcomm::collective::send_receive(device_comm_->get(), connections_, table_,
                                      {.grid = blocks, .block = threads, .stream = cudaStreamPerThread});
    finish("send_receive");
    device_comm_->check();
    std::vector<std::uint8_t> got(room);
    devcomm::check_cuda(cudaMemcpyAsync(got.data(), window_.data(), room, cudaMemcpyDefault, cudaStreamPerThread),
                        "copy");
    finish("copy");
    require(got == expected_in_window, "rank " + std::to_string(me) + " got wrong messages in its window");
    require(inputs_.read() == expected, "rank " + std::to_string(me) + " got wrong messages");
    comm_.barrier();
  }

 private:
  /// Any order in which messages to one peer, and from one, keep theirs.
  static std::vector<devcomm::channel::message> shuffled(const std::vector<devcomm::channel::message>& sends,
                                                         const std::vector<devcomm::channel::message>& receives,
                                                         std::mt19937& random) {
    std::vector<devcomm::channel::message> all = sends;
    all.insert(all.end(), receives.begin(), receives.end());
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<devcomm::channel::message> result(all.size());
    std::vector<bool> done(all.size());
    for (std::size_t place = 0; place < order.size(); ++place) {
      const devcomm::channel::message& drawn = all[order[place]];
      std::size_t first = 0;  // the first of its connection that has no place
      while (done[first] || all[first].peer != drawn.peer || all[first].way != drawn.way) ++first;
      done[first] = true;
      result[place] = all[first];
    }
    return result;
  }

  devcomm::host::communicator& comm_;
  devcomm::host::symmetric_memory window_;
  device_array<std::uint8_t> outputs_;
  device_array<std::uint8_t> inputs_;
  devcomm::channel::message_table table_;
  std::uint32_t stripes_;
  bool only_windows_ = false;
  devcomm::channel::connection_handle connections_{};
  std::optional<devcomm::host::device_communicator> device_comm_;
};

/// Some messages between random ranks, and of random sizes.
inline std::vector<planned> random_plan(int ranks, int messages, std::mt19937& random) {
  constexpr std::uint64_t sizes[] = {0, 1, 3, 16, 100, 1024, 1025, 2047, 4096, 5000, 9000};
  std::vector<planned> plan;
  for (int i = 0; i < messages; ++i)
    plan.push_back({static_cast<int>(random() % static_cast<unsigned>(ranks)),
                    static_cast<int>(random() % static_cast<unsigned>(ranks)), sizes[random() % std::size(sizes)]});
  return plan;
}

}  // namespace test
