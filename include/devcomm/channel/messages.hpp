/// \file messages.hpp
/// Groups of sends and receives: what a message is, and the connections that carry them: how to ask for them and how
/// their memory is laid out. `channel::group_session` moves the messages.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/team.hpp>
#include <devcomm/window.hpp>

namespace devcomm::detail {

/// Bytes of a message that a stripe moves, where it has as many.
inline constexpr uint32_t min_part = 4096;

}  // namespace devcomm::detail

namespace devcomm::channel {

enum class direction : uint32_t { send, receive };

/// One operation of a group: this rank sends `bytes` bytes to a peer, or receives them from it. Plain data.
struct message {
  char* data;       ///< this rank's; not written by a send
  uint64_t bytes;   ///< may be 0
  uint64_t offset;  ///< of `data` in its window
  uint32_t window;  ///< 1 more than the id of the window that a peer may store into; 0: none
  int32_t peer;     ///< member of the session's team; may be this rank
  direction way;
  uint32_t reserved;

  /// From any global memory of this rank; shared memory will not do.
  DEVCOMM_HOST_DEVICE static message send(int peer, const void* data, uint64_t bytes) {
    return {static_cast<char*>(const_cast<void*>(data)), bytes, 0, 0, peer, direction::send, 0};
  }
  /// Into any global memory of this rank: through slots of the pool.
  DEVCOMM_HOST_DEVICE static message receive(int peer, void* data, uint64_t bytes) {
    return {static_cast<char*>(data), bytes, 0, 0, peer, direction::receive, 0};
  }
  /// Into a window, which the lists of both ranks name: the sender stores straight into it.
  template <class T>
  DEVCOMM_HOST_DEVICE static message receive(int peer, const sym_ptr<T>& to, uint64_t count) {
    DEVCOMM_ASSERT(count <= (to.memory.bytes - to.offset) / sizeof(T), "the message is longer than its window");
    return {reinterpret_cast<char*>(to.local()),
            count * sizeof(T),
            to.offset,
            to.memory.id + 1,
            peer,
            direction::receive,
            0};
  }
};

static_assert(sizeof(message) == 40, "lists of messages are in memory that host and device share");

/// The operations of one group on one rank, and the windows that any rank receives into, both in memory that the kernel
/// reads.
struct message_list {
  const message* messages;
  uint32_t count;
  uint32_t window_count;
  const window* windows;
};

/// A message is divided into stripes, one for each group of threads that moves messages, usually a block of the grid.
/// Which of them the calling group moves.
struct stripe {
  uint32_t index;
  uint32_t count;  ///< the same on all ranks
};

/// Instead of a peer's number of bytes, in a failure record: the window that it receives into is not in this rank's
/// list, or there is no message to match.
inline constexpr uint64_t no_such_window = ~uint64_t{0};
inline constexpr uint64_t no_such_message = ~uint64_t{0} - 1;

/// RTS (request to send): what a sender tells a receiver of its next message in a stripe.
struct message_rts {
  uint64_t bytes;
  uint32_t stripes;
  uint32_t message;  ///< number of the message in its connection

  static constexpr uint32_t words = 2;
};

/// CTS (clear to send): what a receiver tells a sender: where to store the next piece of a message, or that it has an
/// inline one.
struct message_cts {
  uint64_t bytes;   ///< of the whole message
  uint64_t offset;  ///< in the window, or of a slot from the handle's offset on
  uint32_t window;  ///< 1 more than its id; 0: a slot of the receiver's pool
  uint32_t stripes;
  uint32_t message;  ///< number of the message in its connection
  uint32_t reserved;

  static constexpr uint32_t words = 4;
};

/// An RTS or a CTS as it travels: in packets of 8 bytes, each with its flag as in `lsa::ll_session`, which need no
/// order among them. Both the flags and `number` are one more than the number of the part, or of the piece.
template <class Note>
struct alignas(16) posted_note {
  char packets[Note::words * 16];
  uint32_t number;
  uint32_t reserved[3];
};

/// What a rank keeps of one direction of a connection in one stripe. Used by one group alone.
struct alignas(16) connection_state {
  // Between groups of messages. They wrap around.
  uint32_t messages;  ///< of the connection, in all stripes
  uint32_t parts;     ///< of messages, in this stripe
  uint32_t pieces;    ///< of parts, in this stripe: moved and, of a receive, taken
  uint32_t posted;    ///< pieces for which CTS have been made; of a receive
  // Within one.
  uint32_t next;     ///< index in the list of the message to process
  uint32_t current;  ///< message of the list that is under way
  uint32_t stage;
  uint32_t window;  ///< of the message
  uint64_t length;  ///< of the message
  uint64_t begin;   ///< of the part, in bytes of the message
  uint64_t end;
  uint64_t at;     ///< first byte that has not been moved
  char* data;      ///< this rank's first byte of the message
  uint32_t slots;  ///< of the pieces that have a CTS: of the even one, and 16 bits higher of the odd one
  uint32_t peer;   ///< 1 more than its world rank; 0 before the first group
};

/// What a group is to copy for one direction of a connection.
struct alignas(16) connection_piece {
  const char* from;
  char* to;
  uint64_t bytes;
  uint32_t flag;     ///< of the packets that it goes in; 0: it goes as it is
  uint32_t index;    ///< of the message in the list
  uint32_t number;   ///< of the piece in its connection
  uint32_t sent[2];  ///< warps that have sent theirs, of an even and an odd piece, while some have not
};

static_assert(sizeof(connection_state) + sizeof(connection_piece) == 128, "see connection_layout::state");

/// Where the parts of the connections of `members` ranks are on every rank, in bytes from the handle's offset. Stripes
/// share nothing. The starts are computed once, by the host: a thread that serves connections has no time to.
struct connection_layout {
  uint32_t stripes;
  uint32_t members;
  uint32_t slots;         ///< of the pool of each stripe
  uint32_t slot_bytes;    ///< a multiple of 128
  uint32_t inline_bytes;  ///< a multiple of 64; 0: nothing goes inline
  uint32_t own_bytes;     ///< of a stripe
  uint64_t states, cts_begin, rts_begin, sents, inlines, pools;
  uint64_t bytes;  ///< of all

  DEVCOMM_HOST_DEVICE static constexpr connection_layout of(uint32_t stripes, uint32_t members, uint32_t slots,
                                                            uint32_t slot_bytes, uint32_t inline_bytes) {
    using detail::round_up_to_line;
    const uint64_t connections = uint64_t{stripes} * members;
    connection_layout made{stripes, members, slots, slot_bytes, inline_bytes, 0, 0, 0, 0, 0, 0, 0, 0};
    made.own_bytes = static_cast<uint32_t>(round_up_to_line(16 + uint64_t{2} * made.mask_words() * sizeof(uint32_t)));
    made.states = uint64_t{stripes} * made.own_bytes;
    made.cts_begin = made.states + connections * 2 * 128;
    made.rts_begin = made.cts_begin + connections * 2 * sizeof(posted_note<message_cts>);
    made.sents = made.rts_begin + connections * 2 * sizeof(posted_note<message_rts>);
    made.inlines = round_up_to_line(made.sents + connections * 16);
    made.pools = made.inlines + connections * 4 * inline_bytes;
    made.bytes = made.pools + uint64_t{stripes} * slots * slot_bytes;
    return made;
  }

  /// Words of a set of connections: two bits for each member.
  DEVCOMM_HOST_DEVICE constexpr uint32_t mask_words() const { return (2 * members + 31) / 32; }

  /// This rank's words: `wake`, `outcome`, the pool's slots in use, and two sets of connections.
  DEVCOMM_HOST_DEVICE constexpr uint64_t own(uint32_t stripe) const { return uint64_t{stripe} * own_bytes; }
  DEVCOMM_HOST_DEVICE constexpr uint64_t mask(uint32_t stripe, uint32_t parity) const {
    return own(stripe) + 16 + parity * mask_words() * sizeof(uint32_t);
  }
  /// What this rank keeps of what it sends to a member, or receives from it.
  DEVCOMM_HOST_DEVICE constexpr uint64_t state(uint32_t stripe, uint32_t member, direction way) const {
    return states + (at(stripe, member) * 2 + static_cast<uint32_t>(way)) * 128;
  }
  /// Behind the state.
  DEVCOMM_HOST_DEVICE constexpr uint64_t piece(uint32_t stripe, uint32_t member, direction way) const {
    return state(stripe, member, way) + sizeof(connection_state);
  }
  /// Stored by the receiver `member`, for even and odd pieces.
  DEVCOMM_HOST_DEVICE constexpr uint64_t cts(uint32_t stripe, uint32_t member, uint32_t piece) const {
    return cts_begin + (at(stripe, member) * 2 + piece % 2) * sizeof(posted_note<message_cts>);
  }
  /// Stored by the sender `member`, for even and odd parts.
  DEVCOMM_HOST_DEVICE constexpr uint64_t rts(uint32_t stripe, uint32_t member, uint32_t part) const {
    return rts_begin + (at(stripe, member) * 2 + part % 2) * sizeof(posted_note<message_rts>);
  }
  /// Pieces that `member` has sent here, stored by it; inline ones, by this rank.
  DEVCOMM_HOST_DEVICE constexpr uint64_t sent(uint32_t stripe, uint32_t member) const {
    return sents + at(stripe, member) * 16;
  }
  /// Packets of an inline part of `member`, stored by it, and zeroed by this rank; for even and odd parts.
  DEVCOMM_HOST_DEVICE constexpr uint64_t packets(uint32_t stripe, uint32_t member, uint32_t part) const {
    return inlines + (at(stripe, member) * 2 + part % 2) * 2 * inline_bytes;
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t slot(uint32_t stripe, uint32_t slot) const {
    return pools + (uint64_t{stripe} * slots + slot) * slot_bytes;
  }

 private:
  DEVCOMM_HOST_DEVICE constexpr uint64_t at(uint32_t stripe, uint32_t member) const {
    return uint64_t{stripe} * members + member;
  }
};

/// Connections of one team. Plain data; pass it to the kernel.
struct connection_handle : resource_handle {
  connection_layout layout;
};

/// Asks for connections between all members of a team: `needs.add(channel::connections{comm.lsa(), blocks})`.
///
/// A part of a message of up to `inline_bytes` goes with its RTS, in one trip. Longer ones need no buffer where they
/// are received into a window; the rest goes through a pool of slots that all connections of a stripe share. So a
/// rank's memory is `stripes * ((528 + 4 * inline_bytes) * n + slots * slot_bytes)` bytes and some lines for `n`
/// members.
struct connections {
  team members;
  uint32_t stripes;                    ///< at most: blocks of the kernels that use them
  uint32_t slots = 4;                  ///< of a stripe's pool; 1 to 32
  uint32_t slot_bytes = 65536;         ///< rounded up to lines of 128
  uint32_t inline_bytes = fit_inline;  ///< rounded up to 64

  /// What is outside these bounds is taken for the nearest within.
  static constexpr uint32_t max_slots = 32;
  static constexpr uint32_t max_slot_bytes = 1u << 30;
  static constexpr uint32_t max_inline_bytes = 1u << 16;
  /// In place of `inline_bytes`: a stripe's smallest part, or as much of it as all packets fit into 8 MiB.
  static constexpr uint32_t fit_inline = ~0u;

  DEVCOMM_HOST_DEVICE constexpr connection_handle add_to(requirements& needs) const {
    const auto size = static_cast<uint32_t>(members.size);
    const uint32_t pool = slots == 0 ? 1 : slots > max_slots ? max_slots : slots;
    const uint32_t wanted = slot_bytes == 0 ? 1 : slot_bytes > max_slot_bytes ? max_slot_bytes : slot_bytes;
    const auto rounded = static_cast<uint32_t>(detail::round_up_to_line(wanted));
    const uint32_t packed = inline_size();
    const uint64_t of_slots = detail::limited_product(uint64_t{stripes} * pool, rounded);
    const uint64_t of_packets = detail::limited_product(uint64_t{stripes} * size, 4 * packed + 1024);
    constexpr uint64_t endless = uint64_t{1} << 60;
    const bool fits = of_slots < endless && of_packets < endless;
    const auto layout = connection_layout::of(stripes, size, pool, rounded, packed);
    const resource_shape shape{size, stripes, uint64_t{packed} << 40 | uint64_t{rounded} << 8 | pool};
    return {needs.add_items(fits ? layout.bytes : endless, 128, shape, stripes, size), layout};
  }

 private:
  DEVCOMM_HOST_DEVICE constexpr uint32_t inline_size() const {
    if (inline_bytes != fit_inline)
      return ((inline_bytes < max_inline_bytes ? inline_bytes : max_inline_bytes) + 63) / 64 * 64;
    constexpr uint64_t room = 2u << 20;  // of messages; their packets take twice as much, and have two slots
    uint32_t size = detail::min_part;
    while (size >= 64 && uint64_t{stripes} * static_cast<uint32_t>(members.size) * size > room) size /= 2;
    return size >= 64 ? size : 0;
  }
};

/// The part of a message that one stripe moves.
struct message_part {
  uint64_t begin;
  uint64_t end;
  bool is_any;  ///< whether the stripe takes part: one stripe does in an empty message
};

/// How `bytes` bytes of message `number` from member `sender` to member `receiver` of `members` are shared out. Both
/// ends compute it. Short messages take few stripes, and those that a rank sends to, or receives from, different ranks
/// start in different stripes. Divides 64 bits only where a message has 2^32 lines of 128 bytes.
DEVCOMM_HOST_DEVICE constexpr message_part part_of_stripe(uint64_t bytes, int sender, int receiver, int members,
                                                          uint32_t number, uint32_t stripe, uint32_t stripes) {
  const auto distance = static_cast<uint32_t>(receiver < sender ? receiver - sender + members : receiver - sender);
  const uint32_t sum = distance % stripes + number % stripes;
  const uint32_t first = sum < stripes ? sum : sum - stripes;
  const uint64_t position = stripe < first ? stripe + stripes - first : stripe - first;
  constexpr uint64_t least = detail::min_part;
  const uint64_t lines = bytes / 128 + (bytes % 128 != 0 ? 1 : 0);
  const uint64_t length = bytes <= least * stripes ? least
                          : lines >> 32 == 0       ? uint64_t{(static_cast<uint32_t>(lines) - 1) / stripes + 1} * 128
                                                   : ((lines - 1) / stripes + 1) * 128;
  const uint64_t begin = position * length < bytes ? position * length : bytes;
  const uint64_t end = length < bytes - begin ? begin + length : bytes;
  return {begin, end, begin < end || position == 0};
}

}  // namespace devcomm::channel
