/// \file fabric_endpoint.hpp
/// A rank's end of a fabric, which its device communicators share: the buffers in which messages of peers arrive, the
/// registered windows, and which device communicator a completion or a message is for.
#pragma once

#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_message.hpp"
#include "transport/peer_table.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// The operations of one device communicator, on their way over the endpoint.
class endpoint_user {
 public:
  virtual ~endpoint_user() = default;

  virtual void handle_message(const fabric_message& message, std::span<const std::byte> carried) = 0;
  /// A write of rank `sender` has arrived, beside the change whose number ends in these eight bits.
  virtual void handle_arrival(std::uint32_t sender, std::uint32_t sequence) = 0;
  // What this user gave to the fabric, by its own number of it, is over.
  virtual void handle_sent(std::size_t slot, const std::string& error) = 0;
  virtual void handle_moved(std::size_t slot, const std::string& error) = 0;

  [[nodiscard]] virtual bool uses(const fabric_region& memory) const = 0;
  /// Fails the operations that use `memory`; whether the fabric moves data there.
  [[nodiscard]] virtual bool take_away(const fabric_region& memory, const std::string& why) = 0;
  /// Peers' writes into `window`, which is no longer registered, do not arrive.
  virtual void refuse_writes_to(std::uint32_t window) = 0;
  /// The endpoint closes. Afterwards no memory of the user's is registered. `why` is empty when it closes in order.
  virtual void lose_fabric(const std::string& why) = 0;

  /// By any thread, while the endpoint's thread does not come back from the fabric: nothing of it is called afterwards.
  void leave_alone() noexcept { left_alone_ = true; }
  [[nodiscard]] bool is_left_alone() const noexcept { return left_alone_; }

 private:
  std::atomic<bool> left_alone_ = false;
};

/// One thread at a time calls it.
class fabric_endpoint {
 public:
  /// What a rank publishes to the others before they start.
  struct card {
    fabric_address address;
    fabric_secret secret;
    std::uint64_t carried;  ///< bytes of a put that a message to the rank carries, at most
  };
  struct surroundings {
    int rank;
    std::shared_ptr<const window_table> windows;
    std::function<void(const std::string&)> report;  ///< called with why a message is dropped
    std::size_t carried = 0;      ///< bytes of a put that a message carries, at most; less where messages are short
    int device = 0;               ///< of windows that are `on_device`
    bool fabric_reaches = false;  ///< these
  };
  /// Bytes that a message may carry among so many ranks: payload on its way to device memory has places in pinned
  /// memory, for all peers 8 MiB up to 2,048 ranks, and 4 KiB for each peer beyond.
  [[nodiscard]] static std::size_t carried_among(std::uint32_t ranks);

  fabric_endpoint(surroundings about, std::unique_ptr<fabric> reached);
  ~fabric_endpoint() { close({}); }
  fabric_endpoint(const fabric_endpoint&) = delete;
  fabric_endpoint& operator=(const fabric_endpoint&) = delete;

  [[nodiscard]] card own_card() const { return {fabric_->address(), secret_, about_.carried}; }
  /// From here on peers are reached; `cards` by rank, without addresses where they are not known yet. With them it is
  /// called again.
  void connect(const std::vector<card>& cards);
  /// What it has before peers are known.
  [[nodiscard]] peer_table& table() { return table_; }
  /// As that of `peer_table`.
  [[nodiscard]] remote_address offer_table(std::size_t bytes) { return table_.offer(*fabric_, bytes); }

  [[nodiscard]] int rank() const { return about_.rank; }
  [[nodiscard]] std::size_t ranks() const { return cards_.size(); }
  /// As the rank published it, but `carried` is what a message from here carries, at most.
  [[nodiscard]] const card& card_of(std::size_t rank) const { return cards_[rank]; }
  [[nodiscard]] const window_table& windows() const { return *about_.windows; }
  [[nodiscard]] std::size_t carried() const { return about_.carried; }
  [[nodiscard]] bool fabric_reaches_device() const { return about_.fabric_reaches; }
  /// Bytes of a message and what it may carry.
  [[nodiscard]] std::size_t buffer_bytes() const { return sizeof(fabric_message) + about_.carried; }

  /// What is for device communicator `number`, which has this number on all ranks, is handled by `one` from here on.
  /// Returns what tokens are made with.
  [[nodiscard]] std::uint32_t attach(endpoint_user& one, std::uint32_t number);
  /// Peers that have something for its number learn from here on that it has ended. Completions of its operations still
  /// arrive.
  void end(std::uint32_t number);
  /// Nothing of it is with the fabric.
  void detach(std::uint32_t index) { users_[index] = nullptr; }

  /// Handles what the fabric has completed; whether there was anything.
  [[nodiscard]] bool poll();
  /// Null once it is closed.
  [[nodiscard]] fabric* port() const { return fabric_.get(); }
  // As those of `fabric`, also once it is closed.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t largest_transfer() const { return largest_transfer_; }
  /// Whether peers may name their writes to device communicator `number`.
  [[nodiscard]] bool names_writes_to(std::uint32_t number) const;

  /// Whether payload in that memory passes through pinned memory.
  [[nodiscard]] bool stages(const window_table::entry& memory) const {
    return memory.on_device && !about_.fabric_reaches;
  }
  /// Registers the window, if it is not. Throws `registration_error`.
  [[nodiscard]] const fabric_region& region_of(std::uint32_t window, const window_table::entry& memory);
  /// Registers this rank's `window`, if the fabric is to use it and takes it. Else that is left to its first use, where
  /// it takes time of all operations.
  void prepare(std::uint32_t window);
  /// Whether the fabric uses the memory of `window` for this rank's operations. When it does not, it knows the window
  /// no longer, and peers are refused.
  [[nodiscard]] bool forget(std::uint32_t window);
  /// The same, whatever uses it fails; where the fabric moves data there, the endpoint closes.
  void take_away(std::uint32_t window);
  /// Nothing of this rank's memory is the fabric's from here on, and peers learn from theirs that it is gone. Users
  /// fail with `why`, if it is not empty.
  void close(const std::string& why);
  /// Of a message or a write that makes no sense.
  void drop(const std::string& why);
  void report(const std::string& text) const { about_.report(text); }

  static constexpr std::size_t receive_buffers = 256;

 private:
  static constexpr std::size_t notice_buffers = 4;

  void handle_received(std::size_t buffer, const fabric_completion& over);
  void handle_arrival(std::uint32_t name);
  /// Sends the notices that are due.
  void send_notices();
  [[nodiscard]] std::span<std::byte> receive_buffer(std::size_t slot) {
    return std::span(receive_bytes_).subspan(slot * buffer_bytes(), buffer_bytes());
  }

  surroundings about_;
  std::unique_ptr<fabric> fabric_;
  std::string name_;
  std::uint64_t largest_transfer_;
  fabric_secret secret_;
  std::vector<card> cards_;            // by rank
  std::vector<endpoint_user*> users_;  // by the index of their tokens; null where there is none
  std::map<std::uint32_t, endpoint_user*> numbers_;
  std::uint32_t next_number_ = 0;            // after all that were attached
  std::array<endpoint_user*, 256> named_{};  // whose writes have names, by the last eight bits of its number
  std::map<std::uint32_t, std::unique_ptr<fabric_region>> regions_;  // by window
  peer_table table_;
  std::vector<std::byte> receive_bytes_;
  std::unique_ptr<fabric_region> receive_memory_;
  std::vector<std::byte> carried_;                             // by the message that is handled
  std::set<std::pair<std::uint32_t, std::uint32_t>> notices_;  // that a device communicator has ended: rank, number
  std::array<fabric_message, notice_buffers> notice_messages_{};
  std::unique_ptr<fabric_region> notice_memory_;
  std::vector<std::size_t> free_notices_;
  std::uint64_t dropped_ = 0;
  std::array<fabric_completion, 32> over_;  // of a poll
};

}  // namespace devcomm::host::detail
