/// \file connection.hpp
/// What there is between this rank and a peer: changes of either that the other has not done, in their order, messages
/// that have not been sent, and the peer's windows.
#pragma once

#include "transport/fabric.hpp"
#include "transport/fabric_message.hpp"
#include "transport/fabric_operation.hpp"
#include "transport/window_copies.hpp"
#include "util/fifo.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// A change that the peer has not acknowledged.
struct sent_change {
  fabric_operation* of;
  bool is_message = true;                 ///< the operation's: its value or signal
  std::optional<std::size_t> fragment{};  ///< that it announces
};

/// This rank's changes, numbered from 0 on.
class sent_changes {
 public:
  [[nodiscard]] bool is_full() const { return unacknowledged_.size() == max_unacknowledged; }
  /// Number of the next.
  [[nodiscard]] std::uint64_t next() const { return next_; }
  /// Number of the oldest that is not acknowledged.
  [[nodiscard]] std::uint64_t oldest() const { return next_ - unacknowledged_.size(); }
  [[nodiscard]] bool has(std::uint64_t number) const { return number >= oldest() && number < next_; }
  /// *Requires* `has(number)`.
  [[nodiscard]] const sent_change& operator[](std::uint64_t number) const { return unacknowledged_[number - oldest()]; }

  /// Change `next()` is on its way.
  void add(const sent_change& one) {
    unacknowledged_.push_back(one);
    ++next_;
  }
  /// The oldest, which is acknowledged.
  [[nodiscard]] sent_change take_oldest() {
    const sent_change done = unacknowledged_.front();
    unacknowledged_.pop_front();
    return done;
  }

 private:
  fifo<sent_change> unacknowledged_;
  std::uint64_t next_ = 0;
};

/// A peer's change, and what it carries.
struct received_change {
  fabric_message change;
  std::vector<std::byte> carried;
};

/// A peer's change whose value may be on its way to the window.
struct begun_change {
  fabric_message change;
  window_copy value;
  bool awaits_write = false;  ///< of the peer
};

/// A peer's changes. They are begun in the order of their numbers, and done in that order.
class received_changes {
 public:
  /// Number of the next to be begun.
  [[nodiscard]] std::uint64_t expected() const { return expected_; }
  /// All below it are done.
  [[nodiscard]] std::uint64_t done() const { return expected_ - begun_.size(); }
  [[nodiscard]] bool came_before(std::uint64_t number) const { return number < expected_ || early_.contains(number); }
  /// Whether it is more than the peer may send: values of changes lie in places that are used again once these are
  /// acknowledged.
  [[nodiscard]] bool is_far_ahead(std::uint64_t number) const { return number - done() >= max_unacknowledged; }
  /// Of the change whose number ends in the eight bits of `low`.
  [[nodiscard]] std::uint64_t number_of(std::uint32_t low) const { return done() + ((low - done()) & 0xff); }

  /// Keeps one that came before earlier ones.
  void keep(received_change early) { early_.emplace(early.change.sequence, std::move(early)); }
  /// That with number `expected()`; null where it has not come.
  [[nodiscard]] const received_change* next_kept() const {
    const bool is_next = !early_.empty() && early_.begin()->first == expected_;
    return is_next ? &early_.begin()->second : nullptr;
  }
  void drop_kept(std::uint64_t number) { early_.erase(number); }

  /// A write has arrived before its change was begun; false where it came before.
  [[nodiscard]] bool keep_write(std::uint64_t number) { return early_writes_.insert(number).second; }
  [[nodiscard]] bool take_write(std::uint64_t number) { return early_writes_.erase(number) != 0; }

  /// Change `expected()` is begun.
  void add(begun_change next) { begun_.push_back(std::move(next)); }
  /// So is it counted.
  void advance() {
    ++expected_;
    early_writes_.erase(early_writes_.begin(), early_writes_.lower_bound(expected_));
  }
  [[nodiscard]] fifo<begun_change>& begun() { return begun_; }
  [[nodiscard]] const fifo<begun_change>& begun() const { return begun_; }
  [[nodiscard]] begun_change& operator[](std::uint64_t number) { return begun_[number - done()]; }

 private:
  std::uint64_t expected_ = 0;
  std::map<std::uint64_t, received_change> early_;
  std::set<std::uint64_t> early_writes_;  // that have arrived, by the numbers of their changes
  fifo<begun_change> begun_;
};

/// Of a peer's window.
struct remote_window {
  bool is_asked = false;  ///< the question was sent
  bool is_known = false;
  refusal why = refusal::none;
  remote_address place;
  std::uint64_t bytes = 0;
  bool peer_stages = false;
  payload_write write = payload_write::none;
  int code = 0;
  std::vector<fabric_operation*> waiting;
};

/// The peer's bounce buffers for this rank.
struct peer_bounce_buffers {
  remote_address first;
  std::uint32_t bytes = 0;                          ///< of each
  std::vector<std::optional<std::size_t>> users{};  ///< fragments of this rank's, by bounce buffer
  std::vector<std::uint32_t> free{};

  [[nodiscard]] bool are_known() const { return !users.empty(); }
  [[nodiscard]] remote_address at(std::uint32_t slot) const {
    return {first.key, first.address + std::uint64_t{slot} * bytes};
  }
  /// *Requires* a free one.
  [[nodiscard]] std::uint32_t take(std::size_t fragment) {
    const std::uint32_t slot = free.back();
    free.pop_back();
    users[slot] = fragment;
    return slot;
  }
  void give_back(std::uint32_t slot) {
    users[slot].reset();
    free.push_back(slot);
  }
};

/// A message without a number.
struct posted_message {
  fabric_message message;
  fabric_operation* of;
};

/// What is taken for one peer of what there is for all.
struct held_shares {
  std::size_t operations = 0;
  std::size_t sends = 0;
  std::size_t fragments = 0;
  std::size_t bounce_buffers = 0;  ///< of this rank's
  std::uint64_t bytes = 0;         ///< of fragments
};

/// Whether a peer for which `held` is taken may have `more` of something of which `left` is free.
[[nodiscard]] constexpr bool may_take(std::uint64_t held, std::uint64_t left, std::uint64_t more = 1) {
  return more <= left && (held == 0 || held + more <= 2 * (left - more));
}

struct connection {
  using time_point = std::chrono::steady_clock::time_point;

  std::map<std::uint32_t, remote_window> windows;  ///< the peer's
  fifo<fabric_operation*> movers;                  ///< have fragments to issue
  /// By context, once it is used, in order: what is neither complete nor a sent message.
  std::vector<fifo<fabric_operation*>> send_queues;
  fifo<std::size_t> ready;  ///< fragments for the fabric
  peer_bounce_buffers inbound;
  held_shares held;

  fifo<posted_message> outgoing;
  fifo<fabric_message> answers;  ///< keys and refusals
  sent_changes sent;
  received_changes received;
  bool refused = false;  ///< a change of the peer: none is begun any more

  bool owes = false;  ///< an acknowledgment
  time_point owes_since{};
  std::uint64_t said_done = 0;  ///< `changes_done` of the latest message to the peer
  bool acknowledging = false;   ///< one is on its way

  time_point heard;              ///< when the peer last did something
  time_point acknowledged_at{};  ///< when it last acknowledged a change: all behind it have come nearer
  time_point again{};            ///< when what could not be sent is tried again
  bool is_active = false;        ///< steps look at it
  bool met = false;              ///< a message came from the peer or went to it
  bool has_spoken = false;       ///< a message came from it
  bool has_left = false;         ///< the peer ended
  bool leave_sent = false;       ///< this rank ends, which the peer hears
  bool leave_heard = false;      ///< the peer has the notice, or cannot get it

  [[nodiscard]] bool has_work() const {
    return owes || !movers.empty() || !ready.empty() || !outgoing.empty() || !answers.empty() ||
           !received.begun().empty();
  }
  /// Whether the acknowledgment that it owes is to be sent in a message of its own, now.
  [[nodiscard]] bool is_acknowledgment_due() const {
    constexpr std::chrono::microseconds acknowledged_after(5);
    return received.done() - said_done >= max_unacknowledged / 4 ||
           std::chrono::steady_clock::now() - owes_since >= acknowledged_after;
  }
  /// A peer that has ended waits for none.
  void send_answer(const fabric_message& answer) {
    if (!has_left) answers.push_back(answer);
  }
};

}  // namespace devcomm::host::detail
