/// \file fabric_operation.hpp
/// Operations that kernels have posted, on their way over a fabric, and the fragments in which their data moves.
#pragma once

#include "transport/fabric.hpp"
#include "transport/fabric_message.hpp"
#include "transport/queue.hpp"
#include "transport/window_copies.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

struct fabric_operation {
  std::uint32_t context = 0;
  posted_operation posted{};
  std::list<fabric_operation>::iterator self;
  bool data_is_ordered = false;  ///< it is at the peer before what messages from here on say
  bool is_queued = false;
  bool has_message = false;  ///< which is not acknowledged
  bool carries = false;      ///< which carries its data
  std::vector<std::byte> carried;
  char* local = nullptr;
  const fabric_region* region = nullptr;  ///< while data moves
  remote_address remote;
  bool is_staged = false;    ///< this rank's window is reached by copies
  bool peer_stages = false;  ///< the peer's is
  payload_write write = payload_write::none;
  std::uint64_t issued = 0;     ///< bytes
  std::uint64_t announced = 0;  ///< of those, by messages
  std::uint32_t pending = 0;    ///< fragments
  std::chrono::steady_clock::time_point progressed;
  std::uint32_t out = 0;  ///< fragments, messages and questions that are with the fabric or the peer

  [[nodiscard]] bool gets() const { return posted.head.kind == gin::operation_kind::get; }
  /// Whether fragments move its data, or its message carries it.
  [[nodiscard]] bool moves() const { return gets() || posted.head.kind == gin::operation_kind::put; }
  /// Whether it ends with a message: a value, a signal, or the data itself.
  [[nodiscard]] bool wants_message() const {
    return carries || posted.head.kind == gin::operation_kind::put_value ||
           posted.head.change != gin::signal_change::none;
  }
  /// Whether its signal is behind all earlier operations of its context to the peer.
  [[nodiscard]] bool is_strong() const {
    return posted.head.change != gin::signal_change::none && posted.head.covers == gin::strength::strong;
  }
};

enum class fragment_stage : std::uint8_t {
  reading,             ///< a copy brings it to this rank's bounce buffer
  asked_to_stage_out,  ///< the peer: a copy brings it to the peer's bounce buffer
  ready,               ///< for the fabric
  moving,              ///< the fabric moves it
  unacknowledged,      ///< it has left, and the peer has not acknowledged its change
  asked_to_stage_in,   ///< the peer: a copy brings it from the peer's bounce buffer
  writing,             ///< one brings it from this rank's bounce buffer
};

struct fragment {
  fabric_operation* of = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  ///< in the operation's data
  std::uint64_t serial = 0;
  fragment_stage at = fragment_stage::ready;
  bool is_sent = false;                   ///< of `asked_to_...`: the message was
  std::optional<std::uint64_t> change{};  ///< its number, where one announces the fragment
  bool is_acknowledged = false;           ///< the change
  std::optional<std::size_t> own;         ///< bounce buffer of this rank's
  std::optional<std::uint32_t> inbound;   ///< bounce buffer of the peer's
  window_copy copy{};
};

/// Fragments that are on their way, of all operations.
class fragment_table {
 public:
  explicit fragment_table(std::size_t count) : fragments_(count) {
    for (std::size_t i = count; i > 0; --i) free_.push_back(i - 1);
  }

  [[nodiscard]] std::size_t free() const { return free_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] fragment& operator[](std::size_t number) { return fragments_[number]; }
  [[nodiscard]] const fragment& operator[](std::size_t number) const { return fragments_[number]; }
  [[nodiscard]] auto begin() { return fragments_.begin(); }
  [[nodiscard]] auto end() { return fragments_.end(); }
  [[nodiscard]] auto begin() const { return fragments_.begin(); }
  [[nodiscard]] auto end() const { return fragments_.end(); }

  /// The next fragment of `one`. *Requires* a free one.
  [[nodiscard]] std::size_t add(fabric_operation& one, std::uint64_t bytes) {
    const std::size_t number = free_.back();
    free_.pop_back();
    fragment& next = fragments_[number] = {};
    next.of = &one;
    next.bytes = bytes;
    next.offset = one.issued;
    next.serial = ++serials_;
    bytes_ += bytes;
    one.issued += bytes;
    ++one.pending;
    return number;
  }
  /// It is free from here on; what it was.
  fragment remove(std::size_t number) {
    fragment was = std::exchange(fragments_[number], {});
    free_.push_back(number);
    bytes_ -= was.bytes;
    --was.of->pending;
    return was;
  }

 private:
  std::vector<fragment> fragments_;
  std::vector<std::size_t> free_;
  std::uint64_t serials_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace devcomm::host::detail
