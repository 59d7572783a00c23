/// Messages that arrive over the fabric at the proxy of a rank, from strangers and from peers that have lost their
/// minds, while operations of the rank are on their way to them.
///
/// The input is a list of steps: an operation that the rank posts, a completion of the fabric, or a message: any bytes,
/// or one with a sound head, so that what lies behind it is reached.
#include "../support/post_descriptor.hpp"
#include "fuzz.hpp"

#include <device/backend.hpp>
#include <transport/fabric_engine.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace devcomm;
using namespace devcomm::host::detail;
using namespace devcomm_fuzz;

namespace {

constexpr std::uint32_t ranks = 3;
constexpr std::uint32_t depth = 8;
constexpr std::uint32_t signals = 2;
constexpr std::uint32_t contexts = 2;
constexpr std::uint32_t device_comm = 1;
constexpr std::uint32_t window_id = 1;
constexpr std::uint32_t device_window_id = 2;  // which the fabric does not reach
constexpr std::size_t room = 64;
constexpr std::size_t carried = room / 2;  // bytes of a put that messages carry, at most

class heap final : public memory_port {
 public:
  [[nodiscard]] std::size_t granularity(int) override { return 1; }
  [[nodiscard]] std::unique_ptr<physical_memory> create_physical(int, std::size_t, handle_kind) override {
    return nullptr;
  }
  [[nodiscard]] std::unique_ptr<address_range> reserve(std::size_t) override { return nullptr; }
  [[nodiscard]] std::unique_ptr<host_memory> allocate_host(int, std::size_t bytes) override {
    struct words final : host_memory {
      explicit words(std::size_t count) : own(count) {}
      [[nodiscard]] void* data() const noexcept override { return const_cast<std::uint64_t*>(own.data()); }
      std::vector<std::uint64_t> own;
    };
    return std::make_unique<words>(bytes / sizeof(std::uint64_t));
  }
  [[nodiscard]] std::unique_ptr<opened_memory> allocate_device(int, std::size_t) override { return nullptr; }
  void zero(int, void*, std::size_t, std::chrono::milliseconds) override {}
  void copy(int, void*, const void*, std::size_t, std::chrono::milliseconds) override {}
  void read(int, void*, const void*, std::size_t, std::chrono::milliseconds) override {}
};

/// Copies that are over with the next look at them.
class copies final : public copy_engine {
 public:
  [[nodiscard]] std::uint64_t begin_read(void* host, const void* on_device, std::size_t bytes) override {
    std::memcpy(host, on_device, bytes);
    return begun_++;
  }
  [[nodiscard]] std::uint64_t begin_write(void* on_device, const void* host, std::size_t bytes) override {
    std::memcpy(on_device, host, bytes);
    return begun_++;
  }
  void poll() override { over_ = begun_; }
  [[nodiscard]] bool is_done(std::uint64_t number) const override { return number < over_; }

 private:
  std::uint64_t begun_ = 0;
  std::uint64_t over_ = 0;
};

/// What the rank has given to its fabric, which nobody is behind.
struct wire {
  std::deque<std::pair<std::span<std::byte>, std::uint64_t>> buffers;
  std::deque<std::uint64_t> given;
  std::deque<fabric_completion> over;
  std::size_t sent = 0;
};

class dead_end final : public fabric {
 public:
  explicit dead_end(wire& own) : wire_(own) {}
  [[nodiscard]] std::string name() const override { return "a dead end"; }
  [[nodiscard]] fabric_address address() const override { return {}; }
  void connect(std::span<const fabric_address>) override {}
  [[nodiscard]] devcomm::host::capability to_devices() const override { return {}; }
  [[nodiscard]] std::unique_ptr<fabric_region> add_memory(char*, std::size_t, std::optional<int>) override {
    return std::make_unique<region>();
  }
  [[nodiscard]] std::unique_ptr<fabric_region> add_buffers(std::span<std::byte>) override {
    return std::make_unique<region>();
  }
  [[nodiscard]] bool names_writes() const override { return true; }
  [[nodiscard]] std::uint64_t largest_transfer() const override { return 16; }
  [[nodiscard]] std::uint64_t largest_message() const override { return 1 << 20; }
  [[nodiscard]] std::string text_of(int code) const override { return std::to_string(code); }
  [[nodiscard]] bool send(int, std::span<const std::byte>, const fabric_region&, std::uint64_t token) override {
    ++wire_.sent;
    return give(token);
  }
  [[nodiscard]] bool receive(std::span<std::byte> buffer, const fabric_region&, std::uint64_t token) override {
    wire_.buffers.emplace_back(buffer, token);
    return true;
  }
  [[nodiscard]] bool write(int, std::span<const char>, const fabric_region&, remote_address, std::uint64_t t,
                           std::optional<std::uint32_t>) override {
    return give(t);
  }
  [[nodiscard]] bool read(int, std::span<char>, const fabric_region&, remote_address, std::uint64_t token) override {
    return give(token);
  }
  [[nodiscard]] std::size_t poll(std::span<fabric_completion> over) override {
    std::size_t count = 0;
    for (; count < over.size() && !wire_.over.empty(); ++count) {
      over[count] = std::move(wire_.over.front());
      wire_.over.pop_front();
    }
    return count;
  }

 private:
  struct region final : fabric_region {
    [[nodiscard]] std::uint64_t key() const override { return 1; }
    [[nodiscard]] std::uint64_t base() const override { return 0; }
  };
  bool give(std::uint64_t token) {
    wire_.given.push_back(token);
    return true;
  }

  wire& wire_;
};

/// Reads the input; zeros when it has ended.
class source {
 public:
  explicit source(std::span<const std::byte> input) : left_(input) {}
  [[nodiscard]] bool more() const { return !left_.empty(); }
  [[nodiscard]] std::uint32_t byte() {
    if (left_.empty()) return 0;
    const auto value = std::to_integer<std::uint32_t>(left_.front());
    left_ = left_.subspan(1);
    return value;
  }
  /// Mostly small; 255 is followed by any eight bytes.
  [[nodiscard]] std::uint64_t number() {
    const std::uint32_t first = byte();
    if (first != 255) return first;
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t count) {
    const auto found = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(found.size());
    return found;
  }

 private:
  std::span<const std::byte> left_;
};

struct rank_under_test {
  rank_under_test() {
    network_request asked{};
    asked.contexts = contexts;
    asked.peers = ranks;
    asked.signals = signals;
    asked.depth = depth;
    for (std::uint32_t i = 0; i < contexts; ++i) {
      queues.push_back(std::make_unique<network_queue>(memory, words, 0, asked));
    }
    listing = windows->list(window_id, {window.get(), room, "window 'fuzzed'"});
    device_listing = windows->list(device_window_id, {device_window.get(), room, "window 'on the device'", true});
    endpoint = std::make_unique<fabric_endpoint>(
        fabric_endpoint::surroundings{0, windows, [this](const std::string&) { ++reports; }, carried},
        std::make_unique<dead_end>(own));
    endpoint->connect(std::vector<fabric_endpoint::card>(ranks, endpoint->own_card()));
    fabric_engine::surroundings about{device_comm, queues, [](const std::string&) {}, std::chrono::hours(1)};
    about.staged.memory = &memory;
    about.staged.engine = std::make_unique<copies>();
    about.staged.shape.bounce_buffer_count = 4;
    about.staged.shape.bounce_buffer_bytes = 1024;
    engine = std::make_unique<fabric_engine>(std::move(about), *endpoint);
    engine->attach();
  }
  ~rank_under_test() { endpoint->close({}); }

  bool step() {
    const bool any = endpoint->poll();
    return engine->step() || any;
  }

  void post(source& input) {
    const auto context = input.byte() % contexts;
    const gin::context_record record = queues[context]->record();
    const std::uint64_t consumed = words.load(record.words + layout.consumed());
    if (posted[context] >= consumed + depth) return;
    const std::uint64_t taken = posted[context]++;
    const std::uint32_t kind = input.byte();
    gin::descriptor_head head{};
    head.kind = static_cast<gin::operation_kind>(kind % 4);
    head.change = static_cast<gin::signal_change>(kind / 4 % 3);
    head.covers = kind / 16 % 2 == 0 ? gin::strength::weak : gin::strength::strong;
    head.peer = kind / 32 % ranks;
    head.value_bytes = head.kind == gin::operation_kind::put_value ? 8 : 0;
    gin::descriptor what{};
    what.bytes = input.byte() % (room + 1);
    const std::uint64_t local = kind / 96 == 1 ? device_window_id : window_id;
    what.windows = std::uint64_t{input.byte() % 3} << 32 | local;
    test::post_descriptor(record.ring, taken, depth, what, head);
  }

  void complete(source& input) {
    if (own.given.empty()) return;
    const std::size_t which = input.byte() % own.given.size();
    own.over.push_back({own.given[which], 0, input.byte() % 8 == 7 ? "lost" : ""});
    own.given.erase(own.given.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void arrive(std::span<const std::byte> bytes) {
    require(!own.buffers.empty(), "buffers are given back");
    const auto [buffer, token] = own.buffers.front();
    own.buffers.pop_front();
    const std::size_t fits = std::min(buffer.size(), bytes.size());
    if (fits != 0) std::memcpy(buffer.data(), bytes.data(), fits);
    own.over.push_back({token, fits, bytes.size() > buffer.size() ? "too long" : ""});
  }

  /// The signals and the windows.
  [[nodiscard]] std::vector<std::uint64_t> seen() const {
    std::vector<std::uint64_t> all(2 * room / sizeof(std::uint64_t));
    std::memcpy(all.data(), window.get(), room);
    std::memcpy(all.data() + all.size() / 2, device_window.get(), room);
    for (const auto& queue : queues) {
      for (std::uint32_t i = 0; i < signals; ++i) {
        all.push_back(network_port().load(queue->record().words + layout.signal(i)));
      }
    }
    return all;
  }

  heap memory;
  network_port words;
  wire own;
  gin::queue_layout layout{ranks, signals, 0};
  std::unique_ptr<char[]> window = std::make_unique<char[]>(room);  // AddressSanitizer sees its ends
  std::shared_ptr<window_table> windows = std::make_shared<window_table>();
  std::unique_ptr<char[]> device_window = std::make_unique<char[]>(room);
  std::unique_ptr<window_table::listing> listing;
  std::unique_ptr<window_table::listing> device_listing;
  std::vector<std::unique_ptr<network_queue>> queues;
  std::uint64_t posted[contexts] = {};
  int reports = 0;
  std::unique_ptr<fabric_endpoint> endpoint;
  std::unique_ptr<fabric_engine> engine;
};

fabric_message make_message(source& input, const fabric_secret& secret) {
  fabric_message made;
  made.secret = secret;
  made.kind = static_cast<message_kind>(input.byte());
  made.sender = input.byte();
  made.sequence = input.number();
  made.changes_done = input.number();
  made.context = input.byte();
  made.device_comm = made.context == 6 ? 0 : made.context == 7 ? 2 : device_comm;  // one that ended; none
  made.signal = input.byte();
  made.slot = made.buffers = made.context;  // of kinds that have no context
  made.buffer_bytes = made.signal;
  made.signal_change = static_cast<gin::signal_change>(input.byte());
  made.value_bytes = input.byte();
  made.signal_value = input.number();
  made.value = input.number();
  made.offset = input.number();
  made.window = input.byte();
  made.why = static_cast<refusal>(input.byte());
  made.base = input.number();
  made.bytes = input.number();
  made.code = static_cast<std::int32_t>(input.number());
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  source input(bytes_of_input(data, size));
  rank_under_test rank;
  const auto settle = [&] {
    for (int i = 0; rank.step(); ++i) require(i < 1000, "the engine comes to rest");
  };
  for (std::size_t messages = 0; input.more();) {
    const std::uint32_t step = input.byte() % 8;
    const std::vector<std::uint64_t> before = rank.seen();
    const std::size_t sent = rank.own.sent;
    bool is_strange = false;
    switch (step) {
      case 0: rank.post(input); break;
      case 1: rank.complete(input); break;
      case 2:
        rank.arrive(input.bytes(input.byte()));
        is_strange = true;  // nobody guesses the secret
        break;
      case 3: {
        fabric_secret other = rank.endpoint->own_card().secret;
        other[input.byte() % 2] ^= std::uint64_t{1} << input.byte() % 64;
        const fabric_message message = make_message(input, other);
        rank.arrive(std::as_bytes(std::span(&message, 1)));
        is_strange = true;
        break;
      }
      default: {
        fabric_message message = make_message(input, rank.endpoint->own_card().secret);
        std::vector<std::byte> whole(sizeof message);
        if (message.kind == message_kind::change) {
          const std::span<const std::byte> behind = input.bytes(input.byte() % (carried + 4));
          whole.insert(whole.end(), behind.begin(), behind.end());
          if (message.context != 3) message.bytes = behind.size();
        }
        std::memcpy(whole.data(), &message, sizeof message);
        rank.arrive(whole);
        ++messages;
      }
    }
    if (is_strange) require(rank.own.over.size() == 1, "one message comes");
    settle();
    if (is_strange) {
      require(rank.seen() == before, "a stranger changes nothing");
      require(rank.own.sent == sent, "a stranger is not answered");
    }
    require(rank.own.buffers.size() == fabric_endpoint::receive_buffers, "each buffer is used again");
    require(rank.reports <= 8, "reports are bounded");
  }
  rank.engine->send_shutdown_notice();
  settle();
  return 0;
}
