/// The steps that GIN's operations take between two processes of this host, without a GPU: a message of the fabric, and
/// what the proxies do around it. A thread of each process plays the kernel and the proxy in turns, so that nothing is
/// waited for but the network. `network_steps --help` says how.
#include "../../tests/support/post_descriptor.hpp"
#include "common/two_processes.hpp"
#include "device/backend.hpp"
#include "transport/fabric_engine.hpp"
#include "transport/libfabric.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace devcomm;
using namespace devcomm::host::detail;
using benchmark::side_channel;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t largest = 8u << 20;
constexpr std::uint32_t depth = 1024;
constexpr std::uint32_t window_id = 7;
constexpr std::uint32_t arrived = 0;
constexpr int takes = 7;

using options = benchmark::two_process_options;

endpoint_wish wish_of(const options& with) {
  endpoint_wish wish;
  wish.provider = with.provider;
  if (with.provider.find("tcp") != std::string::npos) wish.address = "127.0.0.1";
  wish.peers = 2;
  return wish;
}

class host_pages final : public host_memory {
 public:
  explicit host_pages(std::size_t bytes) : words_(bytes / sizeof(std::uint64_t) + 1) {}
  [[nodiscard]] void* data() const noexcept override { return words_.data(); }

 private:
  mutable std::vector<std::uint64_t> words_;
};

/// Of devices that there are none of: only host memory.
class only_host final : public memory_port {
 public:
  [[nodiscard]] std::size_t granularity(int) override { refuse(); }
  [[nodiscard]] std::unique_ptr<physical_memory> create_physical(int, std::size_t, handle_kind) override { refuse(); }
  [[nodiscard]] std::unique_ptr<address_range> reserve(std::size_t) override { refuse(); }
  [[nodiscard]] std::unique_ptr<host_memory> allocate_host(int, std::size_t bytes) override {
    return std::make_unique<host_pages>(bytes);
  }
  [[nodiscard]] std::unique_ptr<opened_memory> allocate_device(int, std::size_t) override { refuse(); }
  void zero(int, void*, std::size_t, std::chrono::milliseconds) override { refuse(); }
  void copy(int, void*, const void*, std::size_t, std::chrono::milliseconds) override { refuse(); }
  void read(int, void*, const void*, std::size_t, std::chrono::milliseconds) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("there is no device"); }
};

/// Microseconds of the median of `takes` calls of `run`.
template <class Run>
double median(const Run& run) {
  std::vector<double> all;
  for (int i = 0; i < takes; ++i) {
    const auto start = clock_type::now();
    run();
    all.push_back(std::chrono::duration<double, std::micro>(clock_type::now() - start).count());
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

/// One way of a ping-pong of the fabric's messages, as large as those of proxies.
double message_one_way(const options& with, const side_channel& beside, bool first) {
  const std::unique_ptr<fabric> mine = open_libfabric(wish_of(with));
  std::array<fabric_address, 2> all{};
  all[first ? 0 : 1] = mine->address();
  all[first ? 1 : 0] = beside.swap(mine->address());
  std::array<std::array<std::byte, sizeof(fabric_message)>, 17> buffers{};
  const auto memory = mine->add_buffers(std::as_writable_bytes(std::span(buffers)));
  mine->connect(all);
  constexpr std::uint64_t sends = 16;
  const auto must = [](bool taken) {
    if (!taken) throw std::runtime_error("the fabric takes no more");
  };
  for (std::uint64_t i = 0; i < sends; ++i) must(mine->receive(buffers[i], *memory, i));
  int received = 0;
  int sent = 0;
  const auto poll = [&] {
    std::array<fabric_completion, 16> over;
    for (const fabric_completion& each : std::span(over).first(mine->poll(over))) {
      if (!each.error.empty()) throw std::runtime_error(each.error);
      ++(each.token == sends ? sent : received);
      if (each.token != sends) must(mine->receive(buffers[each.token], *memory, each.token));
    }
  };
  int begun = 0;
  int awaited = 0;
  const auto send = [&] {
    ++begun;
    while (!mine->send(first ? 1 : 0, buffers[sends], *memory, sends)) poll();
  };
  const auto lap = [&] {
    for (int i = 0; i < with.rounds; ++i) {
      if (first) send();
      ++awaited;
      while (received < awaited) poll();
      if (!first) send();
    }
    while (sent < begun) poll();
  };
  lap();
  beside.meet(poll);
  const double one_way = median(lap) / (2 * with.rounds);
  beside.meet(poll);
  return one_way;
}

/// A rank: its queue, as kernels see it, and its proxy's engine.
class rank {
 public:
  rank(const options& with, const side_channel& beside, bool first)
      : peer_(first ? 1u : 0u), memory_(2 * largest), layout_{2, 1, 0} {
    network_request asked{};
    asked.contexts = 1;
    asked.peers = 2;
    asked.signals = 1;
    asked.depth = depth;
    queues_.push_back(std::make_unique<network_queue>(devices_, words_, 0, asked));
    listing_ = windows_->list(window_id, {memory_.data(), memory_.size(), "window 'measured'", false});
    const auto fail = [this](const std::string& text) { failure_ = text; };
    endpoint_ = std::make_unique<fabric_endpoint>(
        fabric_endpoint::surroundings{first ? 0 : 1, windows_, fail, fabric_endpoint::carried_among(2)},
        open_libfabric(wish_of(with)));
    std::vector<fabric_endpoint::card> cards(2);
    cards[first ? 0 : 1] = endpoint_->own_card();
    cards[peer_] = beside.swap(endpoint_->own_card());
    endpoint_->connect(cards);
    engine_ = std::make_unique<fabric_engine>(fabric_engine::surroundings{0, queues_, fail, std::chrono::seconds(10)},
                                              *endpoint_);
    engine_->attach();
  }
  ~rank() { endpoint_->close({}); }

  [[nodiscard]] char* source() { return memory_.data(); }
  [[nodiscard]] const char* destination() const { return memory_.data() + largest; }

  void step() {
    static_cast<void>(endpoint_->poll());
    static_cast<void>(engine_->step());
    if (!failure_.empty()) throw std::runtime_error(failure_);
  }
  /// As a kernel does.
  void post(gin::operation_kind kind, std::size_t bytes, bool signals) {
    while (posted_ - word(layout_.consumed()) >= depth) step();
    gin::descriptor what{};
    what.remote = largest;
    what.windows = std::uint64_t{window_id} << 32 | window_id;
    what.bytes = bytes;
    what.signal_value = 1;
    const auto change = signals ? gin::signal_change::add : gin::signal_change::none;
    const auto value_bytes = kind == gin::operation_kind::put_value ? static_cast<std::uint32_t>(bytes) : 0u;
    if (value_bytes != 0) std::memcpy(&what.value, source(), bytes);
    const gin::descriptor_head head{kind, change, gin::strength::weak, false, value_bytes, peer_};
    test::post_descriptor(queues_[0]->record().ring, posted_++, depth, what, head);
  }
  /// Until one signal more has come.
  void wait_signal() {
    ++awaited_;
    while (word(layout_.signal(arrived)) < awaited_) step();
  }
  /// Until all that was posted is complete.
  void flush() {
    while (word(layout_.done()) < posted_) step();
  }
  void meet(const side_channel& beside) {
    beside.meet([this] { step(); });
  }

 private:
  [[nodiscard]] std::uint64_t word(std::uint32_t index) { return words_.load(queues_[0]->record().words + index); }

  std::uint32_t peer_;
  only_host devices_;
  network_port words_;
  std::vector<char> memory_;
  gin::queue_layout layout_;
  std::shared_ptr<window_table> windows_ = std::make_shared<window_table>();
  std::unique_ptr<window_table::listing> listing_;
  std::vector<std::unique_ptr<network_queue>> queues_;
  std::uint64_t posted_ = 0;
  std::uint64_t awaited_ = 0;
  std::string failure_;
  std::unique_ptr<fabric_endpoint> endpoint_;
  std::unique_ptr<fabric_engine> engine_;
};

double ping_pong(rank& mine, const side_channel& beside, bool first, gin::operation_kind kind, std::size_t bytes,
                 int rounds) {
  const auto lap = [&] {
    for (int i = 0; i < rounds; ++i) {
      if (first) mine.post(kind, bytes, true);
      mine.wait_signal();
      if (!first) mine.post(kind, bytes, true);
    }
    mine.flush();
  };
  lap();
  mine.meet(beside);
  const double one_way = median(lap) / (2 * rounds);
  mine.meet(beside);
  return one_way;
}

/// Of one among many.
double stream(rank& mine, const side_channel& beside, bool first, gin::operation_kind kind, std::size_t bytes,
              int rounds) {
  const auto lap = [&] {
    if (first) {
      for (int i = 0; i < rounds; ++i) mine.post(kind, bytes, i + 1 == rounds);
      mine.flush();
    } else {
      mine.wait_signal();
    }
    mine.meet(beside);
  };
  lap();
  return median(lap) / rounds;
}

void check(const rank& mine, std::size_t bytes, char expected) {
  if (std::count(mine.destination(), mine.destination() + bytes, expected) != static_cast<std::ptrdiff_t>(bytes))
    throw std::runtime_error("wrong bytes came");
}

void run(const options& with, const side_channel& beside, bool first) {
  const auto print = [&](const char* what, std::size_t bytes, double us) {
    if (first) std::printf("%-40s %9zu %10.2f %9.2f\n", what, bytes, us, static_cast<double>(bytes) / us * 1e-3);
    std::fflush(stdout);
  };
  if (first)
    std::printf(
        "# %s, two processes, windows in host memory, no GPU; median of %d measurements\n"
        "# %-38s %9s %10s %9s\n",
        with.provider.c_str(), takes, "", "bytes", "us", "GB/s");
  print("message of the fabric, one way", sizeof(fabric_message), message_one_way(with, beside, first));
  rank mine(with, beside, first);
  print("signal, one way", 0, ping_pong(mine, beside, first, gin::operation_kind::signal, 0, with.rounds));
  char round = first ? 1 : 2;
  const auto measured = [&](const char* what, gin::operation_kind kind, std::size_t bytes, const auto& how) {
    const double scale = std::min(1.0, 65536.0 / static_cast<double>(bytes));
    round = static_cast<char>(round + 4);
    std::memset(mine.source(), round, bytes);
    print(what, bytes, how(mine, beside, first, kind, bytes, std::max(2, static_cast<int>(with.rounds * scale))));
    if (!first) check(mine, bytes, static_cast<char>(round - 1));
    mine.meet(beside);  // before the next bytes come
  };
  measured("value with signal, one way", gin::operation_kind::put_value, 8, ping_pong);
  for (const std::size_t bytes : {64ul, 4096ul, 65536ul})
    if (bytes <= with.end) measured("put with signal, one way", gin::operation_kind::put, bytes, ping_pong);
  measured("value among many", gin::operation_kind::put_value, 8, stream);
  for (const std::size_t bytes : {64ul, 65536ul, largest})
    if (bytes <= with.end) measured("put among many", gin::operation_kind::put, bytes, stream);
}

}  // namespace

int main(int argc, char** argv) {
  return benchmark::measure_two_processes(
      argc, argv, "network_steps", "GIN's proxies between two processes of this host, without a GPU", largest, run);
}
