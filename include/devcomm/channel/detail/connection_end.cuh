/// \file connection_end.cuh
/// The two directions of a connection as the thread that serves them sees them.
///
/// Protocol. The messages from one rank to another are matched in the order in which both ranks list them. In each
/// stripe a message has a part. One of up to `inline_bytes` goes inline, in packets that carry their own flags:
///
///     sender                                  receiver
///     packets, RTS                     --->   compares; takes the packets, zeroes them
///     compares; the part is sent       <---   CTS: the next packets have a slot
///
/// Others go in pieces: the whole part where the receiver's memory lies in a window, else what fits into a slot of the
/// receiver's pool.
///
///     RTS: bytes of the message        --->   compares; takes a slot if it needs one
///     compares; stores the piece there <---   CTS: bytes of the message, window or slot, offset
///     sent: pieces so far              --->   copies from the slot, if there was one
///
/// A receiver that needs no slot publishes its CTS at once: with a window, so that nothing but the CTS's trip
/// comes before the data; of an inline part, so that the two ranks' trips overlap. A slot is taken
/// only after the RTS has arrived.
///
/// *What is compared*: the number of stripes, the number of the message in its connection, and its bytes. All three
/// decide which bytes a stripe's part has, and how it goes; both ends compare them before anything is stored outside
/// the packets' slot, so that a sender never stores past the memory that a CTS is for. Numbers differ where an earlier
/// message had two sizes, which a stripe without a part in it at one end does not see otherwise. A receiver that finds
/// a difference before it made a CTS makes one all the same, by which the sender finds it too.
///
/// *Ordering*. RTS and CTS are packets with flags of their own. An RTS orders nothing. A CTS's `number` is
/// released, and acquired: what the receiver's group did with the memory before happens before the sender's stores.
/// `sent` is released behind the group's `sync`, or, where warps move a message by themselves, by the last of them to
/// have counted itself; and acquired.
///
/// *Invariant of progress*. No end of a connection waits for another connection's message, only for its own peer, or
/// for a slot; and a slot is held only from an RTS to the copy of its piece. In that time both ends are in groups
/// of which this message is the next of the connection: the sender, since it made the RTS and has not sent, the
/// receiver, since it holds the slot. Both ends do what can be done: threads poll all their connections in turn,
/// warps have one each, so the sender stores and the receiver copies, and the slot is free again. So a pool of one slot
/// suffices, the order of a list beyond that of each connection is of no account, and a rank that comes late holds
/// nothing of others.
///
/// *Why a word can be written again*. There are two slots of RTS and of CTS, for even and for odd numbers. The sender
/// makes RTS `n + 2` after it has sent part `n + 1`, for which it had a CTS, that the receiver made after it had
/// taken part `n` and compared its RTS. The receiver makes CTS `k + 2` after it has seen that piece `k` was sent,
/// for which the sender read CTS `k`; of an inline piece `k`, after it has seen what the sender made after it had
/// read CTS `k`: part or piece `k + 1`, or the RTS that a slot's CTS waits for. A slot, or a window, is stored
/// to after a CTS that the receiver's group released behind its `sync`, and read after `sent` was acquired. Packets
/// have a slot for even and one for odd parts. Those of part `n` are stored after the CTS of part `n - 1`, which
/// the receiver made after it had zeroed those of part `n - 2`; so no flag of theirs is ever a stale one.
///
/// *Wrap-around*. Numbers have 32 bits and outlive the kernel. An RTS or a CTS is awaited by equality with the one
/// number that is due, which no earlier one in its slot can have; `sent` is compared by the sign of the difference,
/// of two pieces at most, for which the receiver counts inline pieces in it itself.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/detail/posted_note.cuh>
#include <devcomm/channel/messages.hpp>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/memory_order.hpp>

namespace devcomm::detail {

/// What a direction of a connection has come to; `connection_state::stage`.
enum class connection_stage : uint32_t {
  idle,         ///< searches for its next message
  wait_cts,     ///< of a send
  wait_listed,  ///< of an inline send: for its CTS
  wait_rts,     ///< of a receive
  wait_data,    ///< of a receive, or for a slot
  copy,         ///< the group is to copy a piece
  copy_inline,  ///< the group is to copy packets
};

/// The state of one direction of a connection after a polling pass.
enum class connection_step {
  over,     ///< no message of the list is left
  waiting,  ///< for the peer, or for a slot
  copy,     ///< the group is to copy
  failed,
};

/// Where the memory of connections is, on this rank and on others. Copied from the communicator, which may be a
/// kernel's argument, so that no address waits for a load.
struct connection_memory {
  char* local;
  char* base;
  uint64_t stride;
  int32_t first;  ///< number of LSA member 0 in teams

  DEVCOMM_DEVICE static connection_memory of(const device_comm& comm) {
    return {comm.resources.local, comm.resources.base, comm.resources.stride, comm.lsa_first};
  }
};

/// The connections of one stripe as a group finds them.
struct connection_stripe {
  const connection_memory& memory;
  const team& members;
  const channel::connection_handle& handle;
  channel::stripe stripe;

  DEVCOMM_DEVICE const channel::connection_layout& layout() const { return handle.layout; }
  DEVCOMM_DEVICE resource_header* home() const { return reinterpret_cast<resource_header*>(memory.local); }
  DEVCOMM_DEVICE char* own() const { return memory.local + handle.offset; }
  DEVCOMM_DEVICE char* on(int member) const {
    const auto slot = static_cast<uint64_t>(members.number(member) - memory.first);
    return memory.base + slot * memory.stride + handle.offset;
  }
  DEVCOMM_DEVICE uint32_t* word(uint32_t i) const {
    return reinterpret_cast<uint32_t*>(own() + layout().own(stripe.index)) + i;
  }
  /// Id of the last polling pass that found work.
  DEVCOMM_DEVICE uint32_t* wake() const { return word(0); }
  /// By which groups without a vote agree.
  DEVCOMM_DEVICE uint32_t* outcome() const { return word(1); }
  /// The pool's slots that are in use.
  DEVCOMM_DEVICE uint32_t* pool() const { return word(2); }
  /// Connections that the group is to copy for.
  DEVCOMM_DEVICE uint32_t* mask(uint32_t parity) const {
    return reinterpret_cast<uint32_t*>(own() + layout().mask(stripe.index, parity));
  }
  DEVCOMM_DEVICE char* slot(uint32_t i) const { return own() + layout().slot(stripe.index, i); }
  // A direction's number: twice the member, and one more for what is received.
  DEVCOMM_DEVICE static uint32_t number_of(uint32_t member, channel::direction way) {
    return 2 * member + static_cast<uint32_t>(way);
  }
  DEVCOMM_DEVICE channel::connection_state* state(uint32_t member, channel::direction way) const {
    return reinterpret_cast<channel::connection_state*>(own() + layout().state(stripe.index, member, way));
  }
  DEVCOMM_DEVICE channel::connection_piece* piece(uint32_t number) const {
    return reinterpret_cast<channel::connection_piece*>(
        own() + layout().piece(stripe.index, number / 2, static_cast<channel::direction>(number % 2)));
  }
};

/// The packets of an inline part, piece `number` of what comes from `peer`, as records and reports say them.
DEVCOMM_DEVICE inline wait_site awaited_packets(const connection_stripe& on, uint32_t peer, uint32_t index,
                                                uint32_t number) {
  return {operation::message_receive,
          index,
          on.members.number(static_cast<int>(peer)),
          uint64_t{number} + 1,
          wait_condition::piece_sent,
          0,
          on.stripe.index,
          on.handle.offset};
}

/// Leaves a record of a message on which the two ranks do not agree.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status report_message(resource_header* home, channel::direction way,
                                                             uint32_t index, int32_t peer, message_shape mine,
                                                             message_shape theirs) {
  failure_record* const slot = take_failure_slot(home, status::mismatch);
  if (slot == nullptr) return status::mismatch;
  failure_record& record = *slot;
  record.what = way == channel::direction::send ? operation::message_send : operation::message_receive;
  record.index = record.peer_index = index;
  record.rank = home->comm.rank;
  record.peer = home->comm.world_rank_of(peer);
  record.block = arch::block_rank();
  record.thread = arch::thread_rank();
  record.my_message = mine;
  record.their_message = theirs;
  publish(record);
  return status::mismatch;
}

/// The word that a direction waits for, and from which value on it has come.
struct connection_watch {
  const uint32_t* word;  ///< null: no single word to poll; search for work again
  uint32_t due;
};

/// Checks that a connection is used with the peer, by its number in teams, that it was used with before.
DEVCOMM_DEVICE inline void check_connected([[maybe_unused]] const channel::connection_state& kept,
                                           [[maybe_unused]] int peer) {
  DEVCOMM_ASSERT(kept.peer == 0 || kept.peer == static_cast<uint32_t>(peer) + 1,
                 "connections are used with another team than before, of which other ranks are members");
}

/// One direction of a connection: the next thing that its thread can do. `state` may be a copy of the thread's own.
template <channel::direction Way>
class connection_end {
 public:
  static constexpr channel::direction way = Way;

  DEVCOMM_DEVICE connection_end(const connection_stripe& on, const channel::message_list& list, uint32_t peer,
                                channel::connection_state& state)
      : on_(on), list_(list), state_(state), peer_(peer) {}

  /// Begins with the first message of the list.
  DEVCOMM_DEVICE void rewind() {
    check_connected(state_, peer_number());
    mark_peer();
    state_.next = 0;
  }
  /// Takes the one message of the list instead, of which the stripe's part may be none; `index` is its index in the
  /// list.
  DEVCOMM_DEVICE void begin_single(const channel::message& m, uint32_t index, const channel::message_part& part) {
    mark_peer();
    ++state_.messages;
    take(m, index, part);
  }
  /// What outlives the list, where it is kept.
  DEVCOMM_DEVICE void keep(channel::connection_state& kept) const {
    kept.messages = state_.messages;
    kept.parts = state_.parts;
    kept.pieces = state_.pieces;
    kept.posted = state_.posted;
    kept.peer = state_.peer;
  }
  /// Whether a message of it is under way.
  DEVCOMM_DEVICE bool is_open() const { return stage() != connection_stage::idle; }
  /// Changes when a piece has been moved.
  DEVCOMM_DEVICE uint32_t pieces() const { return state_.pieces; }
  DEVCOMM_DEVICE uint32_t number() const { return connection_stripe::number_of(peer_, Way); }

 protected:
  DEVCOMM_DEVICE void mark_peer() { state_.peer = static_cast<uint32_t>(peer_number()) + 1; }
  DEVCOMM_DEVICE connection_stage stage() const { return static_cast<connection_stage>(state_.stage); }
  DEVCOMM_DEVICE void go_to(connection_stage stage) { state_.stage = static_cast<uint32_t>(stage); }
  DEVCOMM_DEVICE int peer_number() const { return on_.members.number(static_cast<int>(peer_)); }
  DEVCOMM_DEVICE uint32_t self() const { return static_cast<uint32_t>(on_.members.rank); }
  DEVCOMM_DEVICE uint32_t stripe() const { return on_.stripe.index; }
  DEVCOMM_DEVICE char* on_peer(uint64_t offset) const { return on_.on(static_cast<int>(peer_)) + offset; }
  template <class Word>
  DEVCOMM_DEVICE Word* here(uint64_t offset) const {
    return reinterpret_cast<Word*>(on_.own() + offset);
  }
  DEVCOMM_DEVICE bool is_inline() const {
    return state_.begin != state_.end && state_.end - state_.begin <= on_.layout().inline_bytes;
  }
  DEVCOMM_DEVICE uint32_t message_number() const { return state_.messages - 1; }

  /// Goes on to the next message of the list of which this stripe has a part; its index in the list, or null.
  DEVCOMM_DEVICE const channel::message* next_message() {
    constexpr bool sends = Way == channel::direction::send;
    const auto peer = static_cast<int>(peer_);
    while (state_.next < list_.count) {
      const channel::message& m = list_.messages[state_.next++];
      if (m.peer != peer || m.way != Way) continue;
      const int me = on_.members.rank;
      const channel::message_part part =
          channel::part_of_stripe(m.bytes, sends ? me : peer, sends ? peer : me, on_.members.size, state_.messages++,
                                  stripe(), on_.stripe.count);
      if (!part.is_any) continue;
      take(m, state_.next - 1, part);
      return &m;
    }
    return nullptr;
  }
  DEVCOMM_DEVICE void take(const channel::message& m, uint32_t index, const channel::message_part& part) {
    state_.current = index;
    state_.length = m.bytes;
    state_.begin = state_.at = part.begin;
    state_.end = part.end;
    state_.data = m.data;
    state_.window = m.window;
  }

  /// Of the packets of an inline part.
  DEVCOMM_DEVICE uint32_t flag() const { return state_.parts | 1u << 31; }
  /// Where the receiver has them, of what `sender` sends in this stripe.
  DEVCOMM_DEVICE uint64_t packets_from(uint32_t sender) const {
    return on_.layout().packets(stripe(), sender, state_.parts);
  }
  DEVCOMM_DEVICE channel::connection_piece piece_of(connection_stage how, const char* from, char* to,
                                                    uint64_t bytes) const {
    const uint32_t packets = how == connection_stage::copy_inline ? flag() : 0;
    return {from, to, bytes, packets, state_.current, state_.pieces, {}};
  }
  /// Publishes to the group what to copy.
  DEVCOMM_DEVICE void copy_piece(connection_stage how, const char* from, char* to, uint64_t bytes) {
    *on_.piece(number()) = piece_of(how, from, to, bytes);
    go_to(how);
  }
  DEVCOMM_DEVICE uint64_t bytes_left() const { return state_.end - state_.at; }
  /// Of what is left, as much as a slot takes.
  DEVCOMM_DEVICE uint64_t slot_piece() const {
    return bytes_left() < on_.layout().slot_bytes ? bytes_left() : on_.layout().slot_bytes;
  }

  /// A piece has been sent, or taken.
  DEVCOMM_DEVICE void count_piece(uint64_t bytes, connection_stage next) {
    ++state_.pieces;
    state_.at += bytes;
    if (state_.at == state_.end) {
      ++state_.parts;
      next = connection_stage::idle;
    }
    go_to(next);
  }

  /// Whether an RTS or a CTS is for the same part of the same message as this end has.
  template <class Note>
  DEVCOMM_DEVICE bool is_same(const Note& theirs) const {
    return theirs.stripes == on_.stripe.count && theirs.message == message_number() && theirs.bytes == state_.length;
  }
  DEVCOMM_DEVICE status report(message_shape theirs) const {
    return report_message(on_.home(), Way, state_.current, peer_number(),
                          {state_.length, on_.stripe.count, message_number()}, theirs);
  }

  const connection_stripe& on_;
  const channel::message_list& list_;
  channel::connection_state& state_;
  uint32_t peer_;
};

class sending_connection : public connection_end<channel::direction::send> {
 public:
  using connection_end::connection_end;

  DEVCOMM_DEVICE connection_watch watch() const {
    if (!is_waiting()) return {nullptr, 0};
    return {&cts()->number, state_.pieces + 1};
  }

  /// Goes on as far as is possible without the group. `failure` is set where it returns `failed`.
  DEVCOMM_DEVICE connection_step advance(status& failure) {
    for (;;) {
      if (stage() == connection_stage::idle) {
        if (!begin_message()) return connection_step::over;
      } else if (is_waiting()) {
        channel::message_cts given{};
        if (!acquire_note(cts(), state_.pieces + 1, given)) return connection_step::waiting;
        if (!accept(given, failure)) return connection_step::failed;
      } else {
        return connection_step::copy;
      }
    }
  }

  /// The group has copied the piece, and synchronized.
  DEVCOMM_DEVICE void end_copy() {
    if (stage() == connection_stage::copy_inline) {
      send_rts();
      go_to(connection_stage::wait_listed);
    } else {
      end_piece(on_.piece(number())->bytes);
    }
  }

  /// What it waits for, as records and reports say it.
  DEVCOMM_DEVICE wait_site wait() const {
    return {operation::message_send,
            state_.current,
            peer_number(),
            uint64_t{state_.pieces} + 1,
            wait_condition::receive_listed,
            0,
            stripe(),
            on_.handle.offset};
  }

 protected:
  DEVCOMM_DEVICE bool is_waiting() const {
    return stage() == connection_stage::wait_cts || stage() == connection_stage::wait_listed;
  }
  DEVCOMM_DEVICE const channel::posted_note<channel::message_cts>* cts() const {
    return here<const channel::posted_note<channel::message_cts>>(on_.layout().cts(stripe(), peer_, state_.pieces));
  }

  DEVCOMM_DEVICE bool begin_message() {
    if (next_message() == nullptr) return false;
    if (is_inline()) {
      copy_piece(connection_stage::copy_inline, state_.data + state_.begin, on_peer(packets_from(self())),
                 bytes_left());
    } else {
      send_rts();
      go_to(connection_stage::wait_cts);
    }
    return true;
  }
  DEVCOMM_DEVICE void send_rts() const {
    post_note<memory_order::relaxed>(on_peer(on_.layout().rts(stripe(), self(), state_.parts)), state_.parts + 1,
                                     channel::message_rts{state_.length, on_.stripe.count, message_number()});
  }

  /// Where the piece goes, as far as its receiver's window is one of the list's: else null.
  DEVCOMM_DEVICE char* destination(const channel::message_cts& given) const {
    return given.window == 0 ? on_peer(given.offset) : in_window(given.window, given.offset);
  }
  DEVCOMM_DEVICE bool is_right(const channel::message_cts& given, const char* to) const {
    return is_same(given) && (to != nullptr || bytes_left() == 0);
  }
  DEVCOMM_DEVICE status refuse(const channel::message_cts& given) const {
    if (!is_same(given)) return report({given.bytes, given.stripes, given.message});
    return report({channel::no_such_window, given.window, given.message});
  }
  DEVCOMM_DEVICE bool accept(const channel::message_cts& given, status& failure) {
    char* const to = destination(given);
    if (!is_right(given, to)) {
      failure = refuse(given);
      return false;
    }
    if (stage() == connection_stage::wait_listed) {
      count_piece(bytes_left(), connection_stage::idle);
    } else if (bytes_left() == 0) {
      end_piece(0);
    } else {
      copy_piece(connection_stage::copy, state_.data + state_.at, to, given.window == 0 ? slot_piece() : bytes_left());
    }
    return true;
  }
  /// Null where the list does not name the window.
  DEVCOMM_DEVICE char* in_window(uint32_t window, uint64_t offset) const {
    for (uint32_t w = 0; w < list_.window_count; ++w)
      if (list_.windows[w].id + 1 == window)
        return list_.windows[w].lsa_pointer(peer_number() - list_.windows[w].lsa_first, offset);
    return nullptr;
  }
  DEVCOMM_DEVICE void end_piece(uint64_t bytes) {
    count_piece(bytes, connection_stage::wait_cts);
    say_sent();
  }
  /// All pieces so far.
  DEVCOMM_DEVICE void say_sent() const {
    arch::store<memory_order::release, scope::system>(
        reinterpret_cast<uint32_t*>(on_peer(on_.layout().sent(stripe(), self()))), state_.pieces);
  }
};

class receiving_connection : public connection_end<channel::direction::receive> {
 public:
  using connection_end::connection_end;

  DEVCOMM_DEVICE connection_watch watch() const {
    if (stage() == connection_stage::wait_rts) return {&rts()->number, state_.parts + 1};
    if (stage() == connection_stage::wait_data && state_.posted != state_.pieces) return {sent(), state_.pieces + 1};
    return {nullptr, 0};
  }

  /// As that of the other direction.
  DEVCOMM_DEVICE connection_step advance(status& failure) {
    for (;;) {
      switch (stage()) {
        case connection_stage::idle:
          if (!begin_message()) return connection_step::over;
          break;
        case connection_stage::wait_rts: {
          channel::message_rts made{};
          if (!read_note(rts(), state_.parts + 1, made)) return connection_step::waiting;
          if (!accept(made, failure)) return connection_step::failed;
          break;
        }
        case connection_stage::wait_data:
          if (!has_early_cts()) post_slots();
          if (state_.posted == state_.pieces || !has_data()) return connection_step::waiting;
          accept_data();
          break;
        default: return connection_step::copy;
      }
    }
  }

  /// The group has copied the piece, and synchronized.
  DEVCOMM_DEVICE void end_copy() {
    const uint64_t bytes = on_.piece(number())->bytes;
    if (stage() == connection_stage::copy_inline) {
      say_taken();
    } else {
      arch::fetch_add<memory_order::relaxed, scope::device>(on_.pool(), 0u - (1u << next_slot()));
    }
    count_piece(bytes, connection_stage::wait_data);
  }

  /// As that of the other direction.
  DEVCOMM_DEVICE wait_site wait() const {
    const bool data = stage() == connection_stage::wait_data;
    constexpr operation what = operation::message_receive;
    if (data && state_.posted == state_.pieces)
      return {what, state_.current, -1, 0, wait_condition::slot_free, 0, stripe(), on_.handle.offset};
    const uint32_t number = data ? state_.pieces : state_.parts;
    const wait_condition condition = data ? wait_condition::piece_sent : wait_condition::send_listed;
    return {what, state_.current, peer_number(), uint64_t{number} + 1, condition, 0, stripe(), on_.handle.offset};
  }

 protected:
  DEVCOMM_DEVICE const channel::posted_note<channel::message_rts>* rts() const {
    return here<const channel::posted_note<channel::message_rts>>(on_.layout().rts(stripe(), peer_, state_.parts));
  }
  DEVCOMM_DEVICE uint32_t* sent() const { return here<uint32_t>(on_.layout().sent(stripe(), peer_)); }
  /// An inline part has been taken: a piece that its sender does not count.
  DEVCOMM_DEVICE void say_taken() const {
    arch::store<memory_order::relaxed, scope::system>(sent(), state_.pieces + 1);
  }
  /// Whether the CTS waits for no RTS.
  DEVCOMM_DEVICE bool has_early_cts() const { return state_.window != 0 || state_.begin == state_.end || is_inline(); }

  DEVCOMM_DEVICE bool begin_message() {
    const channel::message* const m = next_message();
    if (m == nullptr) return false;
    if (has_early_cts()) send_cts(m->window, m->offset + state_.begin);
    go_to(connection_stage::wait_rts);
    return true;
  }
  DEVCOMM_DEVICE void send_cts(uint32_t window, uint64_t offset) {
    char* const at = on_peer(on_.layout().cts(stripe(), self(), state_.posted));
    post_note<memory_order::release>(
        at, ++state_.posted,
        channel::message_cts{state_.length, offset, window, on_.stripe.count, message_number(), 0});
  }

  /// With the CTS, by which the sender compares too, and stores nothing.
  DEVCOMM_DEVICE status refuse(const channel::message_rts& made) {
    if (!has_early_cts()) send_cts(0, 0);
    return report({made.bytes, made.stripes, made.message});
  }
  DEVCOMM_DEVICE bool accept(const channel::message_rts& made, status& failure) {
    if (!is_same(made)) {
      failure = refuse(made);
      return false;
    }
    if (is_inline()) {
      copy_piece(connection_stage::copy_inline, here<const char>(packets_from(peer_)), state_.data + state_.begin,
                 bytes_left());
    } else {
      go_to(connection_stage::wait_data);
    }
    return true;
  }
  /// Makes CTS for the next pieces, two at most, as far as there are slots.
  DEVCOMM_DEVICE void post_slots() {
    while (state_.posted - state_.pieces < 2 &&
           uint64_t{state_.posted - state_.pieces} * on_.layout().slot_bytes < bytes_left()) {
      const uint32_t slot = take_slot();
      if (slot >= on_.layout().slots) return;
      const uint32_t shift = state_.posted % 2 * 16;
      state_.slots = (state_.slots & ~(0xffffu << shift)) | slot << shift;
      send_cts(0, on_.layout().slot(stripe(), slot));
    }
  }
  /// A slot of the pool that was free, or their number.
  DEVCOMM_DEVICE uint32_t take_slot() const {
    for (;;) {
      const uint32_t used = arch::load<memory_order::relaxed, scope::device>(on_.pool());
      uint32_t slot = 0;
      while (slot < on_.layout().slots && (used >> slot & 1) != 0) ++slot;
      if (slot == on_.layout().slots) return slot;
      const uint32_t before = arch::fetch_or<memory_order::relaxed, scope::device>(on_.pool(), 1u << slot);
      if ((before >> slot & 1) == 0) return slot;
    }
  }
  /// That of the next piece.
  DEVCOMM_DEVICE uint32_t next_slot() const { return state_.slots >> state_.pieces % 2 * 16 & 0xffffu; }

  DEVCOMM_DEVICE bool has_data() const {
    return static_cast<int32_t>(arch::load<memory_order::acquire, scope::system>(sent()) - state_.pieces) > 0;
  }
  DEVCOMM_DEVICE void accept_data() {
    if (has_early_cts()) {
      count_piece(bytes_left(), connection_stage::wait_data);
    } else {
      copy_piece(connection_stage::copy, on_.slot(next_slot()), state_.data + state_.at, slot_piece());
    }
  }
};

}  // namespace devcomm::detail
