/// \file fake_fabric.hpp
/// A fabric without a network, whose steps a seed decides: messages, writes and completions come in any order, late and
/// in parts, and what a test wants to fail fails.
#pragma once

#include <devcomm/host/error.hpp>

#include <transport/fabric.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace devcomm_test {

namespace detail = devcomm::host::detail;

/// What all endpoints have in common. Only `step` moves anything.
class fake_network {
 public:
  explicit fake_network(std::uint32_t seed) : random_(seed) {}

  /// What may be wrong with it.
  double refuses = 0.3;     ///< how often a call is told to try again
  int fails_to = -1;        ///< writes and reads of this peer's memory fail
  int refused_sender = -1;  ///< whose next `refused_sends` messages cannot be sent
  int refused_sends = 0;
  int losing_sender = -1;  ///< whose next `lost_sends` messages are lost, which their completions say
  int lost_sends = 0;
  int unregistered = -1;  ///< whose windows cannot be registered
  int forgetful = -1;     ///< whose next `forgotten_reads` reads never complete
  int forgotten_reads = 0;
  std::uint64_t may_move = std::numeric_limits<std::uint64_t>::max();  ///< halves of writes and reads
  std::set<int> stalled;       ///< nothing reaches these endpoints, nor completes that is on its way there
  bool closing_loses = false;  ///< what an endpoint sent that is closed before it arrives
  std::uint64_t largest_transfer = std::numeric_limits<std::uint64_t>::max();
  std::map<int, std::uint64_t> largest_messages;  ///< by endpoint, where it has a limit
  // What providers may want of memory.
  bool registers_messages = false;
  bool peers_use_addresses = false;
  bool names_writes = true;
  bool names_writes_early = false;        ///< before the peer can see the data: no fabric that is usable does
  bool keeps_completions = false;         ///< of writes with names, at their sender
  std::string completion_error;           ///< of those that it has kept
  bool completes_writes_early = false;    ///< before the peer can see the data: no fabric that is usable does
  bool copies_are_trusted_early = false;  ///< between windows and pinned memory: no engine does
  bool reaches_devices = false;
  bool copies_fail = false;
  bool copies_wait = false;
  std::size_t carried = 0;      ///< bytes of a put that messages carry, at most
  std::uint64_t copies = 0;     ///< that were begun
  std::uint64_t sent = 0;       ///< messages that were taken
  std::uint64_t moved = 0;      ///< bytes of writes and reads that are over
  std::uint64_t in_flight = 0;  ///< bytes of those that are not
  std::uint64_t max_in_flight = 0;

  struct memory {
    char* base;
    std::size_t bytes;
    std::uint64_t start;  ///< what peers call its first byte
    bool for_peers;
  };
  struct endpoint {
    std::vector<int> peers;  // endpoints, by rank
    std::deque<std::pair<std::span<std::byte>, std::uint64_t>> buffers;
    std::deque<detail::fabric_completion> over;
  };

  /// An event that may come next; false when it is to come again.
  using event = std::function<bool()>;
  void later(event what) { events_.push_back(std::move(what)); }
  /// One event, whichever; whether there was any.
  bool step() {
    if (events_.empty()) return false;
    const std::size_t chosen = below(events_.size());
    std::swap(events_[chosen], events_.back());
    event next = std::move(events_.back());
    events_.pop_back();
    if (!next()) events_.push_back(std::move(next));
    return true;
  }
  [[nodiscard]] std::size_t below(std::size_t count) { return random_() % count; }
  [[nodiscard]] bool happens(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }

  std::map<int, endpoint> endpoints;
  std::map<std::uint64_t, memory> memories;  ///< by key
  std::uint64_t keys = 0;

 private:
  std::mt19937 random_;
  std::vector<event> events_;
};

class fake_fabric final : public detail::fabric {
 public:
  fake_fabric(fake_network& net, int number) : net_(net), number_(number) { net_.endpoints[number]; }
  ~fake_fabric() override { net_.endpoints.erase(number_); }

  [[nodiscard]] std::string name() const override { return "a fake fabric"; }
  [[nodiscard]] detail::fabric_address address() const override {
    detail::fabric_address own;
    own.bytes = sizeof number_;
    std::memcpy(own.name.data(), &number_, sizeof number_);
    return own;
  }
  void connect(std::span<const detail::fabric_address> peers) override {
    std::vector<int>& known = net_.endpoints[number_].peers;
    known.assign(peers.size(), -1);
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      if (peers[rank].bytes != 0) std::memcpy(&known[rank], peers[rank].name.data(), sizeof known[rank]);
    }
  }
  [[nodiscard]] devcomm::host::capability to_devices() const override { return {}; }
  [[nodiscard]] std::unique_ptr<detail::fabric_region> add_memory(char* base, std::size_t bytes,
                                                                  std::optional<int>) override {
    if (net_.unregistered == number_) throw detail::registration_error("there is no room for a window", 12);
    return add(base, bytes, true);
  }
  [[nodiscard]] std::unique_ptr<detail::fabric_region> add_buffers(std::span<std::byte> memory) override {
    return add(reinterpret_cast<char*>(memory.data()), memory.size(), false);
  }
  [[nodiscard]] bool names_writes() const override { return net_.names_writes; }
  [[nodiscard]] std::uint64_t largest_transfer() const override { return net_.largest_transfer; }
  [[nodiscard]] std::uint64_t largest_message() const override {
    const auto limit = net_.largest_messages.find(number_);
    return limit == net_.largest_messages.end() ? std::numeric_limits<std::uint64_t>::max() : limit->second;
  }
  [[nodiscard]] std::string text_of(int code) const override { return "error " + std::to_string(code); }

  [[nodiscard]] bool send(int peer, std::span<const std::byte> message, const detail::fabric_region& memory,
                          std::uint64_t token) override {
    check_local(memory, message.data(), message.size());
    if (message.size() > largest_message()) throw std::logic_error("a message is too long");
    if (net_.refused_sender == number_ && net_.refused_sends > 0) {
      --net_.refused_sends;
      throw devcomm::host::system_error("no connection");
    }
    if (net_.happens(net_.refuses)) return false;
    if (net_.losing_sender == number_ && net_.lost_sends > 0) {
      --net_.lost_sends;
      finish(net_, number_, token, "the connection is lost");
      return true;
    }
    const int to = peer_of(peer);
    ++net_.sent;
    std::vector<std::byte> bytes(message.begin(), message.end());
    net_.later([&net = net_, from = number_, to, token] {
      if (net.stalled.contains(to)) return false;
      const auto found = net.endpoints.find(from);
      if (found != net.endpoints.end()) found->second.over.push_back({token, 0, {}});
      return true;
    });
    net_.later([&net = net_, from = number_, to, bytes = std::move(bytes)] {
      if (net.stalled.contains(to)) return false;
      if (net.closing_loses && !net.endpoints.contains(from)) return true;
      return deliver(net, to, bytes);
    });
    return true;
  }
  /// What anyone may do who knows the address.
  static bool deliver(fake_network& net, int to, std::span<const std::byte> bytes) {
    const auto found = net.endpoints.find(to);
    if (found == net.endpoints.end()) return true;  // lost
    if (found->second.buffers.empty()) return false;
    const auto [buffer, token] = found->second.buffers.front();
    found->second.buffers.pop_front();
    const std::size_t fits = std::min(buffer.size(), bytes.size());
    std::memcpy(buffer.data(), bytes.data(), fits);
    found->second.over.push_back({token, fits, bytes.size() > buffer.size() ? "the message is too long" : ""});
    return true;
  }
  [[nodiscard]] bool receive(std::span<std::byte> buffer, const detail::fabric_region& memory,
                             std::uint64_t token) override {
    check_local(memory, buffer.data(), buffer.size());
    net_.endpoints[number_].buffers.emplace_back(buffer, token);
    return true;
  }
  [[nodiscard]] bool write(int peer, std::span<const char> source, const detail::fabric_region& memory,
                           detail::remote_address destination, std::uint64_t token,
                           std::optional<std::uint32_t> name) override {
    check_local(memory, source.data(), source.size());
    return move(peer, const_cast<char*>(source.data()), source.size(), destination, token, true, name);
  }
  [[nodiscard]] bool read(int peer, std::span<char> destination, const detail::fabric_region& memory,
                          detail::remote_address source, std::uint64_t token) override {
    check_local(memory, destination.data(), destination.size());
    if (net_.forgetful == number_ && net_.forgotten_reads > 0) {
      --net_.forgotten_reads;
      return true;
    }
    return move(peer, destination.data(), destination.size(), source, token, false);
  }
  [[nodiscard]] std::size_t poll(std::span<detail::fabric_completion> over) override {
    auto& mine = net_.endpoints[number_].over;
    std::size_t count = 0;
    for (; count < over.size() && !mine.empty(); ++count) {
      over[count] = mine.front();
      mine.pop_front();
    }
    return count;
  }

 private:
  class region final : public detail::fabric_region {
   public:
    region(fake_network& net, std::uint64_t key) : net_(net), key_(key) {}
    ~region() override { net_.memories.erase(key_); }
    [[nodiscard]] std::uint64_t key() const override { return key_; }
    [[nodiscard]] std::uint64_t base() const override { return net_.memories.at(key_).start; }

   private:
    fake_network& net_;
    std::uint64_t key_;
  };

  [[nodiscard]] std::unique_ptr<detail::fabric_region> add(char* base, std::size_t bytes, bool for_peers) {
    const std::uint64_t key = ++net_.keys;
    const std::uint64_t start = net_.peers_use_addresses ? reinterpret_cast<std::uintptr_t>(base) : 0;
    net_.memories[key] = {base, bytes, start, for_peers};
    return std::make_unique<region>(net_, key);
  }
  /// Where memory of messages has to be registered, it is found by the region that comes with it; that of a window is
  /// on every fabric.
  void check_local(const detail::fabric_region& memory, const void* base, std::size_t bytes) const {
    const auto found = net_.memories.find(memory.key());
    if (found != net_.memories.end() && (net_.registers_messages || found->second.for_peers)) {
      const char* const first = static_cast<const char*>(base);
      const auto& [start, size, name, for_peers] = found->second;
      if (start <= first && first + bytes <= start + size) return;
    } else if (found != net_.memories.end()) {
      return;
    }
    throw std::logic_error("memory is used that is not registered");
  }

  [[nodiscard]] int peer_of(int rank) { return net_.endpoints[number_].peers.at(static_cast<std::size_t>(rank)); }

  static void finish(fake_network& on, int endpoint, std::uint64_t token, const std::string& error) {
    on.later([&net = on, number = endpoint, token, error] {
      const auto found = net.endpoints.find(number);
      if (found != net.endpoints.end()) found->second.over.push_back({token, 0, error});
      return true;
    });
  }

  /// In two halves that come at different times, the second one first or last.
  [[nodiscard]] bool move(int peer, char* here, std::size_t bytes, detail::remote_address there, std::uint64_t token,
                          bool writes, std::optional<std::uint32_t> name = {}) {
    if (bytes > net_.largest_transfer) throw std::logic_error("a transfer is too large");
    if (net_.happens(net_.refuses)) return false;
    if (net_.fails_to == peer_of(peer)) {
      finish(net_, number_, token, "the link is down");
      return true;
    }
    net_.in_flight += bytes;
    net_.max_in_flight = std::max(net_.max_in_flight, net_.in_flight);
    const auto left = std::make_shared<int>(2);
    // A write with a name may be over here long before it has arrived.
    const auto taken = std::make_shared<std::vector<char>>();
    if (name) {
      taken->assign(here, here + bytes);
      here = taken->data();
      net_.later([&net = net_, number = number_, token] {
        if (net.keeps_completions) return false;
        const auto found = net.endpoints.find(number);
        if (found != net.endpoints.end()) found->second.over.push_back({token, 0, net.completion_error});
        return true;
      });
    }
    const auto tell = [to = peer_of(peer), name](fake_network& net) {
      net.later([&net, to, name] {
        const auto found = net.endpoints.find(to);
        if (found != net.endpoints.end()) found->second.over.push_back({0, 0, {}, name});
        return true;
      });
    };
    const std::size_t half = net_.below(bytes + 1);
    const auto part = [&](std::size_t from, std::size_t to) {
      net_.later([&net = net_, number = number_, owner = peer_of(peer), here, there, token, writes, left, from, to,
                  bytes, taken, name, tell] {
        if (net.stalled.contains(owner)) return false;
        if (!name && !net.endpoints.contains(number)) return true;  // closed: nothing moves any more
        if (net.may_move == 0) return false;
        --net.may_move;
        const auto memory = net.memories.find(there.key);
        if (name && (memory == net.memories.end() || !memory->second.for_peers)) return true;
        if (memory == net.memories.end() || !memory->second.for_peers) {
          if (--*left == 0) finish(net, number, token, "there is no such memory");
          return true;
        }
        char* const remote = memory->second.base + (there.address - memory->second.start);
        std::memcpy(writes ? remote + from : here + from, writes ? here + from : remote + from, to - from);
        if (--*left != 0) return true;
        net.in_flight -= bytes;
        net.moved += bytes;
        if (name) {
          if (!net.names_writes_early) tell(net);
          return true;
        }
        if (!net.completes_writes_early || !writes) finish(net, number, token, {});
        return true;
      });
    };
    part(0, half);
    part(half, bytes);
    if (name && net_.names_writes_early) tell(net_);
    if (net_.completes_writes_early && writes && !name) finish(net_, number_, token, {});
    return true;
  }

  fake_network& net_;
  int number_;
};

}  // namespace devcomm_test
