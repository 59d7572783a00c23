/// \file short_message.cuh
/// A list whose messages all go inline, one from and one to each rank at most: some warps move each message, from start
/// to end. The protocol is that of connection_end.cuh, and its invariant of progress holds: a warp waits for nothing
/// but its own message, and the last that has taken its part of one makes the ticket. What differs is that no thread
/// looks at several connections in turn, and no group copies for another: a short call would spend most of its time on
/// that.
#pragma once

#include <devcomm/channel/detail/connection_end.cuh>
#include <devcomm/channel/detail/posted_note.cuh>
#include <devcomm/channel/messages.hpp>
#include <devcomm/data/copy.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/group.cuh>

namespace devcomm::detail {

/// Packets of a lane that are under way together: 4 KiB of a message take two turns.
inline constexpr uint32_t short_batch = 8;

/// The warps of a message.
struct message_warps {
  uint32_t rank;   ///< of the calling thread among theirs
  uint32_t count;  ///< of warps

  DEVCOMM_DEVICE uint32_t thread_rank() const { return rank; }
  DEVCOMM_DEVICE uint32_t size() const { return count * arch::warp_threads; }
  DEVCOMM_DEVICE static void sync() {}  // they never wait for each other
};

/// The threads of its warps each have the state of the connection, and one writes it back.
class short_send : public sending_connection {
 public:
  using sending_connection::sending_connection;

  /// Whether the calling thread has the state that follows. `wait(awaited, ready)` polls `ready`; returns whether it
  /// came true, and has recorded why not. `failure` is set by the thread that finds one.
  template <class Wait>
  DEVCOMM_DEVICE bool move(const message_warps& warps, const Wait& wait, status& failure) {
    static_cast<void>(next_message());
    char* const packets = on_peer(on_.layout().packets(this->lane(), self()));
    send_inline<short_batch>(
        warps, piece_of(connection_stage::copy_inline, state_.data + state_.begin, packets, bytes_left()));
    if (warps.rank != 0) return false;
    make_offer();
    go_to(connection_stage::wait_taken);
    channel::message_ticket given{};
    if (wait(this->wait(), [&] { return acquire_note(ticket(), state_.pieces + 1, given); })) accept(given, failure);
    return true;
  }
};

class short_receive : public receiving_connection {
 public:
  using receiving_connection::receiving_connection;

  template <class Wait>
  DEVCOMM_DEVICE bool move(const message_warps& warps, const Wait& wait, status& failure) {
    static_cast<void>(next_message());
    go_to(connection_stage::wait_offer);
    bool goes_on = true;
    if (whole_warp::leads()) {
      channel::message_offer made{};
      goes_on = wait(this->wait(), [&] { return read_note(offer(), state_.parts + 1, made); });
      if (goes_on && !is_same(made)) {
        goes_on = false;
        if (warps.rank == 0) failure = refuse(made);
      }
    }
    if (whole_warp::any(!goes_on)) return warps.rank == 0;
    go_to(connection_stage::wait_data);
    const awaited_word awaited = awaited_packets(on_, peer_, state_.current, state_.pieces);
    const auto* const packets = here<const char>(on_.layout().packets(this->lane(), peer_));
    receive_inline<short_batch>(
        warps, piece_of(connection_stage::copy_inline, packets, state_.data + state_.begin, bytes_left()),
        [&](const auto& ready) { return goes_on = wait(awaited, ready); });
    if (whole_warp::any(!goes_on)) return warps.rank == 0;
    arch::sync_warp(arch::full_mask);  // what its lanes have taken goes before the ticket
    if (!whole_warp::leads() || !is_last(warps.count)) return false;
    say_taken();
    count_piece(bytes_left(), connection_stage::idle);
    return true;
  }

 private:
  /// Whether all other warps have come.
  DEVCOMM_DEVICE bool is_last(uint32_t warps) const {
    if (warps == 1) return true;
    uint32_t* const taken = &on_.piece(number())->taken;
    if (arch::fetch_add<memory_order::acq_rel, scope::device>(taken, 1u) + 1 != warps) return false;
    arch::store<memory_order::relaxed, scope::device>(taken, 0u);
    return true;
  }
};

/// What a warp finds of its message before anything is stored. A rank's message to itself is its send and receive, of
/// which the warps of the send copy.
class short_message {
 public:
  /// Messages, and windows, of a list.
  static constexpr uint32_t most = arch::warp_threads;

  /// Message `index` of the list, which has at most `most` messages and windows; of a warp without one, past its end.
  /// *Collective* over the warp.
  DEVCOMM_DEVICE short_message(const connection_lane& on, const channel::message_list& list, uint32_t index)
      : index_(index), is_any_(index < list.count), is_valid_(!is_any_), fits_(!is_any_) {
    if (!is_any_) return;
    const channel::message& m = list.messages[index];
    const uint32_t lane = arch::lane();
    way_ = m.way;
    peer_ = m.peer;
    const bool same_peer = lane < list.count && lane != index && list.messages[lane].peer == peer_;
    const bool is_twin = same_peer && list.messages[lane].way == way_;
    const bool names = lane < list.window_count && list.windows[lane].id + 1 == m.window;
    const bool has_window = whole_warp::any(names) || m.window == 0;
    is_valid_ = peer_ >= 0 && peer_ < on.members.size && (has_window || peer_ == on.members.rank);
    if (whole_warp::any(is_twin) || !is_valid_) return;
    uint32_t number = 0;
    if (peer_ == on.members.rank) {
      const uint32_t others = arch::ballot(arch::full_mask, same_peer);
      if (others == 0) return;
      while ((others >> own_receive_ & 1) == 0) ++own_receive_;
      if (list.messages[own_receive_].bytes != m.bytes) return;
    } else {
      state_ = *on.state(static_cast<uint32_t>(peer_), way_);
      number = state_.messages;
    }
    const bool sends = way_ == channel::direction::send;
    const int me = on.members.rank;
    part_ = channel::part_of_lane(m.bytes, sends ? me : peer_, sends ? peer_ : me, on.members.size, number,
                                  on.lane.index, on.lane.count);
    const uint64_t bytes = part_.end - part_.begin;
    fits_ = bytes <= on.layout().inline_bytes && (bytes != 0 || !part_.is_any || peer_ == me);
  }

  /// Whether it can go this way.
  DEVCOMM_DEVICE bool fits() const { return fits_; }

  /// Whether it is to or from a member, and its window, if it needs one, is the list's.
  DEVCOMM_DEVICE bool is_valid() const { return is_valid_; }
  /// Whether the rank is its own peer.
  DEVCOMM_DEVICE bool is_own(const connection_lane& on) const { return is_any_ && peer_ == on.members.rank; }

  /// Moves it, and writes the connection's state back. See `short_send::move`.
  template <class Wait>
  DEVCOMM_DEVICE status move(const connection_lane& on, const channel::message_list& list, const message_warps& warps,
                             const Wait& wait) {
    if (!is_any_) return status::success;
    if (is_own(on)) {
      if (way_ == channel::direction::send) copy_own(list, warps);
      return status::success;
    }
    return way_ == channel::direction::send ? move_by<short_send>(on, list, warps, wait)
                                            : move_by<short_receive>(on, list, warps, wait);
  }

 private:
  template <class End, class Wait>
  DEVCOMM_DEVICE status move_by(const connection_lane& on, const channel::message_list& list,
                                const message_warps& warps, const Wait& wait) {
    End one(on, list, static_cast<uint32_t>(peer_), state_);
    one.rewind();
    state_.next = index_;
    status failure = status::success;
    bool keeps = warps.rank == 0;
    if (part_.is_any) {
      keeps = one.move(warps, wait, failure);
    } else {
      ++state_.messages;
    }
    if (keeps) *on.state(static_cast<uint32_t>(peer_), way_) = state_;
    return failure;
  }
  DEVCOMM_DEVICE void copy_own(const channel::message_list& list, const message_warps& warps) const {
    const auto* const from = reinterpret_cast<const unsigned char*>(list.messages[index_].data);
    auto* const to = reinterpret_cast<unsigned char*>(list.messages[own_receive_].data);
    copy(warps, to + part_.begin, from + part_.begin, part_.end - part_.begin);
  }

  channel::connection_state state_{};
  channel::message_part part_{};
  uint32_t index_;
  int32_t peer_ = 0;
  channel::direction way_{};
  uint32_t own_receive_ = 0;  // of a send to the rank itself, the message of the list
  bool is_any_;
  bool is_valid_;
  bool fits_;
};

}  // namespace devcomm::detail
