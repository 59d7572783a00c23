// The order that the transport between processes makes out of a fabric that promises none, and what it does with
// fabrics that fail and with messages of strangers.
#include <devcomm/gin/contexts.hpp>

#include <device/backend.hpp>
#include <transport/fabric_engine.hpp>

#include "../../support/post_descriptor.hpp"
#include "fake_fabric.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace devcomm;
using namespace devcomm::host::detail;
using namespace devcomm_test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint32_t signals = 64;
constexpr std::uint32_t depth = 8;
constexpr std::uint32_t window_id = 7;

/// Which ranks have windows that the fabric does not reach, as bits.
enum staged_ranks : unsigned { none_staged = 0, first_staged = 1, second_staged = 2, all_staged = ~0u };

/// Copies that come to an end when the network's steps say so, in any order.
class slow_copies final : public copy_engine {
 public:
  slow_copies(fake_network& net, bool trusts_early) : net_(net), early_(trusts_early) {}
  [[nodiscard]] std::uint64_t begin_read(void* host, const void* on_device, std::size_t bytes) override {
    return begin(host, on_device, bytes);
  }
  [[nodiscard]] std::uint64_t begin_write(void* on_device, const void* host, std::size_t bytes) override {
    return begin(on_device, host, bytes);
  }
  void poll() override {
    if (net_.copies_fail) throw host::system_error("the device is gone");
  }
  [[nodiscard]] bool is_done(std::uint64_t number) const override { return early_ || done_->contains(number); }

 private:
  std::uint64_t begin(void* to, const void* from, std::size_t bytes) {
    const std::uint64_t number = begun_++;
    ++net_.copies;
    net_.later([=, &net = net_, done = done_] {
      if (net.copies_wait) return false;
      std::memcpy(to, from, bytes);
      done->insert(number);
      return true;
    });
    return number;
  }

  fake_network& net_;
  bool early_;
  std::uint64_t begun_ = 0;
  std::shared_ptr<std::set<std::uint64_t>> done_ = std::make_shared<std::set<std::uint64_t>>();
};

/// One rank: its queue as kernels see it, and its engine.
struct rank_of_test {
  rank_of_test(fake_network& net, int rank, std::uint32_t ranks, std::size_t bytes, unsigned staged)
      : layout{ranks, signals, 4},
        memory(bytes),
        stages(staged == all_staged || (rank < 2 && (staged >> rank & 1) != 0)),
        number(rank) {
    make_queues();
    endpoint = std::make_unique<fabric_endpoint>(
        fabric_endpoint::surroundings{rank, windows, [this](const std::string& text) { reports.push_back(text); },
                                      net.carried, 0, stages && net.reaches_devices},
        std::make_unique<fake_fabric>(net, rank));
  }
  /// Another device communicator of the same rank.
  rank_of_test(fake_network& net, rank_of_test& beside, std::chrono::milliseconds limit)
      : layout(beside.layout),
        memory(beside.memory.size()),
        windows(beside.windows),
        window(beside.window + 1),
        stages(beside.stages),
        number(beside.number),
        device_comm(beside.device_comm + 1),
        endpoint(beside.endpoint) {
    make_queues();
    attach(net, limit);
  }
  void make_queues() {
    network_request asked{};
    asked.contexts = contexts;
    asked.peers = layout.peers;
    asked.signals = signals;
    asked.counters = 4;
    asked.depth = depth;
    for (std::uint32_t i = 0; i < contexts; ++i) {
      queues.push_back(std::make_unique<network_queue>(current_backend(), words, 0, asked));
    }
    listing = windows->list(window, {memory.data(), memory.size(), "window 'test'", stages});
  }
  void connect(fake_network& net, const std::vector<fabric_endpoint::card>& cards, std::chrono::milliseconds limit) {
    endpoint->connect(cards);
    attach(net, limit);
  }
  void attach(fake_network& net, std::chrono::milliseconds limit) {
    fabric_engine::surroundings about{device_comm, queues, [this](const std::string& text) { failure = text; }, limit};
    if (stages) {
      about.staged = {&current_backend(), 0, {}, std::make_unique<slow_copies>(net, net.copies_are_trusted_early)};
      about.staged.shape.bounce_buffer_count = 8;
      about.staged.shape.bounce_buffer_bytes = 50'000;
    }
    engine = std::make_unique<fabric_engine>(std::move(about), *endpoint);
    engine->attach();
  }
  /// Whether there was anything to do.
  bool step() {
    const bool any = endpoint && endpoint->poll();
    return (engine && engine->step()) || any;
  }
  /// As if the process were killed.
  void die() {
    endpoint->close({});
    engine.reset();
    endpoint.reset();
  }

  [[nodiscard]] std::uint64_t word(std::uint32_t context, std::uint32_t index) {
    return words.load(queues[context]->record().words + index);
  }
  [[nodiscard]] std::uint64_t signal(std::uint32_t index, std::uint32_t context = 0) {
    return word(context, layout.signal(index));
  }
  [[nodiscard]] bool can_post(std::uint32_t context) {
    return posted[context] < word(context, layout.consumed()) + depth;
  }
  /// As a kernel does; returns the operation's number.
  std::uint64_t post(std::uint32_t context, gin::descriptor what, const gin::descriptor_head& head) {
    const std::uint64_t taken = posted[context]++;
    what.windows = std::uint64_t{window} << 32 | window;
    test::post_descriptor(queues[context]->record().ring, taken, depth, what, head);
    return taken;
  }

  static constexpr std::uint32_t contexts = 2;
  gin::queue_layout layout;
  network_port words;
  std::vector<char> memory;
  std::shared_ptr<window_table> windows = std::make_shared<window_table>();
  std::unique_ptr<window_table::listing> listing;
  std::vector<std::unique_ptr<network_queue>> queues;
  std::uint64_t posted[contexts] = {};
  std::uint32_t window = window_id;  ///< of what is posted
  bool stages;                       ///< its window
  int number;
  std::string failure;
  std::vector<std::string> reports;
  static constexpr std::uint32_t first_device_comm = 3;
  std::uint32_t device_comm = first_device_comm;
  std::shared_ptr<fabric_endpoint> endpoint;
  std::unique_ptr<fabric_engine> engine;

  ~rank_of_test() {
    if (endpoint.use_count() == 1) die();
  }
};

struct job {
  job(std::uint32_t seed, std::uint32_t ranks, std::size_t bytes, std::chrono::milliseconds limit = 10s,
      const std::function<void(fake_network&)>& prepare = {}, unsigned staged = none_staged)
      : net(seed) {
    if (prepare) prepare(net);
    std::vector<fabric_endpoint::card> cards;
    for (std::uint32_t i = 0; i < ranks; ++i) {
      all.push_back(std::make_unique<rank_of_test>(net, static_cast<int>(i), ranks, bytes, staged));
      cards.push_back(all.back()->endpoint->own_card());
    }
    for (const auto& each : all) each->connect(net, cards, limit);
  }
  ~job() {  // those of all device communicators before the endpoints
    for (const auto& each : all) each->endpoint ? each->endpoint->close({}) : void();
  }
  /// Another device communicator of all ranks.
  void add_device_comm(std::chrono::milliseconds limit = 10s) {
    const auto& latest = more.empty() ? all : more.back();
    std::vector<std::unique_ptr<rank_of_test>> made;
    for (const auto& each : latest) made.push_back(std::make_unique<rank_of_test>(net, *each, limit));
    more.push_back(std::move(made));
  }
  rank_of_test& operator[](std::size_t rank) { return *all[rank]; }

  /// One thing happens somewhere; whether there was any.
  bool step() {
    const std::size_t first = net.below(all.size() + 2);
    if (first >= all.size()) {
      if (net.step()) return true;
    } else if (all[first]->step()) {
      return true;
    }
    bool any = net.step();
    for (const auto& each : all) any = each->step() || any;
    for (const auto& device_comm : more) {
      for (const auto& each : device_comm) any = (each->engine && each->engine->step()) || any;
    }
    return any;
  }
  void settle_for(std::chrono::milliseconds time) {
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < time) step();
  }
  void settle() {
    // A fabric that refuses now may take the same later.
    for (int quiet = 0; quiet < 50; quiet = step() ? 0 : quiet + 1) {
    }
  }

  fake_network net;
  std::vector<std::unique_ptr<rank_of_test>> all;
  std::vector<std::vector<std::unique_ptr<rank_of_test>>> more;  // of further device communicators
};

gin::descriptor_head head_of(gin::operation_kind kind, std::uint32_t peer) {
  return {kind, gin::signal_change::none, gin::strength::weak, false, 0, peer};
}

char pattern(std::size_t operation, std::size_t i) { return static_cast<char>(operation * 37 + i * 11 + i / 200 + 1); }

/// An operation of a random program from rank 0 to rank 1, with a region, a signal and a value of its own.
struct operation {
  std::uint32_t context;
  std::size_t bytes;
  std::size_t offset;
  gin::operation_kind kind;
  bool signals;
  gin::strength covers;
  std::uint64_t number = 0;
  bool seen = false;
};

/// What is wrong in the course of a random program; empty where nothing is.
std::string run_program(std::uint32_t seed, const std::function<void(fake_network&)>& prepare = {},
                        unsigned staged = none_staged) {
  constexpr std::size_t count = 24;
  const std::size_t room = staged != none_staged ? 600'000 : 2'600'000;
  job two(seed, 2, room * count, 10s, prepare, staged);
  rank_of_test& from = two[0];
  rank_of_test& to = two[1];
  std::vector<operation> program;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t sizes[] = {0, 1, 13, 4096, two.net.below(50'000), two.net.below(room)};
    const bool puts = two.net.below(4) != 0;
    const gin::operation_kind kind = puts                    ? gin::operation_kind::put
                                     : two.net.below(2) == 0 ? gin::operation_kind::put_value
                                                             : gin::operation_kind::signal;
    const std::size_t bytes = kind == gin::operation_kind::put         ? sizes[two.net.below(std::size(sizes))]
                              : kind == gin::operation_kind::put_value ? 8
                                                                       : 0;
    program.push_back({static_cast<std::uint32_t>(two.net.below(2)), bytes, i * room, kind,
                       !puts || two.net.below(3) != 0,
                       two.net.below(2) == 0 ? gin::strength::weak : gin::strength::strong});
    for (std::size_t b = 0; b < bytes; ++b) from.memory[i * room + b] = pattern(i, b);
  }
  const auto is_there = [&](const operation& one) {
    return std::memcmp(to.memory.data() + one.offset, from.memory.data() + one.offset, one.bytes) == 0;
  };
  const auto law = [&]() -> std::string {
    for (std::size_t i = 0; i < count; ++i) {
      operation& one = program[i];
      const std::string name = "seed " + std::to_string(seed) + ", operation " + std::to_string(i);
      if (one.signals && !one.seen && to.signal(static_cast<std::uint32_t>(i), one.context) != 0) {
        one.seen = true;
        if (!is_there(one)) return name + ": its signal came before its data";
        for (std::size_t j = 0; one.covers == gin::strength::strong && j < i; ++j) {
          if (program[j].context != one.context) continue;
          if (!is_there(program[j])) return name + ": its strong signal came before earlier data";
          if (program[j].signals && program[j].covers == gin::strength::strong && !program[j].seen &&
              to.signal(static_cast<std::uint32_t>(j), one.context) == 0) {
            return name + ": its strong signal came before an earlier one";
          }
        }
      }
    }
    return {};
  };
  std::size_t next = 0;
  std::uint64_t done[2] = {};
  for (int quiet = 0; quiet < 50 || next < count;) {
    if (next < count && from.can_post(program[next].context) && two.net.below(3) == 0) {
      operation& one = program[next];
      gin::descriptor what{one.offset, one.offset, 0, one.bytes, 0, next + 1, next, 0};
      std::memcpy(&what.value, from.memory.data() + one.offset, 8);
      gin::descriptor_head head = head_of(one.kind, 1);
      head.value_bytes = one.kind == gin::operation_kind::put_value ? 8 : 0;
      head.covers = one.covers;
      if (one.signals) head.change = next % 2 == 0 ? gin::signal_change::add : gin::signal_change::set;
      one.number = from.post(one.context, what, head);
      ++next;
    }
    quiet = two.step() ? 0 : quiet + 1;
    if (const std::string broken = law(); !broken.empty()) return broken;
    for (std::uint32_t context = 0; context < 2; ++context) {
      const std::uint64_t now = from.word(context, from.layout.done());
      for (; done[context] < now; ++done[context]) {
        for (std::size_t i = 0; i < next; ++i) {
          const operation& one = program[i];
          if (one.context != context || one.number != done[context]) continue;
          const bool effect = !one.signals || to.signal(static_cast<std::uint32_t>(i), context) == i + 1;
          if (!is_there(one) || !effect) {
            return "seed " + std::to_string(seed) + ", operation " + std::to_string(i) +
                   " is complete without its effect";
          }
        }
      }
    }
  }
  if (!from.failure.empty() || !to.failure.empty()) return "failed: " + from.failure + to.failure;
  if (done[0] + done[1] != count) return "seed " + std::to_string(seed) + ": not all operations are complete";
  if (!from.engine->idle() || !to.engine->idle()) return "seed " + std::to_string(seed) + ": an engine is not idle";
  if (two.net.max_in_flight > fabric_engine::max_bytes) return "too many bytes were in flight";
  return {};
}

}  // namespace

TEST_CASE("signals have before them what they say, over a fabric that reorders, delays, splits and refuses") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) CHECK(run_program(seed) == "");
}

TEST_CASE("signals have before them what they say, over a fabric whose writes have no names") {
  const auto nameless = [](fake_network& net) { net.names_writes = false; };
  for (std::uint32_t seed = 0; seed < 8; ++seed) CHECK(run_program(seed, nameless) == "");
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    for (const unsigned staged : {first_staged, second_staged, all_staged}) {
      INFO("staged: " << staged);
      CHECK(run_program(seed, nameless, staged) == "");
    }
  }
}

TEST_CASE("a fabric that tells of writes before they have arrived is found out by the tests above") {
  for (const bool names : {true, false}) {
    int found = 0;
    const auto early = [&](fake_network& net) {
      net.names_writes = names;
      (names ? net.names_writes_early : net.completes_writes_early) = true;
    };
    for (std::uint32_t seed = 0; seed < 10; ++seed) found += run_program(seed, early).empty() ? 0 : 1;
    CHECK(found > 5);
  }
}

TEST_CASE(
    "signals have before them what they say, where the fabric does not reach windows and copies take their time") {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    for (const unsigned staged : {first_staged, second_staged, all_staged}) {
      INFO("staged: " << staged);
      CHECK(run_program(seed, {}, staged) == "");
    }
  }
}

TEST_CASE(
    "signals have before them what they say where the fabric reaches memory of devices, and only values are copied") {
  const auto reaches = [](fake_network& net) { net.reaches_devices = true; };
  for (const unsigned staged : {first_staged, second_staged, all_staged}) {
    for (std::uint32_t seed = 0; seed < 30; ++seed) CHECK(run_program(seed, reaches, staged).empty());
  }
  job two(1, 2, 400'000, 10s, reaches, all_staged);
  gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
  head.change = gin::signal_change::add;
  two[0].memory[7] = 'x';
  two[0].post(0, {0, 0, 0, 300'000, 0, 1, 0, 0}, head);
  two[0].post(0, {320'000, 320'000, 0, 64'000, 0, 0, 0, 0}, head_of(gin::operation_kind::get, 1));
  two.settle();
  CHECK(two[1].signal(0) == 1);
  CHECK(two[1].memory[7] == 'x');
  CHECK(two[0].word(0, two[0].layout.done()) == 2);
  CHECK(two.net.copies == 0);
}

TEST_CASE("copies that are trusted before they are done are found out by the test above") {
  for (const std::size_t carried : {std::size_t{0}, std::size_t{8192}}) {
    int found = 0;
    const auto trust = [&](fake_network& net) {
      net.copies_are_trusted_early = true;
      net.carried = carried;
    };
    for (std::uint32_t seed = 0; seed < 10; ++seed) found += run_program(seed, trust, second_staged).empty() ? 0 : 1;
    CHECK(found > 5);
  }
}

TEST_CASE("signals have before them what they say where messages carry small puts") {
  for (const unsigned staged : {none_staged, first_staged, second_staged, all_staged}) {
    for (std::uint32_t seed = 0; seed < 12; ++seed) {
      INFO("staged: " << staged << ", seed " << seed);
      CHECK(run_program(
                seed, [](fake_network& net) { net.carried = 8192; }, staged) == "");
    }
  }
  const auto reaches = [](fake_network& net) {
    net.carried = 8192;
    net.reaches_devices = true;
  };
  for (std::uint32_t seed = 0; seed < 12; ++seed) CHECK(run_program(seed, reaches, all_staged) == "");
}

TEST_CASE("a small put takes one message, and its peer's window need not be registered") {
  for (const unsigned staged : {none_staged, first_staged, second_staged, all_staged}) {
    job two(
        5, 2, 100'000, 10s, [](fake_network& net) { net.carried = 4096; }, staged);
    for (std::size_t i = 0; i < two[0].memory.size(); ++i) two[0].memory[i] = pattern(3, i);
    two.net.unregistered = 1;
    gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
    head.change = gin::signal_change::add;
    two[0].post(0, {5, 3, 0, 4096, 0, 1, 0, 0}, head);
    two[0].post(1, {9000, 8000, 0, 1, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));  // without a signal
    two.settle();
    CHECK(two[0].failure == "");
    CHECK(two.net.moved == 0);
    CHECK(two[1].signal(0) == 1);
    CHECK(std::memcmp(two[1].memory.data() + 3, two[0].memory.data() + 5, 4096) == 0);
    CHECK(two[1].memory[8000] == two[0].memory[9000]);
    CHECK((two[1].memory[2] == 0 && two[1].memory[3 + 4096] == 0 && two[1].memory[8001] == 0));
    CHECK(two[0].word(0, two[0].layout.done()) == 1);
    CHECK(two[0].word(1, two[0].layout.done()) == 1);
    CHECK((two[0].engine->idle() && two[1].engine->idle()));
  }
  const auto said = [](gin::descriptor what, bool gone) {
    job two(3, 2, 4096, 10s, [](fake_network& net) { net.carried = 64; });
    if (gone) two[1].listing.reset();
    two[0].post(0, what, head_of(gin::operation_kind::put, 1));
    two.settle();
    return two[0].failure;
  };
  CHECK_THAT(said({0, 4090, 0, 8, 0, 0, 0, 0}, false),
             ContainsSubstring("8 bytes from byte 4090 on run past the end of window 7 of rank 1, which has 4096"));
  CHECK_THAT(said({4090, 0, 0, 8, 0, 0, 0, 0}, false), ContainsSubstring("window 7 of this rank, which has 4096"));
  CHECK_THAT(said({0, 0, 0, 8, 0, 0, 0, 0}, true), ContainsSubstring("rank 1 has no window 7 (any more)"));
}

TEST_CASE("a put goes beside its change, which waits for no answer, and an acknowledgment ends both") {
  for (const unsigned staged : {none_staged, first_staged, second_staged, all_staged}) {
    for (const gin::strength covers : {gin::strength::weak, gin::strength::strong}) {
      INFO("staged: " << staged);
      job two(5, 2, 100'000, 10s, {}, staged);
      for (std::size_t i = 0; i < two[0].memory.size(); ++i) two[0].memory[i] = pattern(3, i);
      gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
      head.change = gin::signal_change::add;
      head.covers = covers;
      two[0].post(0, {5, 3, 0, 40'000, 0, 1, 0, 0}, head);  // asks where the window is
      two.settle();
      const std::uint64_t before = two.net.sent;
      two[0].post(0, {5, 3, 0, 40'000, 0, 1, 0, 0}, head);
      two.settle_for(1ms);
      two.settle();
      CHECK(two.net.sent - before == 2);
      CHECK(two[1].signal(0) == 2);
      CHECK(two[0].word(0, two[0].layout.done()) == 2);
      CHECK(std::memcmp(two[1].memory.data() + 3, two[0].memory.data() + 5, 40'000) == 0);
      CHECK((two[1].memory[2] == 0 && two[1].memory[3 + 40'000] == 0));
      CHECK((two[0].engine->idle() && two[1].engine->idle()));
    }
  }
}

TEST_CASE("puts as large as messages carry, and a byte more, arrive before their signals and write nothing around") {
  using offsets = std::pair<std::size_t, std::size_t>;
  constexpr std::size_t at = 256;
  for (const unsigned staged : {none_staged, first_staged, second_staged, all_staged}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, max_carried - 1, max_carried, max_carried + 1}) {
      for (const auto& [source, destination] : {offsets{0, 0}, {1, 0}, {0, 1}, {3, 5}, {8, 13}}) {
        INFO(bytes << " bytes from " << source << " to " << destination << ", staged: " << staged);
        job two(
            static_cast<std::uint32_t>(bytes + staged), 2, 10'000, 10s,
            [](fake_network& net) { net.carried = max_carried; }, staged);
        for (std::size_t i = 0; i < two[0].memory.size(); ++i) two[0].memory[i] = pattern(bytes, i);
        two[1].memory.assign(two[1].memory.size(), '\x5a');
        std::vector<char> right = two[1].memory;
        std::memcpy(right.data() + at + destination, two[0].memory.data() + at + source, bytes);
        gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
        head.change = gin::signal_change::add;
        two[0].post(0, {at + source, at + destination, 0, bytes, 0, 1, 0, 0}, head);
        while (two[1].signal(0) == 0 && two[0].failure.empty()) two.step();
        CHECK(two[1].memory == right);
        two.settle();
        CHECK(two[0].failure == "");
        CHECK(two[1].memory == right);
        CHECK(two[1].signal(0) == 1);
        CHECK(two[0].word(0, two[0].layout.done()) == 1);
        CHECK(two.net.moved == (bytes > max_carried ? bytes : 0));
      }
    }
  }
}

TEST_CASE("a window that is freed between a change and its write refuses the change, and is let go") {
  job two(2, 2, 4096, 10s, {}, second_staged);
  gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
  head.change = gin::signal_change::add;
  two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
  two.settle();
  CHECK(two[1].signal(0) == 1);
  two.net.may_move = 0;
  for (int i = 0; i < 3; ++i) two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
  two.settle_for(20ms);
  two[1].listing.reset();
  two.net.may_move = 100;
  two.settle();
  CHECK(two[1].signal(0) == 1);
  CHECK(two[1].engine->idle());
  CHECK_THAT(two[0].failure, ContainsSubstring("put to rank 1 in context 0: rank 1 has no window 7"));
}

TEST_CASE("a rank is idle although the write that a peer's change is about does not come") {
  for (const unsigned staged : {none_staged, all_staged}) {
    job two(2, 2, 4096, 10s, {}, staged);
    two[0].post(0, {0, 0, 0, 64, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
    two.settle();
    two.net.may_move = 0;
    two[0].post(0, {0, 0, 0, 64, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
    two.settle_for(20ms);
    CHECK(two[1].engine->idle());
    CHECK(!two[0].engine->idle());
    two.net.may_move = 100;
    two.settle();
    CHECK(two[0].word(0, two[0].layout.done()) == 2);
  }
}

TEST_CASE("names of writes that nobody made are dropped and reported, and change nothing") {
  job two(2, 2, 4096, 10s, {}, second_staged);
  const fabric_secret secret = two[1].endpoint->own_card().secret;
  const auto tell = [&](std::uint32_t sender, std::uint64_t sequence) {
    two.net.endpoints.at(1).over.push_back(
        {0,
         0,
         {},
         write_name{sender, rank_of_test::first_device_comm, static_cast<std::uint32_t>(sequence)}.pack(secret)});
    two.settle();
  };
  tell(2, 0);   // no member
  tell(1, 0);   // itself
  tell(0, 64);  // far ahead
  tell(0, 0xffff);
  CHECK(two[1].reports.size() == 4);
  tell(0, 1);  // it may be early
  CHECK(two[1].reports.size() == 4);
  tell(0, 1);
  CHECK_THAT(two[1].reports.back(), ContainsSubstring("a write that rank 0 may have made came before"));

  fabric_message change;
  change.secret = secret;
  change.device_comm = rank_of_test::first_device_comm;
  change.kind = message_kind::change;
  change.write = payload_write::to_bounce_buffer;
  change.window = window_id;
  change.bytes = 64;
  change.slot = 1000;
  change.signal_change = gin::signal_change::add;
  change.signal_value = 1;
  const auto send = [&] {
    fake_fabric::deliver(two.net, 1, std::as_bytes(std::span(&change, 1)));
    two.settle();
  };
  send();
  CHECK_THAT(two[1].reports.back(), ContainsSubstring("uses a bounce buffer that it may not use"));
  change.slot = 0;
  change.write = static_cast<payload_write>(3);
  send();
  CHECK_THAT(two[1].reports.back(), ContainsSubstring("its payload goes an unknown way"));
  change.write = payload_write::to_bounce_buffer;
  send();
  CHECK((two[1].signal(0) == 0 && two.net.copies == 0));
  tell(0, 0);
  CHECK((two[1].signal(0) == 1 && two.net.copies == 1));
  tell(0, 0);
  CHECK_THAT(two[1].reports.back(), ContainsSubstring("far from what it may write"));
}

TEST_CASE("where messages are short they carry less, to a peer whose messages are shorter too, down to none") {
  constexpr std::size_t header = sizeof(fabric_message);
  struct limits {
    std::uint64_t first;
    std::uint64_t second;
    std::size_t carried;  // from either to the other
  };
  constexpr std::uint64_t long_ones = 1 << 20;
  for (const limits& each : {limits{header + 8191, header + 8191, 8128},
                             {header + 1000, long_ones, 960},
                             {long_ones, header + 1000, 960},
                             {header + 63, long_ones, 0},
                             {header, header, 0}}) {
    for (const unsigned staged : {none_staged, second_staged, all_staged}) {
      for (const bool fits : {true, false}) {
        INFO("messages of " << each.first << " and " << each.second << " bytes, staged: " << staged << ", fits "
                            << fits);
        if (fits && each.carried == 0) continue;
        job two(
            11, 2, 20'000, 10s,
            [&](fake_network& net) {
              net.carried = max_carried;
              net.largest_messages = {{0, each.first}, {1, each.second}};
            },
            staged);
        const std::size_t bytes = each.carried + (fits ? 0 : 1);
        for (std::uint32_t from : {0u, 1u}) {
          gin::descriptor_head head = head_of(gin::operation_kind::put, 1 - from);
          head.change = gin::signal_change::add;
          for (std::size_t i = 0; i < bytes; ++i) two[from].memory[i] = pattern(from, i);
          two[from].post(0, {0, 10'000, 0, bytes, 0, 1, 0, 0}, head);
        }
        two.settle();
        for (std::uint32_t from : {0u, 1u}) {
          CHECK(two[from].failure == "");
          CHECK(two[from].reports.empty());
          CHECK(two[from].word(0, two[from].layout.done()) == 1);
          CHECK(two[1 - from].signal(0) == 1);
          CHECK(std::memcmp(two[from].memory.data(), two[1 - from].memory.data() + 10'000, bytes) == 0);
        }
        CHECK(two.net.moved == (fits ? 0 : 2 * bytes));
      }
    }
  }
}

TEST_CASE("device communicators share an endpoint, each with its own order, however many there are") {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    for (const unsigned staged : {none_staged, second_staged}) {
      INFO("seed " << seed << ", staged " << staged);
      job two(seed, 2, 60'000, 10s, {}, staged);
      for (int i = 0; i < 10; ++i) two.add_device_comm();  // more than have names
      std::vector<std::pair<rank_of_test*, rank_of_test*>> pairs = {{&two[0], &two[1]}};
      for (const auto& each : two.more) pairs.emplace_back(each[0].get(), each[1].get());
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        auto& [from, to] = pairs[i];
        for (std::size_t b = 0; b < from->memory.size(); ++b) from->memory[b] = pattern(i, b);
        gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
        head.change = gin::signal_change::add;
        from->post(0, {0, 0, 0, 60'000, 0, 1, 0, 0}, head);
      }
      std::size_t seen = 0;
      for (int quiet = 0; quiet < 50; quiet = two.step() ? 0 : quiet + 1) {
        seen = 0;
        for (const auto& [from, to] : pairs) {
          if (to->signal(0) == 0) continue;
          ++seen;
          REQUIRE(to->memory == from->memory);
        }
      }
      CHECK(seen == pairs.size());
      for (const auto& [from, to] : pairs) {
        CHECK(from->word(0, from->layout.done()) == 1);
        CHECK((from->failure + to->failure).empty());
      }
      CHECK((two[0].reports.empty() && two[1].reports.empty()));
    }
  }
}

TEST_CASE("a device communicator that fails or ends leaves the others of its rank what they had") {
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    INFO("seed " << seed);
    job two(seed, 2, 4096);
    two.add_device_comm();
    rank_of_test& failing = *two.more[0][0];
    rank_of_test& ended = *two.more[0][1];
    gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
    head.change = gin::signal_change::add;
    failing.window = 99;  // which there is not
    failing.post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
    two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
    two.settle();
    CHECK_THAT(failing.failure, ContainsSubstring("window 99"));
    CHECK(two[1].signal(0) == 1);
    CHECK(two[0].failure.empty());

    // Its peer ends, which it never met.
    ended.engine.reset();
    two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
    two.settle();
    CHECK(two[1].signal(0) == 2);
    two.add_device_comm();
    two.more[1][1]->engine.reset();
    two.more[1][0]->post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
    two.settle();
    CHECK_THAT(two.more[1][0]->failure, ContainsSubstring("that rank has destroyed its device communicator"));
    CHECK((two[0].failure + two[1].failure).empty());
    CHECK((two[0].reports.empty() && two[1].reports.empty()));
  }
}

TEST_CASE("an endpoint that closes as memory was freed under it fails all device communicators by that name") {
  job two(1, 2, 4096);
  two.add_device_comm();
  two.net.may_move = 0;
  const gin::descriptor_head head = head_of(gin::operation_kind::get, 1);
  two[0].post(0, {0, 0, 0, 64, 0, 0, 0, 0}, head);
  two.settle_for(20ms);
  two[0].listing.reset();
  REQUIRE(two[0].endpoint->forget(window_id));
  two[0].endpoint->take_away(window_id);
  CHECK_THAT(two[0].failure, ContainsSubstring("this rank freed window 7 meanwhile"));
  CHECK_THAT(two.more[0][0]->failure, ContainsSubstring("the network of this communicator is closed, as window 7"));
  CHECK(two.more[0][1]->failure.empty());
  CHECK(two[0].endpoint->port() == nullptr);
  CHECK(!two.more[0][0]->step());
}

TEST_CASE("a device communicator that ended leaves its memory to the fabric until that has let go of it") {
  job two(3, 2, 4096);
  two.add_device_comm();
  two.net.may_move = 0;
  rank_of_test& one = *two.more[0][0];
  one.post(0, {0, 0, 0, 64, 0, 0, 0, 0}, head_of(gin::operation_kind::get, 1));
  two.settle_for(20ms);
  REQUIRE(one.engine->is_with_fabric());
  one.engine->end();
  CHECK(two[0].endpoint->forget(one.window));
  two.net.may_move = 100;
  two.settle();
  CHECK(!one.engine->is_with_fabric());
  CHECK(one.word(0, one.layout.done()) == 0);
  CHECK(!two[0].endpoint->forget(one.window));
  one.engine.reset();
  two[0].post(0, {0, 0, 0, 64, 0, 0, 0, 0}, head_of(gin::operation_kind::get, 1));
  two.settle();
  CHECK(two[0].word(0, two[0].layout.done()) == 1);
}

TEST_CASE("peers for whom there is nothing to do take no time, and little memory") {
  const auto fastest_step = [](std::uint32_t ranks, std::size_t& memory) {
    fake_network net(1);
    rank_of_test one(net, 0, ranks, 64, none_staged);
    const std::vector<fabric_endpoint::card> cards(ranks, one.endpoint->own_card());
    const auto in_use = [] { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; };
    const std::size_t before = in_use();
    one.connect(net, cards, 10s);
    memory = in_use() - before;
    auto fastest = std::chrono::nanoseconds::max();
    for (int i = 0; i < 2000; ++i) {
      const auto begun = std::chrono::steady_clock::now();
      static_cast<void>(one.step());
      fastest = std::min<std::chrono::nanoseconds>(fastest, std::chrono::steady_clock::now() - begun);
    }
    return fastest;
  };
  constexpr std::uint32_t many = 16'384;
  std::size_t memory = 0;
  const auto with_few = fastest_step(2, memory);
  const auto with_many = fastest_step(many, memory);
  INFO(with_few.count() << " ns with 2 ranks, " << with_many.count() << " ns with 16,384");
  CHECK(with_many < 4 * with_few + 1us);
  CHECK(memory / many < 800);
}

TEST_CASE("what messages carry among many ranks takes no more memory than among few") {
  CHECK(fabric_endpoint::carried_among(2) == max_carried);
  CHECK(fabric_endpoint::carried_among(16) == max_carried);
  CHECK(fabric_endpoint::carried_among(64) == 2048);
  CHECK(fabric_endpoint::carried_among(100'000) == 64);
}

TEST_CASE("what a get brought is there when it is complete, and its counter has counted it") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    constexpr unsigned kinds[] = {none_staged, first_staged, second_staged, all_staged};
    job two(seed, 2, 3'000'000, 10s, {}, kinds[seed % 4]);
    for (std::size_t i = 0; i < two[1].memory.size(); ++i) two[1].memory[i] = pattern(seed, i);
    gin::descriptor_head head = head_of(gin::operation_kind::get, 1);
    head.counts = true;
    two[0].post(0, {5, 3, 0, 2'500'001, 0, 0, std::uint64_t{2} << 32, 0}, head);
    while (two[0].word(0, two[0].layout.done()) == 0) REQUIRE((two.step() || two.step() || two.step()));
    CHECK(two[0].word(0, two[0].layout.counter(2)) == 1);
    CHECK(std::memcmp(two[0].memory.data() + 5, two[1].memory.data() + 3, 2'500'001) == 0);
  }
}

TEST_CASE("strong signals of all ranks to one add up, and sets keep their order") {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    constexpr std::uint32_t ranks = 4;
    constexpr std::uint64_t rounds = 100;  // more than may be unacknowledged
    job all(seed, ranks, 64);
    std::uint64_t posts[ranks] = {};
    std::uint64_t latest = 0;
    for (int quiet = 0; quiet < 50;) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        if (posts[rank] == rounds || !all[rank].can_post(0)) continue;
        gin::descriptor_head head = head_of(gin::operation_kind::signal, 0);
        head.covers = gin::strength::strong;
        const bool sets = rank == 1;
        head.change = sets ? gin::signal_change::set : gin::signal_change::add;
        ++posts[rank];
        all[rank].post(0, {0, 0, 0, 0, 0, sets ? posts[rank] : 3, sets ? 1u : 0u, 0}, head);
      }
      quiet = all.step() ? 0 : quiet + 1;
      const std::uint64_t now = all[0].signal(1);
      REQUIRE(now >= latest);
      latest = now;
    }
    CHECK(all[0].signal(0) == 3 * rounds * (ranks - 1));
    CHECK(all[0].signal(1) == rounds);
  }
}

TEST_CASE("an operation that the fabric cannot do ends the rank's operations, and is named with its peer") {
  job three(1, 3, 4096);
  three.net.fails_to = 2;
  three[0].post(0, {0, 0, 0, 100, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  three.settle();
  CHECK(three[0].failure.empty());
  CHECK(three[0].word(0, three[0].layout.done()) == 1);
  three[0].post(1, {0, 0, 0, 100, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 2));
  three.settle();
  CHECK(
      three[0].failure ==
      "rank 0: put to rank 2 in context 1: the link is down; see what rank 2 says, and whether the network between it "
      "and this host is up");
  CHECK(three[0].word(1, three[0].layout.done()) == 0);
  CHECK(three[0].engine->idle());
  // Who has failed still answers: rank 1 puts to it.
  three[1].post(0, {0, 0, 0, 100, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 0));
  three.settle();
  CHECK(three[1].word(0, three[1].layout.done()) == 1);
}

TEST_CASE("operations that make no sense to the peer are named with the reason") {
  const auto said = [](gin::descriptor what, gin::descriptor_head head, bool gone) {
    job two(3, 2, 4096);
    if (gone) two[1].listing.reset();
    two[0].post(0, what, head);
    two.settle();
    return two[0].failure;
  };
  gin::descriptor_head value = head_of(gin::operation_kind::put_value, 1);
  value.value_bytes = 8;
  for (const std::uint32_t rank : {2u, 7u})
    CHECK_THAT(said({}, head_of(gin::operation_kind::put, rank), false), ContainsSubstring("there is no such rank"));
  for (const auto& head : {head_of(gin::operation_kind::put, 1), head_of(gin::operation_kind::get, 1), value}) {
    CHECK_THAT(said({0, 4090, 0, 8, 0, 0, 0, 0}, head, false),
               ContainsSubstring("8 bytes from byte 4090 on run past the end of window 7 of rank 1, which has 4096"));
    CHECK_THAT(said({0, 0, 0, 8, 0, 0, 0, 0}, head, true), ContainsSubstring("rank 1 has no window 7 (any more)"));
  }
  CHECK_THAT(said({4090, 0, 0, 8, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1), false),
             ContainsSubstring("window 7 of this rank, which has 4096"));
}

TEST_CASE("an operation without a signal names none, whatever its descriptor says") {
  job two(3, 2, 4096);
  two[0].post(0, {0, 0, 0, 8, 0, 0, ~std::uint64_t{0}, 0}, head_of(gin::operation_kind::put, 1));
  two.settle();
  CHECK(two[0].failure == "");
  CHECK(two[0].word(0, two[0].layout.done()) == 1);
}

TEST_CASE("a change of a signal that is not there is refused") {
  job two(3, 2, 64);
  fabric_message change;
  change.secret = two[1].endpoint->own_card().secret;
  change.device_comm = rank_of_test::first_device_comm;
  change.kind = message_kind::change;
  change.signal_change = gin::signal_change::set;
  change.signal_value = 5;
  change.signal = signals;
  fake_fabric::deliver(two.net, 1, std::as_bytes(std::span(&change, 1)));
  two.settle();
  CHECK(two[1].word(0, two[1].layout.signal(signals)) == 0);
  REQUIRE(two[0].reports.size() == 1);
  CHECK_THAT(two[0].reports[0], ContainsSubstring("rank 1 refuses what it was not sent"));
}

TEST_CASE("a weak signal does not wait for earlier puts that are under way") {
  for (const bool strong : {false, true}) {
    job two(3, 2, 100'000, 10s, [](fake_network& net) { net.names_writes = false; });
    two.net.may_move = 0;
    two[0].post(0, {0, 0, 0, 100'000, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
    gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
    head.change = gin::signal_change::add;
    head.covers = strong ? gin::strength::strong : gin::strength::weak;
    two[0].post(0, {0, 0, 0, 0, 0, 1, 3, 0}, head);
    two.settle_for(5ms);
    CHECK(two[1].signal(3) == (strong ? 0 : 1));
  }
}

TEST_CASE("a window that the peer stages, and frees after its key was asked for, fails operations by name") {
  for (const auto kind : {gin::operation_kind::put, gin::operation_kind::get}) {
    for (const bool names : {false, true}) {
      job two(
          3, 2, 4096, 10s, [names](fake_network& net) { net.names_writes = names; }, second_staged);
      two[0].post(0, {0, 0, 0, 100, 0, 0, 0, 0}, head_of(kind, 1));
      two.settle();
      CHECK(two[0].failure == "");
      two[1].listing.reset();
      two[0].post(0, {0, 0, 0, 100, 0, 0, 0, 0}, head_of(kind, 1));
      two.settle();
      CHECK_THAT(two[0].failure, ContainsSubstring("rank 1 has no window 7 (any more)"));
      CHECK(two[0].word(0, two[0].layout.done()) == 1);
    }
  }
}

TEST_CASE("operations of a rank with itself that make no sense are named with the reason") {
  const auto said = [](gin::operation_kind kind, const gin::descriptor& what, bool has_window) {
    job one(3, 1, 4096);
    gin::descriptor_head head = head_of(kind, 0);
    head.value_bytes = kind == gin::operation_kind::put_value ? 8 : 0;
    head.change = gin::signal_change::add;
    if (!has_window) one[0].listing.reset();
    one[0].post(0, what, head);
    one.settle();
    CHECK(one[0].signal(0) == 0);
    return one[0].failure;
  };
  for (const auto kind : {gin::operation_kind::put, gin::operation_kind::get, gin::operation_kind::put_value}) {
    CHECK_THAT(said(kind, {0, 0, 0, 8, 0, 1, 0, 0}, false), ContainsSubstring("rank 0 has no window 7 (any more)"));
    CHECK_THAT(said(kind, {0, 4090, 0, 8, 0, 1, 0, 0}, true),
               ContainsSubstring("8 bytes from byte 4090 on run past the end of window 7 of rank 0, which has 4096"));
  }
  CHECK_THAT(said(gin::operation_kind::put, {4090, 0, 0, 8, 0, 1, 0, 0}, true),
             ContainsSubstring("window 7 of this rank, which has 4096"));
}

TEST_CASE("an engine that is closed does nothing more, and keeps no window") {
  for (const bool receives : {false, true}) {
    job two(6, 2, 200'000, 10s, {}, receives ? second_staged : first_staged);
    two.net.copies_wait = true;
    two[0].post(0, {0, 0, 0, 200'000, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
    while (two.net.copies == 0) two.step();
    rank_of_test& copies = two[receives ? 1 : 0];
    copies.endpoint->close({});
    CHECK_FALSE(copies.step());
    const auto begun = std::chrono::steady_clock::now();
    copies.listing.reset();  // waits for who uses the window
    CHECK(std::chrono::steady_clock::now() - begun < 1s);
  }
}

namespace {

/// How rank 0's put to rank 1, which no longer takes part, ends where the rank's steps are so far apart.
std::string end_of_put(job& two, std::chrono::milliseconds apart) {
  two[0].post(0, {0, 0, 0, 8, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  const auto begun = std::chrono::steady_clock::now();
  while (two[0].failure.empty() && std::chrono::steady_clock::now() - begun < 5s) {
    static_cast<void>(two[0].step());  // and nobody else
    std::this_thread::sleep_for(apart);
  }
  return two[0].failure;
}

}  // namespace

TEST_CASE("a peer that does not answer ends the operation at its limit, and is named") {
  job two(1, 2, 4096, 50ms);
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
  head.change = gin::signal_change::add;
  two[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
  while (two[0].word(0, two[0].layout.done()) == 0) two.step();
  CHECK(end_of_put(two, 1ms) ==
        "rank 0: put to rank 1 in context 0: rank 1 has not answered for 50 ms, half of the "
        "kernel timeout: see what that rank says, or allow more by DEVCOMM_TIMEOUT");
}

TEST_CASE("a peer that never answered may be gone, which the end of the operation says") {
  job two(1, 2, 4096, 50ms);
  CHECK(end_of_put(two, 1ms) ==
        "rank 0: put to rank 1 in context 0: rank 1 has never answered, for 50 ms, half of the kernel timeout: it may "
        "have destroyed its device communicator (let all ranks pass a barrier on the host before that); see what it "
        "says, or allow more by DEVCOMM_TIMEOUT");
}

TEST_CASE("a rank that stands still again and again has its limits all the same") {
  job two(1, 2, 4096, 400ms);
  CHECK_THAT(end_of_put(two, 120ms), ContainsSubstring("rank 1 has never answered, for 400 ms"));
}

TEST_CASE("a rank that was stopped for long finds its peers' answers before its limits") {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    job two(seed, 2, 4096, 200ms);
    two[0].post(0, {0, 0, 0, 8, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
    for (std::size_t i = 0; i < 3 * seed; ++i) two.step();
    std::this_thread::sleep_for(500ms);
    two.settle();
    CHECK(two[0].failure.empty());
    CHECK(two[0].word(0, two[0].layout.done()) == 1);
  }
}

TEST_CASE("a get that never completes has a limit of its own, whatever else comes from its peer") {
  job two(1, 2, 4096, 400ms);
  two.net.forgetful = 0;
  two.net.forgotten_reads = 1;
  two[0].post(0, {0, 0, 0, 8, 0, 0, 0, 0}, head_of(gin::operation_kind::get, 1));
  const auto begun = std::chrono::steady_clock::now();
  std::uint64_t signals_sent = 0;
  while (two[0].failure.empty() && std::chrono::steady_clock::now() - begun < 5s) {
    gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
    head.change = gin::signal_change::add;
    if (two[0].can_post(1)) {
      two[0].post(1, {0, 0, 0, 0, 0, 1, 0, 0}, head);
      ++signals_sent;
    }
    two.step();
  }
  CHECK(two[1].signal(0, 1) > 0);
  CHECK(signals_sent > 0);
  CHECK(two[0].failure ==
        "rank 0: get from rank 1 in context 0: rank 1 has answered others, but not this one for 600 ms, three quarters "
        "of the kernel timeout: see what that rank says, or allow more by DEVCOMM_TIMEOUT");
}

TEST_CASE("copies that do not end fail the operation at its limit, and not the peer but the device is named") {
  for (const unsigned staged : {first_staged, all_staged}) {
    job two(
        1, 2, 200'000, 50ms, [](fake_network& net) { net.copies_wait = true; }, staged);
    const bool to_itself = staged == all_staged;
    two[0].post(0, {0, 100'000, 0, 100'000, 0, 0, 0, 0}, head_of(gin::operation_kind::put, to_itself ? 0 : 1));
    const auto begun = std::chrono::steady_clock::now();
    while (two[0].failure.empty() && std::chrono::steady_clock::now() - begun < 5s) two.step();
    CHECK_THAT(two[0].failure, ContainsSubstring("copies of this rank's device made no progress for 50 ms"));
    CHECK(two[1].failure.empty());
  }
}

TEST_CASE("a peer whose copies do not end has the limit of an operation of its own, whatever else it answers") {
  job two(1, 2, 4096, 200ms, {}, second_staged);
  two.net.copies_wait = true;
  two[0].post(0, {0, 0, 0, 64, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
  head.change = gin::signal_change::add;
  head.peer = 0;
  const auto begun = std::chrono::steady_clock::now();
  while (two[0].failure.empty() && std::chrono::steady_clock::now() - begun < 5s) {
    if (two[1].can_post(1)) two[1].post(1, {0, 0, 0, 0, 0, 1, 0, 0}, head);
    two.step();
  }
  CHECK(two[0].signal(0, 1) > 0);
  CHECK_THAT(two[0].failure, ContainsSubstring("put to rank 1 in context 0: rank 1 has answered others, but not this "
                                               "one for 300 ms, three quarters"));
}

TEST_CASE("peers reach bounce buffers and no other staging memory, and a rank that cannot register them says so") {
  job two(
      1, 2, 4096, 10s, [](fake_network& net) { net.registers_messages = true; }, all_staged);
  CHECK(std::count_if(two.net.memories.begin(), two.net.memories.end(),
                      [](const auto& each) { return each.second.for_peers; }) == 2);
  CHECK_THROWS_WITH(job(
                        1, 2, 4096, 10s, [](fake_network& net) { net.unregistered = 1; }, all_staged),
                    ContainsSubstring("there is no room for a window"));
}

TEST_CASE("a rank is not idle while a peer's data peer_stages, and owes no answer to one that has left meanwhile") {
  job two(3, 2, 4096, 10s, {}, second_staged);
  two.net.copies_wait = true;
  two[0].memory[5] = 'x';
  two[0].post(0, {5, 5, 0, 1, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  while (two.net.copies == 0) two.step();
  two.settle_for(5ms);
  CHECK(!two[1].engine->idle());
  two[0].engine->send_shutdown_notice();  // which it should not: its put is on its way
  two.settle_for(5ms);
  CHECK(!two[1].engine->idle());
  two.net.copies_wait = false;
  two.settle();
  CHECK(two[1].memory[5] == 'x');
  CHECK(two[1].engine->idle());
  CHECK(two[0].word(0, two[0].layout.done()) == 0);
  CHECK(two[0].engine->has_parted());
}

TEST_CASE("answers to questions that are not on their way are dropped") {
  job two(1, 2, 200'000, 10s, {}, second_staged);
  for (std::size_t i = 0; i < two[1].memory.size(); ++i) two[1].memory[i] = pattern(2, i);
  const auto tell = [&](message_kind kind) {
    fabric_message answer;
    answer.kind = kind;
    answer.secret = two[0].endpoint->own_card().secret;
    answer.device_comm = rank_of_test::first_device_comm;
    answer.sender = 1;
    answer.window = window_id;
    answer.bytes = 200'000;
    answer.sequence = 1;  // of the first fragment
    const std::size_t before = two[0].reports.size();
    fake_fabric::deliver(two.net, 0, std::as_bytes(std::span(&answer, 1)));
    static_cast<void>(two[0].step());
    REQUIRE(two[0].reports.size() == before + 1);
  };
  two.net.refuses = 1;
  two[0].post(0, {0, 0, 0, 200'000, 0, 0, 0, 0}, head_of(gin::operation_kind::get, 1));
  static_cast<void>(two[0].step());
  tell(message_kind::remote_key);
  CHECK_THAT(two[0].reports.back(), ContainsSubstring("sends the key of a window, and was not asked for it"));
  two.net.refuses = 0;
  static_cast<void>(two[0].step());  // asks
  while (!two[1].step()) two.net.step();
  static_cast<void>(two[1].step());
  two.net.refuses = 1;  // the place is on its way, and what is asked of it is not sent
  for (int i = 0; i < 50; ++i) {
    two.net.step();
    static_cast<void>(two[0].step());
  }
  tell(message_kind::staged);
  CHECK_THAT(two[0].reports.back(), ContainsSubstring("answers what it was not asked"));
  two.net.refuses = 0.3;
  two.settle();
  CHECK(two[0].word(0, two[0].layout.done()) == 1);
  CHECK(two[0].memory == two[1].memory);
}

TEST_CASE("peers that stall leave room for what goes to and comes from others") {
  struct load {
    gin::operation_kind kind;
    std::uint64_t bytes;
  };
  constexpr std::uint32_t ranks = 4;
  for (const load& each : {load{gin::operation_kind::signal, 0},
                           {gin::operation_kind::put, 8},
                           {gin::operation_kind::put, 1'500'000},
                           {gin::operation_kind::get, 1'500'000}}) {
    for (const unsigned staged : {none_staged, first_staged, second_staged, all_staged}) {
      INFO("operation " << static_cast<int>(each.kind) << " of " << each.bytes << " bytes, staged: " << staged);
      job all(
          9, ranks, 2'000'000, 60s,
          [](fake_network& net) {
            net.carried = 64;
            net.refuses = 0;
          },
          staged);
      // Peers' windows are known, so that data can be on its way.
      for (std::uint32_t peer = 1; peer < ranks; ++peer)
        all[0].post(1, {0, 0, 0, 1000, 0, 0, 0, 0}, head_of(gin::operation_kind::put, peer));
      all.settle();
      REQUIRE(all[0].word(1, all[0].layout.done()) == ranks - 1);
      all.net.stalled = {2, 3};
      for (int quiet = 0; quiet < 200;) {
        const bool posts = all[0].can_post(0);
        if (posts) {
          gin::descriptor_head head = head_of(each.kind, 2 + static_cast<std::uint32_t>(all[0].posted[0] / 4 % 2));
          if (each.kind != gin::operation_kind::get) head.change = gin::signal_change::add;
          all[0].post(0, {0, 0, 0, each.bytes, 0, 1, 0, 0}, head);
        }
        static_cast<void>(all.step());
        quiet = posts ? 0 : quiet + 1;
      }
      // There and back again, by the other context: a round of rank 1 needs an answer of rank 0's.
      for (std::uint64_t round = 1; round <= 20; ++round) {
        for (const std::uint32_t rank : {0u, 1u}) {
          gin::descriptor_head head = head_of(gin::operation_kind::put, 1 - rank);
          head.change = gin::signal_change::add;
          all[rank].post(1, {0, 0, 0, round % 2 == 0 ? 8u : 100'000u, 0, 1, 0, 0}, head);
        }
        const auto begun = std::chrono::steady_clock::now();
        const auto is_over = [&] {
          return all[0].signal(0, 1) == round && all[1].signal(0, 1) == round &&
                 all[0].word(1, all[0].layout.done()) == ranks - 1 + round &&
                 all[1].word(1, all[1].layout.done()) == round;
        };
        while (!is_over() && std::chrono::steady_clock::now() - begun < 2s) static_cast<void>(all.step());
        INFO("round " << round);
        REQUIRE(is_over());
      }
      all.net.stalled.clear();
      all.settle();
      CHECK(all[0].word(0, all[0].layout.done()) == all[0].posted[0]);
      CHECK(all[0].failure == "");
    }
  }
}

TEST_CASE("operations that wait their turn have no limit while their peer answers") {
  // With names, the second of two fragments brings nothing on before the first has come.
  job two(1, 2, 2'000'000, 400ms, [](fake_network& net) { net.names_writes = false; });
  two.net.may_move = 0;
  two[0].post(0, {0, 0, 0, 2'000'000, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
  head.change = gin::signal_change::add;
  head.covers = gin::strength::strong;
  for (int i = 0; i < 4; ++i) two[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);  // they wait for the put
  head.peer = 0;
  for (int fragments = 0; fragments < 2; ++fragments) {
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < 450ms) {  // in which the peer has other things to say
      if (two[1].can_post(0)) two[1].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
      two.step();
    }
    two.net.may_move = 3;  // one of the two fragments, or both
  }
  two.net.may_move = 1000;
  two.settle();
  CHECK(two[0].failure.empty());
  CHECK(two[0].word(0, two[0].layout.done()) == 5);
  CHECK(two[1].signal(0) == 4);
}

TEST_CASE("memory that the peer cannot register fails the operation by name and cause, and nothing else") {
  job three(1, 3, 4096);
  three.net.unregistered = 1;
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
  head.change = gin::signal_change::add;
  for (const auto kind : {gin::operation_kind::put, gin::operation_kind::get}) {
    const std::size_t poster = kind == gin::operation_kind::put ? 0 : 2;
    three[poster].post(0, {0, 0, 0, 8, 0, 0, 0, 0}, head_of(kind, 1));
    three.settle();
    CHECK_THAT(three[poster].failure, ContainsSubstring("rank 1 cannot register window 7 with a fake fabric: error 12; "
                                                        "see what it says on its standard error"));
    REQUIRE(!three[1].reports.empty());
    CHECK(three[1].reports.back() ==
          "rank " + std::to_string(poster) + " is refused window 7: there is no room for a window");
    // The refusing rank goes on.
    head.peer = 2 - static_cast<std::uint32_t>(poster);
    if (kind == gin::operation_kind::put) {
      three[1].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
      three.settle();
      CHECK(three[2].signal(0) == 1);
    }
  }
  CHECK(three[1].failure.empty());
}

TEST_CASE("memory of this rank that cannot be registered fails the operation by name") {
  job two(1, 2, 4096);
  two.net.unregistered = 0;
  two[0].post(0, {0, 0, 0, 8, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  two.settle();
  CHECK(two[0].failure == "rank 0: put to rank 1 in context 0: there is no room for a window");
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 0);
  head.change = gin::signal_change::add;
  two[1].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
  two.settle();
  CHECK(two[0].signal(0) == 1);  // it still answers
}

TEST_CASE("what a rank has acknowledged reaches its peers before it is gone, also where closing loses messages") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    job three(seed, 3, 4096);
    three.net.closing_loses = true;
    gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
    head.change = gin::signal_change::add;
    three[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
    three[2].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
    while (three[1].signal(0) != 2 || !three[1].engine->idle()) three.step();
    three[1].engine->send_shutdown_notice();
    CHECK(!three[1].engine->has_parted());
    while (!three[1].engine->idle() || !three[1].engine->has_parted()) three.step();
    three[1].die();
    three.all.erase(three.all.begin() + 1);
    three.settle();
    for (const auto& each : three.all) {
      CHECK(each->failure.empty());
      CHECK(each->word(0, each->layout.done()) == 1);
    }
  }
}

TEST_CASE("ranks that end together do not wait for each other's answers") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    job two(seed, 2, 4096);
    two.net.closing_loses = true;
    gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
    head.change = gin::signal_change::add;
    two[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
    two.settle();
    for (const auto& each : two.all) each->engine->send_shutdown_notice();
    two.settle();
    for (const auto& each : two.all) {
      CHECK(each->engine->has_parted());
      CHECK(each->engine->idle());
      CHECK(each->failure.empty());
    }
  }
}

TEST_CASE("full fragments to one peer have their turn beside any number of smaller ones to others") {
  constexpr std::uint32_t others = 40;  // more than have a fragment in flight at a time
  job all(1, 2 + others, 1'200'000);
  all.net.refuses = 0;
  constexpr std::uint64_t small = 500'000;
  std::uint32_t posted = 0;
  const auto post_small = [&] {
    if (!all[0].can_post(1)) return;
    all[0].post(1, {0, 0, 0, small, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 2 + posted++ % others));
  };
  while (posted < others) {
    post_small();
    all.settle();  // places are known
  }
  for (int i = 0; i < 1000; ++i) {
    post_small();
    static_cast<void>(all[0].step());
  }
  CHECK(all.net.in_flight + (std::uint64_t{1} << 20) > fabric_engine::max_bytes);
  all[0].post(0, {0, 0, 0, 1'100'000, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  const std::uint64_t before = all.net.moved;
  while (all[0].word(0, all[0].layout.done()) != 1 && all.net.moved - before < 400 * small) {
    post_small();
    all.step();
    static_cast<void>(all[0].step());  // whatever is free is taken at once
  }
  CHECK(all.net.moved - before < 200 * small);
}

TEST_CASE("the laws hold whatever a provider wants of memory, and however little it transfers at a time") {
  // Of tcp;ofi_rxm, shm, verbs and EFA.
  for (const auto& wants : {std::pair(false, false), {false, true}, {true, true}, {true, false}}) {
    for (std::uint32_t seed = 100; seed < 105; ++seed) {
      CHECK(run_program(seed, [&](fake_network& net) {
              net.registers_messages = wants.first;
              net.peers_use_addresses = wants.second;
              net.largest_transfer = 70'001;
            }).empty());
      CHECK(run_program(
                seed,
                [&](fake_network& net) {
                  net.registers_messages = wants.first;
                  net.peers_use_addresses = wants.second;
                  net.largest_transfer = 30'001;
                },
                all_staged)
                .empty());
    }
  }
}

TEST_CASE("a rank that leaves in peace disturbs nobody, and puts to it fail by name") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    job two(seed, 2, 4096);
    gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
    head.change = gin::signal_change::add;
    two[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
    while (two[1].signal(0) == 0) two.step();
    two[1].engine->send_shutdown_notice();  // the acknowledgment may still be on its way
    two.settle();
    CHECK(two[0].failure.empty());
    CHECK(two[0].word(0, two[0].layout.done()) == 1);
    two[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
    two.settle();
    CHECK_THAT(two[0].failure, ContainsSubstring("rank 0: signal to rank 1 in context 0: that rank has destroyed its "
                                                 "device communicator: let all ranks pass a barrier"));
  }
}

TEST_CASE("a put that its peer has acknowledged is done there, whatever the fabric says of it once the peer has left") {
  for (const unsigned staged : {none_staged, first_staged, second_staged, all_staged}) {
    for (const std::string error : {"", "the connection is closed"}) {
      INFO("staged: " << staged << ", error: " << error);
      job two(6, 2, 4096, 10s, {}, staged);
      gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
      head.change = gin::signal_change::add;
      two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
      two.settle();
      two.net.keeps_completions = true;
      two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
      while (two[1].signal(0) != 2) two.step();
      two[1].engine->send_shutdown_notice();
      const auto late = std::chrono::steady_clock::now() + 5s;
      while (!two[1].engine->has_parted() && std::chrono::steady_clock::now() < late) two.step();
      CHECK(two[1].engine->has_parted());
      two.settle_for(5ms);
      CHECK(two[0].failure == "");
      CHECK(two[0].word(0, two[0].layout.done()) == 1);  // the fabric may still read its source
      CHECK(!two[0].engine->idle());
      two.net.completion_error = error;
      two.net.keeps_completions = false;
      two.settle();
      CHECK(two[0].failure == "");
      CHECK(two[0].word(0, two[0].layout.done()) == 2);
      CHECK(two[0].engine->idle());
    }
  }
}

TEST_CASE("a put that its peer has, and whose source the fabric keeps for ever, fails with the fabric's name") {
  job two(6, 2, 4096, 200ms);
  gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
  head.change = gin::signal_change::add;
  two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
  two.settle();
  two.net.keeps_completions = true;
  two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
  while (two[1].signal(0) != 2) two.step();
  CHECK(!two[0].engine->is_done_by_peers());
  two[1].engine->send_shutdown_notice();
  two.settle_for(50ms);
  CHECK(two[0].failure == "");
  CHECK(two[0].engine->is_done_by_peers());  // so that the end of a rank does not wait for it
  two.settle_for(300ms);
  CHECK_THAT(two[0].failure, ContainsSubstring("has not said for 200 ms that its source may be written again, though "
                                               "rank 1 has the data and has left"));
}

TEST_CASE("memory is kept while operations move data there, and known no longer when it is forgotten") {
  job two(5, 2, 200'000);
  two.net.refuses = 0;
  two[0].post(0, {0, 0, 0, 200'000, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  while (two.net.in_flight == 0) two.step();
  two[0].listing.reset();
  CHECK(two[0].endpoint->forget(window_id));
  two.settle();
  CHECK(two[0].failure.empty());
  CHECK(!two[0].endpoint->forget(window_id));
  two[0].post(0, {0, 0, 0, 8, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  two.settle();
  CHECK_THAT(two[0].failure, ContainsSubstring("this rank has no window 7"));
}

TEST_CASE("memory that is freed while data moves there is not touched any more") {
  for (const auto kind : {gin::operation_kind::get, gin::operation_kind::put}) {
    job two(6, 2, 200'000);
    two.net.refuses = 0;
    two[0].post(0, {0, 0, 0, 200'000, 0, 0, 0, 0}, head_of(kind, 1));
    while (two.net.in_flight == 0) two.step();
    two[0].listing.reset();
    two[0].endpoint->take_away(window_id);
    CHECK_THAT(two[0].failure, ContainsSubstring("this rank freed window 7 meanwhile"));
    two[0].memory.assign(two[0].memory.size(), 'x');
    const std::vector<char> before = two[1].memory;
    two.settle();
    CHECK(two[0].memory == std::vector<char>(two[0].memory.size(), 'x'));
    CHECK(two[1].memory == before);
    CHECK(two[0].engine->idle());
    CHECK(!two[0].step());
  }
}

TEST_CASE("a window that was prepared is registered, once, and one that is staged or refused is not") {
  for (const bool refused : {false, true}) {
    job two(7, 2, 4096, 10s, {}, second_staged);
    if (refused) two.net.unregistered = 0;
    const std::size_t before = two.net.memories.size();
    for (int i = 0; i < 2; ++i) {
      for (const auto& each : two.all) each->endpoint->prepare(window_id);
      CHECK(two.net.memories.size() == before + (refused ? 0 : 1));
    }
    CHECK((two[0].failure.empty() && two[0].reports.empty()));
    two[0].endpoint->prepare(window_id + 1);  // which is not there
    two[0].listing.reset();
    CHECK(!two[0].endpoint->forget(window_id));
    CHECK(two.net.memories.size() == before);
  }
}

TEST_CASE("registrations end with their windows and with their engines") {
  job two(7, 2, 4096);
  const std::size_t without_windows = two.net.memories.size();
  for (std::uint32_t i = 0; i < 20; ++i) {
    two[0].post(0, {0, 0, 0, 100, 0, 0, 0, 0},
                head_of(i % 2 == 0 ? gin::operation_kind::put : gin::operation_kind::get, 1));
    two.settle();
    CHECK(two.net.memories.size() == without_windows + 2);
    for (const auto& each : two.all) {
      each->listing.reset();
      CHECK(!each->endpoint->forget(each->window));
      each->window = window_id + 1 + i;
      each->listing = each->windows->list(each->window, {each->memory.data(), each->memory.size(), "window 'test'"});
    }
    CHECK(two.net.memories.size() == without_windows);
  }
  for (const auto& each : two.all) each->die();
  CHECK(two.net.memories.empty());
}

TEST_CASE("an error of which the fabric does not say whose it is ends the proxy's thread, with its text") {
  job two(1, 2, 64);
  two.net.endpoints[0].over.push_back({0, 0, "the progress thread gave up"});
  try {
    static_cast<void>(two[0].step());
    FAIL("nobody's completion was taken");
  } catch (const host::system_error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("the progress thread gave up"));
  }
}

namespace {

/// A signal and a put from rank 0 to rank 1, whose messages have trouble; whether both are complete in time.
bool both_complete(job& two) {
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
  head.change = gin::signal_change::add;
  two[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
  two[0].post(0, {0, 0, 0, 8, 0, 0, 0, 0}, head_of(gin::operation_kind::put, 1));
  const auto begun = std::chrono::steady_clock::now();
  const std::uint32_t done = two[0].layout.done();
  while (two[0].word(0, done) != 2 && std::chrono::steady_clock::now() - begun < 5s) two.step();
  two.settle();
  return two[0].word(0, done) == 2 && two[0].engine->idle() && two[1].engine->idle();
}

}  // namespace

TEST_CASE("an answer carries the acknowledgment of what it answers") {
  job two(1, 2, 64, 10s, [](fake_network& net) { net.refuses = 0; });
  const auto signal = [&](std::size_t from) {
    gin::descriptor_head head = head_of(gin::operation_kind::signal, from == 0 ? 1 : 0);
    head.change = gin::signal_change::add;
    two[from].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
  };
  signal(0);
  static_cast<void>(two[0].step());
  while (two.net.step()) {
  }
  CHECK(two.net.sent == 1);
  signal(1);
  static_cast<void>(two[1].step());
  CHECK(two[1].signal(0) == 1);
  CHECK(two.net.sent == 2);  // not three
  while (two.net.step()) {
  }
  static_cast<void>(two[0].step());
  CHECK(two[0].signal(0) == 1);
  CHECK(two[0].word(0, two[0].layout.done()) == 1);
  two.settle();
  CHECK(two.net.sent == 3);  // what has no answer is acknowledged by itself
  CHECK(two[1].word(0, two[1].layout.done()) == 1);
}

TEST_CASE("an acknowledgment or an answer that could not be sent, or is lost, is sent again") {
  for (int times = 1; times <= 3; ++times) {
    INFO(times << " times");
    job refusing(static_cast<std::uint32_t>(times), 2, 64);
    refusing.net.refused_sender = 1;
    refusing.net.refused_sends = times;
    CHECK(both_complete(refusing));
    CHECK(refusing[0].failure.empty());
    job losing(static_cast<std::uint32_t>(times), 2, 64);
    losing.net.losing_sender = 1;
    losing.net.lost_sends = times;
    CHECK(both_complete(losing));
    CHECK(losing[0].failure.empty());
  }
}

TEST_CASE("a rank owes nothing to one that has left") {
  job two(4, 2, 64);
  two.net.refused_sender = 1;
  two.net.refused_sends = 1 << 30;
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 1);
  head.change = gin::signal_change::add;
  two[0].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
  while (two[1].signal(0) == 0) two.step();
  two.settle();
  CHECK(!two[1].engine->idle());
  CHECK(two[1].engine->is_done());
  two[0].engine->send_shutdown_notice();
  two.settle();
  CHECK(two[1].engine->idle());
}

TEST_CASE("a rank whose shutdown notice fails owes its peer no acknowledgment") {
  job two(3, 2, 4096);
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 0);
  head.change = gin::signal_change::add;
  two[1].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
  two.settle();
  two[1].die();  // the peer is killed
  two.all.pop_back();
  two.net.losing_sender = 0;
  two.net.lost_sends = 1 << 30;
  two[0].engine->send_shutdown_notice();
  two.settle();
  CHECK(two[0].engine->idle());
  CHECK(two[0].engine->has_parted());
  CHECK((1 << 30) - two.net.lost_sends == 1);
}

TEST_CASE("an acknowledgment that the fabric does not take is no work") {
  job two(3, 2, 4096);
  gin::descriptor_head head = head_of(gin::operation_kind::signal, 0);
  head.change = gin::signal_change::add;
  two[1].post(0, {0, 0, 0, 0, 0, 1, 0, 0}, head);
  while (two[0].signal(0) == 0) {
    two.net.refuses = 0;
    static_cast<void>(two[1].step());
    two.net.step();
    two.net.refuses = 1;
    static_cast<void>(two[0].step());
  }
  std::this_thread::sleep_for(1ms);  // it is due
  int worked = 0;
  for (int i = 0; i < 100; ++i) worked += two[0].step() ? 1 : 0;
  CHECK(worked == 0);
}

TEST_CASE("messages of strangers, and malformed ones, are dropped and reported, and change nothing") {
  job two(2, 2, 64);
  const fabric_secret secret = two[1].endpoint->own_card().secret;
  fabric_message good;
  good.secret = secret;
  good.device_comm = rank_of_test::first_device_comm;
  good.kind = message_kind::change;
  good.signal_change = gin::signal_change::add;
  good.signal_value = 5;
  const auto send = [&](const void* bytes, std::size_t count) {
    fake_fabric::deliver(two.net, 1, {static_cast<const std::byte*>(bytes), count});
    two.settle();
  };
  const auto altered = [&](auto change) {
    fabric_message other = good;
    change(other);
    send(&other, sizeof other);
  };
  altered([](fabric_message& m) { m.secret[1] ^= 1; });
  altered([](fabric_message& m) { m.format += 1; });
  altered([](fabric_message& m) { m.sender = 2; });
  altered([](fabric_message& m) { m.kind = static_cast<message_kind>(99); });
  altered([](fabric_message& m) { m.sequence = 1u << 20; });
  altered([](fabric_message& m) { m.value_bytes = 9; });
  send(&good, sizeof good - 1);
  CHECK(two[1].reports.size() == 7);
  CHECK_THAT(two[1].reports[0], ContainsSubstring("does not know the secret"));
  std::vector<std::byte> longer(sizeof good + 100);
  std::memcpy(longer.data(), &good, sizeof good);
  send(longer.data(), longer.size());
  CHECK_THAT(two[1].reports[7], ContainsSubstring("the message is too long; further ones are dropped in silence"));
  CHECK(two[1].signal(0) == 0);
  CHECK(two[1].failure.empty());
  send(&good, sizeof good);
  CHECK(two[1].signal(0) == 5);
  send(&good, sizeof good);  // the same again
  CHECK(two[1].signal(0) == 5);

  job carrying(2, 2, 64, 10s, [](fake_network& net) { net.carried = 64; });
  good.secret = carrying[1].endpoint->own_card().secret;
  good.device_comm = rank_of_test::first_device_comm;
  good.window = window_id;
  std::vector<std::byte> both(sizeof good + 64, std::byte{7});
  const auto send_both = [&](std::uint64_t bytes, std::uint32_t value_bytes, std::size_t carried) {
    good.bytes = bytes;
    good.value_bytes = value_bytes;
    std::memcpy(both.data(), &good, sizeof good);
    fake_fabric::deliver(carrying.net, 1, std::span(both).first(sizeof good + carried));
    carrying.settle();
  };
  send_both(8, 0, 7);
  send_both(7, 0, 8);
  send_both(64, 0, 0);
  send_both(0, 0, 64);
  send_both(~std::uint64_t{0}, 0, 64);
  send_both(8, 8, 8);
  CHECK(carrying[1].reports.size() == 6);
  CHECK_THAT(carrying[1].reports[0], ContainsSubstring("has 151 bytes instead of 152"));
  CHECK_THAT(carrying[1].reports[5], ContainsSubstring("has a value and payload"));
  CHECK((carrying[1].memory[0] == 0 && carrying[1].signal(0) == 0));
  send_both(8, 0, 8);
  CHECK((carrying[1].memory[7] == 7 && carrying[1].memory[8] == 0 && carrying[1].signal(0) == 5));
}

TEST_CASE("no bytes that a peer may send do harm") {
  const bool stages = GENERATE(false, true);
  const std::size_t carried = GENERATE(std::size_t{0}, std::size_t{24});
  std::mt19937 random(7);
  job two(
      4, 2, 64, 10s, [&](fake_network& net) { net.carried = carried; }, stages ? all_staged : none_staged);
  fabric_message base;
  base.secret = two[1].endpoint->own_card().secret;
  base.device_comm = rank_of_test::first_device_comm;
  for (int i = 0; i < 20'000; ++i) {
    std::byte room[sizeof base + 32] = {};
    const std::span<std::byte> bytes(room, sizeof base + (carried == 0 ? 0 : random() % 32));
    fabric_message message = base;
    message.kind = static_cast<message_kind>(random() % 12);
    message.write = static_cast<payload_write>(random() % 4);
    if (random() % 2 == 0) message.bytes = bytes.size() - sizeof base;
    std::memcpy(room, &message, sizeof message);
    const std::size_t head = offsetof(fabric_message, sequence);
    for (auto changes = random() % 6; changes > 0; --changes) {
      const std::size_t at = head + random() % (bytes.size() - head);
      bytes[at] = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 4);
    }
    fake_fabric::deliver(two.net, 1, bytes);
    if (i % 4 == 0) {
      const auto sequence = static_cast<std::uint32_t>(random() % 80);
      two.net.endpoints.at(1).over.push_back(
          {0,
           0,
           {},
           write_name{static_cast<std::uint32_t>(random() % 3), rank_of_test::first_device_comm, sequence}.pack(
               base.secret)});
    }
    if (i % 16 == 0) two.settle();
  }
  two.settle();
  CHECK(!two[1].reports.empty());
}

TEST_CASE("a rank does not wait for the writes of one that has failed and left") {
  for (const unsigned staged : {none_staged, second_staged}) {
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
      INFO("staged " << staged << ", seed " << seed);
      job two(seed, 2, 4096, 10s, {}, staged);
      gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
      head.change = gin::signal_change::add;
      two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
      two.settle();
      REQUIRE(two[1].signal(0) == 1);
      two.net.fails_to = 1;
      two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
      two.settle();
      CHECK_THAT(two[0].failure, ContainsSubstring("the link is down"));
      two[0].engine->send_shutdown_notice();
      two.settle();
      CHECK(two[0].engine->has_parted());
      CHECK(two[1].signal(0) == 1);
      CHECK(two[1].failure.empty());
      CHECK(two[1].engine->idle());
    }
  }
}

TEST_CASE("a window that the fabric writes is freed between a change and its write, and the put fails by that name") {
  for (const bool taken : {false, true}) {
    job two(2, 2, 4096);
    gin::descriptor_head head = head_of(gin::operation_kind::put, 1);
    head.change = gin::signal_change::add;
    two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
    two.settle();
    two.net.may_move = 0;
    for (int i = 0; i < 3; ++i) two[0].post(0, {0, 0, 0, 64, 0, 1, 0, 0}, head);
    two.settle_for(20ms);
    two[1].listing.reset();
    if (taken) {
      two[1].endpoint->take_away(window_id);
    } else {
      CHECK(!two[1].endpoint->forget(window_id));
    }
    two.net.may_move = 100;
    two.settle();
    CHECK(two[1].signal(0) == 1);
    CHECK(two[1].engine->idle());
    CHECK_THAT(two[0].failure, ContainsSubstring("put to rank 1 in context 0: rank 1 has no window 7"));
  }
}
