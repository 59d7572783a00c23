/// \file single_message.cuh
/// A list with at most one message from and one to each rank, none of which needs a slot here: some warps move each
/// message, from start to end. The protocol is that of connection_end.cuh, and its invariant of progress holds: a warp
/// waits for nothing but its own message. What differs is that no thread polls several connections in turn, and no
/// group copies for another: a call would spend most of its time on that.
///
/// Misses of the instruction cache take most of the time of a call, which runs each instruction once. So what every
/// message needs is one short run of code, and what few need is out of line.
#pragma once

#include <devcomm/channel/detail/connection_end.cuh>
#include <devcomm/channel/detail/posted_note.cuh>
#include <devcomm/channel/messages.hpp>
#include <devcomm/detail/poll.cuh>
#include <devcomm/group.cuh>

namespace devcomm::detail {

/// Packets of a message that a thread has under way together.
inline constexpr uint32_t single_batch = 4;

/// The warps of a message.
struct message_warps {
  uint32_t thread_index;  ///< of the calling thread among theirs
  uint32_t count;         ///< of warps

  DEVCOMM_DEVICE uint32_t thread_rank() const { return thread_index; }
  DEVCOMM_DEVICE uint32_t size() const { return count * arch::warp_threads; }
  DEVCOMM_DEVICE static void sync() {}  // they never wait for each other
};

/// The stripe's part of a message that it sends. Each thread of its warps has the connection's state.
class single_send : public sending_connection {
 public:
  using sending_connection::sending_connection;

  /// Takes message `index` of the list, the next of the connection.
  DEVCOMM_DEVICE void begin(const channel::message& m, uint32_t index, const channel::message_part& part) {
    begin_single(m, index, part);
  }

  /// `wait(awaited, ready)` polls `ready`; returns whether it came true, and has recorded why not. Sets `failure` of
  /// the thread that reports one.
  template <class Wait, class Copy>
  DEVCOMM_DEVICE void move(const message_warps& warps, const Wait& wait, const Copy& copy, status& failure) {
    const bool goes_inline = is_inline();
    if (warps.thread_index == 0) send_rts();
    if (goes_inline) {
      send_inline<single_batch>(
          warps, piece_of(connection_stage::copy_inline, data(), on_peer(packets_from(self())), bytes_left()));
      if (warps.thread_index != 0) return;  // the slot of packets is free again when both ranks are past the next part
    }
    for (;;) {
      bool goes_on = true;
      char* to = nullptr;
      uint64_t bytes = 0;
      if (whole_warp::leads()) {
        channel::message_cts given{};
        goes_on = wait(this->wait(), [&] { return acquire_note(cts(), state_.pieces + 1, given); });
        if (goes_on) {
          to = destination(given);
          bytes = given.window == 0 ? slot_piece() : bytes_left();
          goes_on = is_right(given, to);
          if (!goes_on && warps.thread_index == 0) failure = refuse(given);
        }
      }
      if (goes_inline) {
        if (goes_on) count_piece(bytes_left(), connection_stage::idle);
        return;
      }
      if (whole_warp::any(!goes_on)) return;
      arch::sync_warp(arch::full_mask);  // what the CTS released, to all lanes
      to = reinterpret_cast<char*>(arch::shuffle_wide(arch::full_mask, reinterpret_cast<uint64_t>(to), 0));
      bytes = arch::shuffle_wide(arch::full_mask, bytes, 0);
      if (bytes != 0) copy(warps, to, data(), bytes);
      arch::sync_warp(arch::full_mask);
      const bool ends = whole_warp::leads() && is_last(warps.count);
      count_piece(bytes, connection_stage::wait_cts);
      if (ends) say_sent();
      if (stage() == connection_stage::idle) return;
    }
  }

 private:
  DEVCOMM_DEVICE const char* data() const { return state_.data + state_.at; }
  /// Whether all other warps have copied their share of the piece. What they stored is then released with what the
  /// caller releases. A warp is at most one piece ahead of another, as the CTS of the next but one is made after all
  /// have sent this one.
  DEVCOMM_DEVICE bool is_last(uint32_t warps) const {
    if (warps == 1) return true;
    uint32_t* const have_sent = &on_.piece(number())->sent[state_.pieces % 2];
    if (arch::fetch_add<memory_order::acq_rel, scope::block>(have_sent, 1u) + 1 != warps) return false;
    arch::store<memory_order::relaxed, scope::device>(have_sent, 0u);
    return true;
  }
};

/// The same of one that it receives.
class single_receive : public receiving_connection {
 public:
  using receiving_connection::receiving_connection;

  DEVCOMM_DEVICE void begin(const channel::message& m, uint32_t index, const channel::message_part& part) {
    begin_single(m, index, part);
    offset_ = m.offset + part.begin;
  }

  template <class Wait, class Copy>
  DEVCOMM_DEVICE void move(const message_warps& warps, const Wait& wait, const Copy&, status& failure) {
    const bool comes_inline = is_inline();
    if (warps.thread_index == 0) send_cts(state_.window, offset_);
    if (warps.thread_index != 0 && !comes_inline) return;
    go_to(connection_stage::wait_rts);
    bool goes_on = true;
    if (whole_warp::leads()) {
      channel::message_rts made{};
      goes_on = wait(this->wait(), [&] { return read_note(rts(), state_.parts + 1, made); });
      if (goes_on && !is_same(made)) {
        goes_on = false;
        if (warps.thread_index == 0) failure = refuse(made);
      }
    }
    if (comes_inline) {
      if (whole_warp::any(!goes_on)) return;
      const wait_site awaited = awaited_packets(on_, peer_, state_.current, state_.pieces);
      goes_on =
          receive_inline<single_batch>(warps,
                                       piece_of(connection_stage::copy_inline, here<const char>(packets_from(peer_)),
                                                state_.data + state_.begin, bytes_left()),
                                       awaited, wait);
      if (warps.thread_index != 0) return;
      say_taken();
    } else if (goes_on) {
      go_to(connection_stage::wait_data);
      goes_on = wait(this->wait(), [&] { return has_data(); });
    }
    if (goes_on) count_piece(bytes_left(), connection_stage::idle);
  }

 private:
  uint64_t offset_ = 0;  // of the part in its window
};

/// What outlives a list of a direction of a connection.
struct connection_counts {
  uint32_t messages, parts, pieces, posted;

  DEVCOMM_DEVICE static connection_counts of(const channel::connection_state& state) {
    return {state.messages, state.parts, state.pieces, state.posted};
  }
  DEVCOMM_DEVICE void put(channel::connection_state& state) const {
    state.messages = messages;
    state.parts = parts;
    state.pieces = pieces;
    state.posted = posted;
  }
};

/// Which messages a list has, and which of them the calling warp moves. A rank's message to itself is its send and
/// receive, of which the warps of the send copy.
class warp_assignment {
 public:
  /// Of a list.
  static constexpr uint32_t most = arch::warp_threads;

  /// *Requires* a list of 1 to `most` messages, and as many windows at most. *Collective* over the block's warps,
  /// `warps` of them, which find the same, and each its message. Reads what is kept of connections: the block
  /// synchronizes before `move`, which writes it.
  DEVCOMM_DEVICE warp_assignment(const connection_stripe& on, const channel::message_list& list, uint32_t warps) {
    const uint32_t lane = arch::lane();
    const bool is_any = lane < list.count;
    channel::message m{};
    if (is_any) m = list.messages[lane];
    const uint32_t window = lane < list.window_count ? list.windows[lane].id + 1 : 0;
    const bool is_member = m.peer >= 0 && m.peer < on.members.size;
    const bool own = is_any && m.peer == on.members.rank;
    const bool sends = m.way == channel::direction::send;
    connection_counts counts{};
    if (is_any && is_member && !own) {
      const channel::connection_state& kept = *on.state(static_cast<uint32_t>(m.peer), m.way);
      check_connected(kept, on.members.number(m.peer));
      counts = connection_counts::of(kept);
    }
    bool has_window = m.window == 0 || own;
    DEVCOMM_UNROLL_BY(1)
    for (uint32_t w = 0; w < list.window_count; ++w) {
      const uint32_t named = arch::shuffle(arch::full_mask, window, w);
      has_window = has_window || named == m.window;
    }
    is_valid_ = !whole_warp::any(is_any && (!is_member || !has_window));

    // Parts are of `min_part` bytes at most, or, of a long message, all longer.
    const bool is_long = m.bytes > uint64_t{min_part} * on.stripe.count;
    const bool is_inline = !is_long && (m.bytes < min_part ? m.bytes : min_part) <= on.layout().inline_bytes;
    bool differs = is_any && !sends && !own && m.window == 0 && m.bytes != 0 && !is_inline;  // needs slots

    const uint32_t own_sends = arch::ballot(arch::full_mask, own && sends);
    const uint32_t own_receives = arch::ballot(arch::full_mask, own && !sends);
    const uint32_t moved = arch::ballot(arch::full_mask, is_any && (sends || !own));
    const uint32_t wide = arch::ballot(arch::full_mask, is_any && sends && is_long);
    const uint32_t key = static_cast<uint32_t>(m.peer) * 2 + (sends ? 0 : 1);
    uint32_t messages = 0;
    uint32_t wide_messages = 0;
    DEVCOMM_UNROLL_BY(1)
    for (uint32_t i = 0; i < list.count; ++i) {
      const uint32_t other = arch::shuffle(arch::full_mask, key, i);
      differs = differs || (is_any && lane != i && other == key);
      messages += moved >> i & 1;
      wide_messages += wide >> i & 1;
      if ((own_receives >> i & 1) != 0) own_receive_ = i;
    }
    has_own_ = (own_sends | own_receives) != 0;
    if (has_own_) {
      const uint64_t bytes = arch::shuffle_wide(arch::full_mask, m.bytes, own_receive_);
      differs = differs || own_sends == 0 || own_receives == 0 || (own && m.bytes != bytes);
    }
    fits_ = is_valid_ && !whole_warp::any(differs) && messages <= warps;
    if (!fits_) return;

    // Where some messages are long, the others have one warp each: what comes into a window needs no more.
    const uint32_t narrow = messages - wide_messages;
    const uint32_t share =
        (wide_messages == 0 ? warps : warps - narrow) / (wide_messages == 0 ? messages : wide_messages);
    uint32_t rest = arch::thread_rank() / arch::warp_threads;
    index_ = most;
    DEVCOMM_UNROLL_BY(1)
    for (uint32_t i = 0; i < list.count; ++i) {
      if ((moved >> i & 1) == 0) continue;
      const uint32_t its = wide_messages == 0 || (wide >> i & 1) != 0 ? share : 1;
      if (rest < its) {
        index_ = i;
        warps_ = {rest * arch::warp_threads + lane, its};
        break;
      }
      rest -= its;
    }
    if (index_ == most) return;
    message_ = list.messages[index_];
    counts_ = shuffle(arch::full_mask, counts, index_);
    if (is_own(on)) own_to_ = list.messages[own_receive_].data;
    const int me = on.members.rank;
    const bool sent = message_.way == channel::direction::send;
    part_ = channel::part_of_stripe(message_.bytes, sent ? me : message_.peer, sent ? message_.peer : me,
                                    on.members.size, counts_.messages, on.stripe.index, on.stripe.count);
  }

  /// Whether it can go this way.
  DEVCOMM_DEVICE bool fit() const { return fits_; }
  /// Whether all are to or from a member, and their windows, if they need one, are the list's.
  DEVCOMM_DEVICE bool are_valid() const { return is_valid_; }
  /// Whether the rank is its own peer.
  DEVCOMM_DEVICE bool has_own() const { return has_own_; }

  /// Moves it. See `single_send::move`; `copy(warps, to, from, bytes)` copies.
  template <class Wait, class Copy>
  DEVCOMM_DEVICE status move(const connection_stripe& on, const channel::message_list& list, const Wait& wait,
                             const Copy& copy) {
    if (index_ == most) return status::success;
    if (is_own(on)) {
      if (part_.begin != part_.end)
        copy(warps_, own_to_ + part_.begin, message_.data + part_.begin, part_.end - part_.begin);
      return status::success;
    }
    return message_.way == channel::direction::send ? move_by<single_send>(on, list, wait, copy)
                                                    : move_by<single_receive>(on, list, wait, copy);
  }

 private:
  DEVCOMM_DEVICE bool is_own(const connection_stripe& on) const { return message_.peer == on.members.rank; }
  template <class End, class Wait, class Copy>
  DEVCOMM_DEVICE status move_by(const connection_stripe& on, const channel::message_list& list, const Wait& wait,
                                const Copy& copy) {
    const auto peer = static_cast<uint32_t>(message_.peer);
    channel::connection_state* const kept = on.state(peer, End::way);
    channel::connection_state state{};
    counts_.put(state);
    End one(on, list, peer, state);
    one.begin(message_, index_, part_);
    status failure = status::success;
    if (part_.is_any) one.move(warps_, wait, copy, failure);
    if (warps_.thread_index == 0) one.keep(*kept);
    return failure;
  }

  channel::message message_{};
  connection_counts counts_{};
  channel::message_part part_{};
  char* own_to_ = nullptr;
  message_warps warps_{};
  uint32_t index_ = most;  // of the warp's message in the list
  uint32_t own_receive_ = 0;
  bool is_valid_ = false;
  bool has_own_ = false;
  bool fits_ = false;
};

}  // namespace devcomm::detail
