/// \file connection_end.cuh
/// The two directions of a connection as the thread that serves them sees them.
///
/// Protocol. The messages from one rank to another are matched in the order in which both ranks list them. In each lane
/// a message has a part, which goes in pieces: the whole part where the receiver's memory lies in a window, else what
/// fits into a slot of the receiver's pool.
///
///     sender                                  receiver
///     offer: bytes of the message      --->   compares; takes a slot if it needs one
///     compares; stores the piece there <---   ticket: bytes of the message, window or slot, offset
///     sent: pieces so far              --->   copies from the slot, if there was one
///
/// A receiver with a window publishes its ticket at once, so that nothing but the ticket's trip comes before the data.
/// A slot is taken only after the offer has arrived.
///
/// *What is compared*: the number of lanes, the number of the message in its connection, and its bytes. All three
/// decide which bytes a lane's part has; both ends compare them before anything is stored, so that a sender never
/// stores past the memory that a ticket is for. Numbers differ where an earlier message had two sizes, which a lane
/// without a part in it at one end does not see otherwise. A receiver without a window that finds a difference makes a
/// ticket all the same, by which the sender finds it too.
///
/// *Invariant of progress*. No end of a connection waits for another connection's message, only for its own peer, or
/// for a slot; and a slot is held only from an offer to the copy of its piece. In that time both ends are in groups
/// of which this message is the next of the connection: the sender, since it made the offer and has not sent, the
/// receiver, since it holds the slot. The threads of both look at all their connections in turn and do what can be
/// done, so the sender stores and the receiver copies, and the slot is free again. So a pool of one slot suffices, the
/// order of a list beyond that of each connection is of no account, and a rank that comes late holds nothing of
/// others.
///
/// *Why a word can be written again*. Offers and tickets have a place for even and one for odd numbers. The sender
/// makes offer `n + 2` after it has sent part `n + 1`, for which it had a ticket, that the receiver made after it had
/// taken part `n` and compared its offer. The receiver makes ticket `k + 2` after it has seen that piece `k` was sent,
/// for which the sender read ticket `k`. A slot, or a window, is stored to after a ticket that the receiver's group
/// released behind its `sync`, and read after `sent` was acquired.
///
/// *Wrap-around*. Numbers have 32 bits and outlive the kernel. An offer or a ticket is awaited by equality with the one
/// number that is due, which no earlier one in its place can have; `sent` is compared by the sign of the difference,
/// of two pieces at most.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/messages.hpp>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/memory_order.hpp>

namespace devcomm::detail {

/// What a direction of a connection has come to; `connection_state::stage`.
enum class connection_stage : uint32_t {
  idle,         ///< looks for its next message
  wait_ticket,  ///< of a send
  wait_offer,   ///< of a receive
  wait_data,    ///< of a receive, or for a slot
  copy,         ///< the group is to copy a piece
};

/// What looking at a direction of a connection has come to.
enum class connection_step {
  over,     ///< no message of the list is left
  waiting,  ///< for the peer, or for a slot
  copy,     ///< the group is to copy
  failed,
};

/// The connections of one lane as a group finds them.
struct connection_lane {
  const device_comm& comm;
  const team& members;
  const channel::connection_handle& handle;
  channel::lane lane;

  DEVCOMM_DEVICE channel::connection_layout layout() const {
    return {handle.count, handle.members, handle.slots, handle.slot_bytes};
  }
  DEVCOMM_DEVICE char* own() const { return comm.resources.local + handle.offset; }
  DEVCOMM_DEVICE char* on(int member) const {
    const auto slot = static_cast<uint64_t>(members.world_rank(member) - comm.lsa_first);
    return comm.resources.base + slot * comm.resources.stride + handle.offset;
  }
  DEVCOMM_DEVICE uint32_t* word(uint32_t i) const {
    return reinterpret_cast<uint32_t*>(own() + layout().own(lane.index)) + i;
  }
  /// Number of the last look that found something to do.
  DEVCOMM_DEVICE uint32_t* wake() const { return word(0); }
  /// By which groups without a vote agree.
  DEVCOMM_DEVICE uint32_t* outcome() const { return word(1); }
  /// The pool's slots that are in use.
  DEVCOMM_DEVICE uint32_t* pool() const { return word(2); }
  /// Connections that the group is to copy for.
  DEVCOMM_DEVICE uint32_t* mask(uint32_t parity) const {
    return reinterpret_cast<uint32_t*>(own() + layout().mask(lane.index, parity));
  }
  DEVCOMM_DEVICE char* slot(uint32_t i) const { return own() + layout().slot(lane.index, i); }
  DEVCOMM_DEVICE static uint32_t peer_of(uint32_t connection) { return connection / 2; }
  DEVCOMM_DEVICE static channel::direction way_of(uint32_t connection) {
    return static_cast<channel::direction>(connection % 2);
  }
  /// `connection`: twice the member, and one more for what is received.
  DEVCOMM_DEVICE channel::connection_state* state(uint32_t connection) const {
    return reinterpret_cast<channel::connection_state*>(
        own() + layout().state(lane.index, peer_of(connection), way_of(connection)));
  }
};

/// What one rank says of a message.
struct said_of_message {
  uint64_t bytes;   ///< or `channel::no_such_window`, or `channel::no_such_message`
  uint32_t lanes;   ///< with `no_such_window`, 1 more than the id of the window
  uint32_t number;  ///< of the message in its connection
};

/// Leaves a record of a message that the two ranks do not agree on; `failure_record` says which members have what.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status report_message(resource_header* home, channel::direction way,
                                                             uint32_t index, int32_t peer, said_of_message mine,
                                                             said_of_message theirs) {
  failure_record* const slot = take_failure_slot(home, status::mismatch);
  if (slot == nullptr) return status::mismatch;
  failure_record& record = *slot;
  record.outcome = status::mismatch;
  record.what = way == channel::direction::send ? operation::message_send : operation::message_receive;
  record.index = record.peer_index = index;
  record.rank = home->comm.rank;
  record.peer = peer;
  record.block = arch::block_rank();
  record.thread = arch::thread_rank();
  record.mine.grid_blocks = mine.lanes;
  record.theirs.grid_blocks = theirs.lanes;
  record.my_call.begin = mine.number;
  record.their_call.begin = theirs.number;
  record.my_call.end = mine.bytes;
  record.their_call.end = theirs.bytes;
  publish(record);
  return status::mismatch;
}

/// One direction of a connection: the next thing that its thread can do.
class connection_end {
 public:
  DEVCOMM_DEVICE connection_end(const connection_lane& on, const channel::message_list& list, uint32_t connection)
      : on_(on),
        list_(list),
        state_(*on.state(connection)),
        peer_(static_cast<int>(connection_lane::peer_of(connection))),
        way_(connection_lane::way_of(connection)),
        home_(reinterpret_cast<resource_header*>(on.comm.resources.local)) {}

  /// Begins with the first message of the list.
  DEVCOMM_DEVICE void rewind() {
    DEVCOMM_ASSERT(state_.peer == 0 || state_.peer == static_cast<uint32_t>(on_.members.world_rank(peer_)) + 1,
                   "connections are used with another team than before, of which other ranks are members");
    state_.next = 0;
    state_.peer = static_cast<uint32_t>(on_.members.world_rank(peer_)) + 1;
  }
  /// Whether a message of it is under way.
  DEVCOMM_DEVICE bool is_open() const { return stage() != connection_stage::idle; }
  /// Changes when a piece has been moved.
  DEVCOMM_DEVICE uint32_t pieces() const { return state_.pieces; }

  /// Goes on as far as is possible without the group. `failure` is set where it returns `failed`.
  DEVCOMM_DEVICE connection_step advance(status& failure) {
    for (;;) {
      switch (stage()) {
        case connection_stage::idle:
          if (!begin_message()) return connection_step::over;
          break;
        case connection_stage::wait_ticket:
          if (!has_ticket()) return connection_step::waiting;
          if (!accept_ticket(failure)) return connection_step::failed;
          break;
        case connection_stage::wait_offer:
          if (!has_offer()) return connection_step::waiting;
          if (!accept_offer(failure)) return connection_step::failed;
          break;
        case connection_stage::wait_data:
          if (!is_direct()) post_slots();
          if (!has_data()) return connection_step::waiting;
          accept_data();
          break;
        case connection_stage::copy: return connection_step::copy;
      }
    }
  }

  /// The group has copied, and synchronised.
  DEVCOMM_DEVICE void end_copy() {
    if (way_ == channel::direction::receive)
      arch::fetch_add<memory_order::relaxed, scope::device>(on_.pool(), 0u - (1u << state_.slots[state_.pieces % 2]));
    end_piece();
  }

  /// What it waits for, as records and reports say it.
  DEVCOMM_DEVICE awaited_word wait() const {
    const bool sends = way_ == channel::direction::send;
    const bool data = stage() == connection_stage::wait_data;
    const operation what = sends ? operation::message_send : operation::message_receive;
    const auto peer = static_cast<int32_t>(on_.members.world_rank(peer_));
    if (data && state_.posted == state_.pieces)
      return {what, state_.current, -1, wait_condition::slot_free, 0, 0, on_.lane.index, on_.handle.offset};
    const wait_condition condition = sends  ? wait_condition::receive_listed
                                     : data ? wait_condition::piece_sent
                                            : wait_condition::send_listed;
    const uint32_t number = sends || data ? state_.pieces : state_.parts;
    return {what, state_.current, peer, condition, 0, uint64_t{number} + 1, on_.lane.index, on_.handle.offset};
  }

 private:
  DEVCOMM_DEVICE connection_stage stage() const { return static_cast<connection_stage>(state_.stage); }
  DEVCOMM_DEVICE void go_to(connection_stage stage) { state_.stage = static_cast<uint32_t>(stage); }
  DEVCOMM_DEVICE const channel::message& current() const { return list_.messages[state_.current]; }
  /// Whether the part needs no slot.
  DEVCOMM_DEVICE bool is_direct() const { return current().window != 0 || state_.begin == state_.end; }
  DEVCOMM_DEVICE uint32_t self() const { return static_cast<uint32_t>(on_.members.rank); }

  // This rank's words, which the peer stores to, and the peer's.
  DEVCOMM_DEVICE const channel::message_ticket* ticket() const {
    return reinterpret_cast<const channel::message_ticket*>(
        on_.own() + on_.layout().ticket(on_.lane.index, static_cast<uint32_t>(peer_), state_.pieces));
  }
  DEVCOMM_DEVICE const channel::message_offer* offer() const {
    return reinterpret_cast<const channel::message_offer*>(
        on_.own() + on_.layout().offer(on_.lane.index, static_cast<uint32_t>(peer_), state_.parts));
  }
  DEVCOMM_DEVICE const uint32_t* sent() const {
    return reinterpret_cast<const uint32_t*>(on_.own() +
                                             on_.layout().sent(on_.lane.index, static_cast<uint32_t>(peer_)));
  }
  DEVCOMM_DEVICE static uint32_t look(const uint32_t* word) {
    return arch::load<memory_order::relaxed, scope::system>(word);
  }
  /// What was released with a word that has been seen.
  DEVCOMM_DEVICE static void acquire(const uint32_t* word) {
    static_cast<void>(arch::load<memory_order::acquire, scope::system>(word));
  }
  DEVCOMM_DEVICE static void release(uint32_t* word, uint32_t value) {
    arch::store<memory_order::release, scope::system>(word, value);
  }

  DEVCOMM_DEVICE bool begin_message() {
    while (state_.next < list_.count) {
      const channel::message& m = list_.messages[state_.next++];
      if (m.peer != peer_ || m.way != way_) continue;
      const int me = on_.members.rank;
      const bool sends = way_ == channel::direction::send;
      const channel::message_part part =
          channel::part_of_lane(m.bytes, sends ? me : peer_, sends ? peer_ : me, on_.members.size, state_.messages++,
                                on_.lane.index, on_.lane.count);
      if (!part.is_any) continue;
      state_.current = state_.next - 1;
      state_.begin = state_.at = part.begin;
      state_.end = part.end;
      state_.first = state_.pieces;
      if (sends) {
        make_offer(m.bytes);
        go_to(connection_stage::wait_ticket);
      } else {
        if (is_direct()) make_ticket(m.window, m.offset + part.begin);
        go_to(connection_stage::wait_offer);
      }
      return true;
    }
    return false;
  }

  DEVCOMM_DEVICE void make_offer(uint64_t bytes) const {
    auto* offer = reinterpret_cast<channel::message_offer*>(on_.on(peer_) +
                                                            on_.layout().offer(on_.lane.index, self(), state_.parts));
    offer->bytes = bytes;
    offer->lanes = on_.lane.count;
    offer->message = number();
    release(&offer->number, state_.parts + 1);
  }
  DEVCOMM_DEVICE void make_ticket(uint32_t window, uint64_t offset) {
    auto* ticket = reinterpret_cast<channel::message_ticket*>(
        on_.on(peer_) + on_.layout().ticket(on_.lane.index, self(), state_.posted));
    ticket->bytes = current().bytes;
    ticket->offset = offset;
    ticket->window = window;
    ticket->lanes = on_.lane.count;
    ticket->message = number();
    release(&ticket->number, ++state_.posted);
  }

  DEVCOMM_DEVICE bool has_ticket() const { return look(&ticket()->number) == state_.pieces + 1; }
  DEVCOMM_DEVICE bool accept_ticket(status& failure) {
    const channel::message_ticket* const given = ticket();
    acquire(&given->number);
    const channel::message& m = current();
    if (!is_same(*given)) {
      failure = report({given->bytes, given->lanes, given->message});
      return false;
    }
    const uint64_t left = state_.end - state_.at;
    state_.from = m.data + state_.at;
    state_.bytes = left;
    if (left == 0) {
      end_piece();
      return true;
    }
    if (given->window == 0) {
      state_.to = on_.on(peer_) + given->offset;
      if (left > on_.handle.slot_bytes) state_.bytes = on_.handle.slot_bytes;
    } else {
      state_.to = in_window(given->window, given->offset);
      if (state_.to == nullptr) {
        failure = report({channel::no_such_window, given->window, given->message});
        return false;
      }
    }
    go_to(connection_stage::copy);
    return true;
  }
  /// Null where the list does not name the window.
  DEVCOMM_DEVICE char* in_window(uint32_t window, uint64_t offset) const {
    for (uint32_t w = 0; w < list_.window_count; ++w)
      if (list_.windows[w].id + 1 == window)
        return list_.windows[w].peer_pointer(on_.members.world_rank(peer_), offset);
    return nullptr;
  }

  DEVCOMM_DEVICE bool has_offer() const { return look(&offer()->number) == state_.parts + 1; }
  DEVCOMM_DEVICE bool accept_offer(status& failure) {
    const channel::message_offer* const made = offer();
    acquire(&made->number);
    if (!is_same(*made)) {
      if (!is_direct()) make_ticket(0, 0);  // the sender compares, and stores nothing
      failure = report({made->bytes, made->lanes, made->message});
      return false;
    }
    go_to(connection_stage::wait_data);
    return true;
  }
  /// Makes tickets for the next pieces, two at most, as far as there are slots.
  DEVCOMM_DEVICE void post_slots() {
    const uint64_t slot_bytes = on_.handle.slot_bytes;
    while (state_.posted - state_.pieces < 2 &&
           (state_.posted - state_.first) * slot_bytes < state_.end - state_.begin) {
      const uint32_t slot = take_slot();
      if (slot >= on_.handle.slots) return;
      state_.slots[state_.posted % 2] = slot;
      make_ticket(0, on_.layout().slot(on_.lane.index, slot));
    }
  }
  /// A slot of the pool that was free, or their number.
  DEVCOMM_DEVICE uint32_t take_slot() const {
    for (;;) {
      const uint32_t used = arch::load<memory_order::relaxed, scope::device>(on_.pool());
      uint32_t slot = 0;
      while (slot < on_.handle.slots && (used >> slot & 1) != 0) ++slot;
      if (slot == on_.handle.slots) return slot;
      const uint32_t before = arch::fetch_or<memory_order::relaxed, scope::device>(on_.pool(), 1u << slot);
      if ((before >> slot & 1) == 0) return slot;
    }
  }

  DEVCOMM_DEVICE bool has_data() const {
    return state_.posted != state_.pieces && static_cast<int32_t>(look(sent()) - state_.pieces) > 0;
  }
  DEVCOMM_DEVICE void accept_data() {
    acquire(sent());
    const uint64_t left = state_.end - state_.at;
    state_.bytes = left;
    if (is_direct()) {
      end_piece();
      return;
    }
    if (left > on_.handle.slot_bytes) state_.bytes = on_.handle.slot_bytes;
    state_.from = on_.slot(state_.slots[state_.pieces % 2]);
    state_.to = current().data + state_.at;
    go_to(connection_stage::copy);
  }

  /// A piece has been sent, or taken.
  DEVCOMM_DEVICE void end_piece() {
    ++state_.pieces;
    const bool sends = way_ == channel::direction::send;
    if (sends)
      release(reinterpret_cast<uint32_t*>(on_.on(peer_) + on_.layout().sent(on_.lane.index, self())), state_.pieces);
    state_.at += state_.bytes;
    if (state_.at == state_.end) {
      ++state_.parts;
      go_to(connection_stage::idle);
    } else {
      go_to(sends ? connection_stage::wait_ticket : connection_stage::wait_data);
    }
  }

  /// Of the message that is under way.
  DEVCOMM_DEVICE uint32_t number() const { return state_.messages - 1; }
  /// Whether an offer or a ticket is for the same part of the same message as this end has.
  template <class Word>
  DEVCOMM_DEVICE bool is_same(const Word& theirs) const {
    return theirs.lanes == on_.lane.count && theirs.message == number() && theirs.bytes == current().bytes;
  }
  DEVCOMM_DEVICE status report(said_of_message theirs) const {
    return report_message(home_, way_, state_.current, on_.members.world_rank(peer_),
                          {current().bytes, on_.lane.count, number()}, theirs);
  }

  const connection_lane& on_;
  const channel::message_list& list_;
  channel::connection_state& state_;
  int peer_;
  channel::direction way_;
  resource_header* home_;
};

}  // namespace devcomm::detail
