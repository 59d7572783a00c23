/// \file fabric_engine.hpp
/// Does what kernels of one rank post, over a fabric that promises no order.
///
/// *Data before signals.* The data of a put goes by writes into the peer's memory, in pieces. Signals, values and what
/// is to be done with data that was written go by messages, the *changes*, which the peer's engine does. Changes
/// of one rank to another are numbered, and are done in the order of their numbers whatever the order in which
/// they arrive. A write into host memory has a name, made of the number of its change, which the fabric tells the peer
/// when the data is there: so the change is sent beside the write, and waits at the peer for the name. A put is then
/// *in order* once the changes of all its pieces have numbers, and its signal may go with the last of them. Where the
/// fabric has no names, or writes to the memory of devices, a put is in order when its writes are complete, which says
/// that the peer's threads can see them. The message of a weak signal is sent when its own put is in order; that of a
/// strong one when all earlier puts of its context to that peer are, and their strong signals and values have been
/// sent. So no promise of a provider's about order is needed, but one about completion.
///
/// *Completion.* An operation is complete when its data and its signal have had their effect on the peer: what goes by
/// changes when the peer has acknowledged them, other writes when the fabric says so. So a fence has nothing to do:
/// kernels wait until all operations up to it are complete. Acknowledgements ride on every message. Where none has been
/// sent `acknowledged_after` the first change that is owed one, it goes by itself; a kernel's answer to a signal
/// usually comes first. At most `max_unacknowledged` changes are on the way to one peer; a quarter of them are
/// acknowledged at once.
///
/// *Small puts.* Payload of at most `surroundings::carried` bytes travels in the message, as a value does: one trip,
/// where a write has to be complete before its message starts. Where this rank's fabric or the peer's has no room for
/// as much in a message, less does. It is read when the put is taken, by a copy engine if it
/// is device memory, and the peer's engine writes it before it changes the signal. The peer's window need not
/// be known, nor registered.
///
/// *Memory that the fabric does not reach.* Payload passes through pieces of pinned host memory, and copies of the
/// device bring it from window to piece and from piece to window. Of a put: a copy to a piece of this rank's; a write
/// to a landing piece of the peer's, and its change, upon which the peer's engine copies it to the window. Without
/// names: the write; the message `land`, upon which the peer copies; its answer `landed`. Only then is that part of the
/// data there. Of a get: the message `lift`, upon which the peer copies
/// to a landing piece; its answer; a read; a copy to the window. A peer's landing pieces are divided among the ranks in
/// advance, and a rank alone uses its own. What of this is left out depends on which of the two windows the fabric
/// reaches. A window is kept until no copy reaches it. What a rank does to itself goes the same way, without fabric.
/// Where the fabric reaches memory of devices, only values, and what a rank does to itself, take this way there.
///
/// *Places.* The first operation on a peer's window asks the peer for its key, which it answers as long as it has the
/// window.
///
/// *The end.* That the fabric has sent a message does not say that the peer has it. So a rank that ends tells the peers
/// that it has met how many of their changes it has done, and stays until they have answered.
/// A write may be over here long after its change is acknowledged, when the peer has ended or the connection is closed:
/// the put has been done all the same, and is complete when the fabric lets go of its source, with an error or without.
///
/// *Shares.* Operations, bytes and pieces in flight, and buffers of messages, are for all peers. Of each, what is for
/// one peer may be at most twice what is left (`may_take`): however much is posted to peers that do not answer, some is
/// left for others, and one peer alone has two thirds. Some buffers are for answers and acknowledgements only.
///
/// *Limits.* An operation that waits its turn fails when its peer has done nothing for `surroundings::limit`; one whose
/// data or message is on its way, when nothing of it has come back for half as long again, whatever else the peer does.
/// Each copy, transfer and answer of a piece brings its operation on.
#pragma once

#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_message.hpp"
#include "transport/queue.hpp"
#include "transport/staging.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// One thread at a time calls it.
class fabric_engine {
 public:
  /// What a rank tells the others before they start.
  struct card {
    fabric_address address;
    fabric_secret secret;
    std::uint64_t carried;  ///< bytes of a put that a message to the rank carries, at most
  };
  struct surroundings {
    int rank;
    std::vector<std::unique_ptr<network_queue>>& queues;  ///< of its contexts
    std::shared_ptr<const window_table> windows;
    /// Told of the first operation that cannot be done; nothing is posted to peers after it, but peers are answered.
    std::function<void(const std::string&)> fail;
    /// Told of messages that are dropped.
    std::function<void(const std::string&)> report;
    std::chrono::milliseconds limit;  ///< for an operation, from its latest progress on
    std::uint32_t first_context = 0;  ///< what the first of `queues` is called in texts
    /// For windows that are `on_device`.
    struct {
      bool fabric_reaches = false;  ///< them: then pinned memory is for values, and for what a rank does to itself
      memory_port* memory = nullptr;
      int device = 0;
      backend_traits shape{};
      std::unique_ptr<copy_engine> copies{};
    } staged{};
    std::size_t carried = 0;  ///< bytes of a put that its message carries, at most; less where messages are short
    /// Told when a peer that this rank has met has ended, all of whose operations are done.
    std::function<void(int rank)> departed{};
  };
  /// Bytes that a message may carry among so many ranks: payload on its way to device memory has places in pinned
  /// memory, for all peers 8 MiB up to 2,048 ranks, and 4 KiB for each peer beyond.
  [[nodiscard]] static constexpr std::size_t carried_among(std::uint32_t ranks) {
    constexpr std::size_t least = 64;
    constexpr std::size_t memory = std::size_t{8} << 20;
    const std::size_t share = memory / (std::size_t{ranks} * max_unacknowledged) / least * least;
    return share < least ? least : share > max_carried ? max_carried : share;
  }

  fabric_engine(surroundings about, std::unique_ptr<fabric> reached);
  ~fabric_engine();
  fabric_engine(const fabric_engine&) = delete;
  fabric_engine& operator=(const fabric_engine&) = delete;

  [[nodiscard]] card own_card() const { return {fabric_->address(), secret_, about_.carried}; }
  /// From here on peers are reached; `cards` by rank.
  void connect(const std::vector<card>& cards);

  /// Does what can be done now; whether there was anything.
  [[nodiscard]] bool step();
  /// Nothing is posted, on its way or owed to peers; of a failed rank, nothing that it owes to peers.
  [[nodiscard]] bool idle() const;
  /// Nothing of this rank's own is posted or on its way.
  [[nodiscard]] bool is_done() const;
  /// All that was posted has had its effect on peers. Where it is not complete, as the fabric holds on to sources, its
  /// peers have left.
  [[nodiscard]] bool is_done_by_peers() const;
  /// Tells the peers that it has met that this rank ends: what they post to it fails from here on.
  void send_shutdown_notice();
  /// Those peers know.
  [[nodiscard]] bool has_parted() const;
  /// An operation of this rank's could not be done.
  [[nodiscard]] bool failed() const { return failed_; }
  /// Whether the fabric uses the memory of `window` for this rank's operations. When it does not, it knows the window
  /// no longer, and peers are refused.
  [[nodiscard]] bool forget(std::uint32_t window);
  /// The same, whatever uses it fails; where the fabric moves data there, the engine gives the fabric up.
  void take_away(std::uint32_t window);
  /// Nothing of this rank's memory is the fabric's from here on, and peers learn from theirs that it is gone.
  void close();
  /// By another thread, while this one does not come back from the fabric: when it does, the engine does nothing more.
  void leave_alone() noexcept { left_alone_ = true; }

  static constexpr std::size_t max_in_flight = 256;                    ///< operations, of all contexts
  static constexpr std::uint64_t max_bytes = std::uint64_t{16} << 20;  ///< in flight
  static constexpr std::uint64_t max_piece = std::uint64_t{1} << 20;   ///< of one write or read
  static constexpr std::uint64_t max_unacknowledged = 64;              ///< messages to one peer
  static constexpr std::chrono::microseconds acknowledged_after{5};
  static constexpr std::size_t receive_buffers = 256;
  static constexpr std::size_t send_buffers = 128;
  static constexpr std::size_t answer_buffers = 16;         ///< of those, for what operations of this rank do not send
  static constexpr std::uint32_t min_landing_bytes = 1024;  ///< of a piece, however many ranks share the memory

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// What became of a look at this rank's memory.
  struct own_memory {
    refusal why = refusal::no_window;
    std::uint64_t bytes = 0;  ///< of the window
    int code = 0;             ///< of the fabric, which does not take it
  };
  struct flight {
    std::uint32_t context = 0;
    posted_operation operation{};
    std::list<flight>::iterator self;
    bool data_is_ordered = false;  ///< it is at the peer before what messages from here on say
    bool is_in_lane = false;
    bool has_message = false;  ///< which is not acknowledged
    bool carries = false;      ///< which carries its data
    std::vector<std::byte> carried;
    char* local = nullptr;
    const fabric_region* region = nullptr;  ///< while data moves
    remote_place remote;
    bool is_staged = false;  ///< this rank's window is reached by copies
    bool lands = false;      ///< the peer's is
    payload_write write = payload_write::none;
    std::uint64_t issued = 0;     ///< bytes
    std::uint64_t announced = 0;  ///< of those, by messages
    std::uint32_t pending = 0;    ///< pieces
    clock::time_point progressed;
    std::uint32_t out = 0;  ///< pieces, messages and questions that are with the fabric or the peer
  };
  /// Of a peer's window.
  struct known_place {
    bool is_asked = false;  ///< the question was sent
    bool is_known = false;
    refusal why = refusal::none;
    remote_place place;
    std::uint64_t bytes = 0;
    bool lands = false;
    payload_write write = payload_write::none;
    int code = 0;
    std::vector<flight*> waiting;
  };
  /// A copy between a window of this rank's and pinned memory.
  struct window_copy {
    own_memory found;
    std::optional<std::uint64_t> number;  // none: it is done
    window_table::hold memory;
  };
  /// A peer's change whose value may be on its way to the window.
  struct begun_change {
    fabric_message change;
    window_copy value;
    bool awaits_write = false;  ///< of the peer
  };
  /// A change that the peer has not acknowledged.
  struct sent_change {
    flight* of;
    bool is_message = true;    ///< the operation's: its value or signal
    std::size_t piece = none;  ///< that it announces
  };
  /// A peer's change that came before earlier ones, and what it carries.
  struct early_change {
    fabric_message change;
    std::vector<std::byte> carried;
  };
  struct posted_message {
    fabric_message message;
    flight* of;
  };
  /// What is taken for one peer of what there is for all.
  struct held_shares {
    std::size_t flights = 0;
    std::size_t sends = 0;
    std::size_t pieces = 0;
    std::size_t own_pieces = 0;  // of pinned memory
    std::uint64_t bytes = 0;     // of pieces
  };
  /// Whether a peer for which `held` is taken may have `more` of something of which `left` is free.
  [[nodiscard]] static constexpr bool may_take(std::uint64_t held, std::uint64_t left, std::uint64_t more = 1) {
    return more <= left && (held == 0 || held + more <= 2 * (left - more));
  }
  /// What there is between this rank and a peer.
  struct link {
    fabric_secret secret{};                       // the peer's
    std::size_t carried = 0;                      // bytes of a put that a message to it carries, at most
    std::map<std::uint32_t, known_place> places;  // by window
    std::deque<flight*> movers;                   // have pieces to issue
    std::vector<std::deque<flight*>> lanes;       // by context, in order: what is neither complete nor a sent message
    std::deque<posted_message> outgoing;          // changes without a number
    std::deque<sent_change> unacknowledged;       // by number
    std::uint64_t next = 0;                       // number of the next change to the peer
    std::deque<fabric_message> answers;           // places and refusals
    std::map<std::uint64_t, early_change> early;
    std::set<std::uint64_t> early_writes;    // that have arrived, by the numbers of their changes
    std::uint64_t expected = 0;              // number of the next change of the peer
    std::deque<begun_change> begun;          // changes below that are not done
    std::deque<std::size_t> ready;           // pieces for the fabric
    remote_place landing;                    // the peer's landing pieces for this rank
    std::uint32_t landing_bytes = 0;         // of each
    std::vector<std::size_t> landing_users;  // pieces of this rank's, by landing piece
    std::vector<std::uint32_t> free_landing;
    bool owes = false;  // an acknowledgement
    clock::time_point owes_since{};
    std::uint64_t said_done = 0;  // `changes_done` of the latest message to the peer
    bool acknowledging = false;   // one is on its way
    held_shares held;
    clock::time_point heard;         // when the peer last did something
    clock::time_point brought_on{};  // when it last acknowledged a change: all behind it have come nearer
    clock::time_point again{};       // when what could not be sent is tried again
    bool met = false;                // a message came from the peer or went to it
    bool has_spoken = false;         // a message came from it
    bool has_left = false;           // the peer ended
    bool said_leave = false;         // this rank ends, which the peer hears
    bool heard_leave = false;        // the peer knows, or cannot be told
    bool refused = false;            // a change of the peer: none is begun any more
  };
  enum class piece_stage : std::uint8_t {
    reading,         ///< a copy brings it to this rank's piece
    asked_to_lift,   ///< the peer: a copy brings it to the peer's landing piece
    ready,           ///< for the fabric
    moving,          ///< the fabric moves it
    unacknowledged,  ///< it has left, and the peer has not acknowledged its change
    asked_to_land,   ///< the peer: a copy brings it from the peer's landing piece
    writing,         ///< one brings it from this rank's piece
  };
  struct piece {
    flight* of = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the operation's data
    std::uint64_t serial = 0;
    piece_stage at = piece_stage::ready;
    bool is_sent = false;                   // of `asked_to_...`: the message was
    std::optional<std::uint64_t> change{};  // its number, where one announces the piece
    bool is_acknowledged = false;           // the change
    std::optional<std::size_t> own;         // piece of pinned memory
    std::optional<std::uint32_t> landing;   // piece of the peer's
    window_copy copy{};
  };
  /// What a peer asked for: `land` or `lift`.
  struct landing_work {
    fabric_message asked;
    window_copy copy;
  };
  struct sent_message {
    fabric_message message;
    int peer = -1;
    flight* of = nullptr;  // null: an answer
  };

  [[nodiscard]] bool handle_completions();
  void handle_received(std::size_t buffer, const fabric_completion& over);
  void handle_sent(std::size_t slot, const std::string& error);
  void handle_moved(std::size_t slot, const std::string& error);
  /// A write of a peer's has arrived.
  void handle_arrival(std::uint32_t name);
  void handle(const fabric_message& message, std::span<const std::byte> carried);
  void handle_change(const fabric_message& message, std::span<const std::byte> carried);
  /// Whether it makes sense.
  [[nodiscard]] bool handle_acknowledgement(link& from, const fabric_message& message);
  /// Of the peer's changes, all below it are done.
  [[nodiscard]] static std::uint64_t changes_done_for(const link& peer) { return peer.expected - peer.begun.size(); }
  /// Whether that is to be acknowledged by a message of its own, now.
  [[nodiscard]] static bool is_acknowledgement_due(const link& to);
  void handle_refusal(link& from, const fabric_message& message);
  void handle_place(link& from, const fabric_message& message);
  void handle_shutdown_notice(link& from, const fabric_message& message);
  void handle_landing(link& from, const fabric_message& message);
  void handle_landed(link& from, const fabric_message& message);
  /// Tells where this rank's window is.
  void answer(link& to, std::uint32_t window);
  /// Begins to do a peer's change; why not, where it does not.
  [[nodiscard]] own_memory begin_change(link& from, const fabric_message& change, std::span<const std::byte> carried);
  /// The same for the change that is next; whether it can be done.
  [[nodiscard]] bool begin_next_change(link& from, const fabric_message& change, std::span<const std::byte> carried);
  /// Begins to bring what a peer's write has brought to the window.
  [[nodiscard]] window_copy from_landing(const fabric_message& change);
  /// Tells the peer that a change cannot be done: nor can what follows.
  void refuse(link& from, const fabric_message& change, const own_memory& found);
  /// Of peers' writes into a window that the fabric no longer knows: they do not arrive.
  void refuse_writes_to(std::uint32_t window);
  /// Those whose values have arrived, in order.
  void finish_changes(link& from);
  /// The peer has done the oldest change that it had not acknowledged.
  void finish_oldest(link& to);
  /// A peer that has ended waits for none.
  static void send_answer(link& to, const fabric_message& answer) {
    if (!to.has_left) to.answers.push_back(answer);
  }
  void drop(const std::string& why);

  [[nodiscard]] bool take_posted();
  void begin(flight& one);
  void do_here(flight& one);
  /// Of a small put: reads its source, for its message. False where the fabric is to move it.
  [[nodiscard]] bool begin_to_carry(flight& one);
  /// Once the peer's window is known.
  void begin_to_move(flight& one, const known_place& at);
  void arrived(flight& one);
  /// What is sent from here on is behind its data at the peer: so may its message be.
  void put_in_order(flight& one);
  /// The message with which an operation whose data is in order leaves its lane; `overtakes` says that it would be sent
  /// before what is in `outgoing`. None where there is no message, or where it has to wait for others.
  [[nodiscard]] std::optional<fabric_message> message_to_leave_with(const flight& one, bool overtakes) const;
  /// Its message, if it has one, is on its way.
  void leave_lane(flight& one);
  /// Where nothing of it is left to be waited for.
  void complete_if_done(flight& one);
  /// Sends the messages of a lane that may be sent.
  void review(std::uint32_t context, std::uint32_t peer);
  void complete(flight& one);
  /// Calls `use` with an entry of this rank's windows that has the bytes; says why there is none.
  template <class Use>
  [[nodiscard]] own_memory with_own(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes, const Use& use);
  [[nodiscard]] const fabric_region& region_of(std::uint32_t window, const window_table::entry& memory);
  void fail_at_window(const flight& one, const std::string& whose, bool is_local, const own_memory& found);

  [[nodiscard]] bool issue();
  /// Gives the fabric pieces that are ready. Peers take turns, by pieces.
  [[nodiscard]] bool give_ready();
  /// The first ready piece of a link; whether the fabric took it.
  [[nodiscard]] bool give_to_fabric(link& to);
  [[nodiscard]] bool has_posted() const;  ///< something that no operation was made of yet
  /// All of the operation has had its effect on the peer: only the fabric has not let go of its source.
  [[nodiscard]] bool is_done_by_peer(const flight& one) const;
  /// Sends the change that a write of the piece will bring payload for; whether it has been. That of the last piece is
  /// the operation's message too, where the message need not wait.
  [[nodiscard]] bool announce(link& to, std::size_t piece);
  [[nodiscard]] std::uint64_t bytes_of_next_piece(const link& to) const;
  /// Whether the peer may have another piece of what all peers share.
  [[nodiscard]] bool has_share(const link& to) const;
  /// For a next piece in what all peers share.
  [[nodiscard]] bool has_room(const link& to) const;
  /// The next piece of the first mover, for which there is room.
  void begin_piece(link& to);
  /// What follows for a piece that has come through its stage.
  void advance(std::size_t piece);
  void end(std::size_t piece);
  /// Between this rank's window that the piece's operation names and its pinned memory.
  void begin_copy(std::size_t piece, piece_stage stage);
  /// Asks the piece's peer to `land` or to `lift` it.
  void ask(std::size_t piece, message_kind kind);
  /// The piece that a peer's answer, or a message to it, is about; none where it is about none.
  [[nodiscard]] std::optional<std::size_t> piece_of(const link& to, const fabric_message& message) const;
  [[nodiscard]] window_copy copy_window(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes, char* pinned,
                                        bool to_window);
  [[nodiscard]] bool is_done(const window_copy& copy) const;
  /// Looks what copies are done; whether any is, or is under way.
  [[nodiscard]] bool handle_copies();
  void divide_landing();
  /// Whether payload of peers takes the way through pinned memory on this side.
  [[nodiscard]] bool stages(const window_table::entry& memory) const {
    return memory.on_device && !about_.staged.fabric_reaches;
  }
  /// In landing memory, of piece `slot` of a peer.
  [[nodiscard]] std::size_t landing_offset(std::size_t rank, std::uint32_t slot) const {
    return (rank * landing_pieces_ + slot) * landing_bytes_;
  }
  [[nodiscard]] std::span<std::byte> send_buffer(std::size_t slot) {
    return std::span(send_bytes_).subspan(slot * buffer_bytes_, buffer_bytes_);
  }
  [[nodiscard]] std::span<std::byte> receive_buffer(std::size_t slot) {
    return std::span(receive_bytes_).subspan(slot * buffer_bytes_, buffer_bytes_);
  }
  /// Of a place for the payload of a peer's change, in pinned memory.
  [[nodiscard]] std::size_t value_bytes() const { return std::max(sizeof(std::uint64_t), about_.carried); }
  [[nodiscard]] std::size_t rank_of(const link& one) const { return static_cast<std::size_t>(&one - links_.data()); }
  /// Whether the fabric moves data between the operation's window on this rank and a peer.
  [[nodiscard]] bool is_moving(const flight& one) const;
  [[nodiscard]] bool is_own(const link& one) const { return &one == &links_[static_cast<std::size_t>(about_.rank)]; }
  [[nodiscard]] bool send_messages();
  [[nodiscard]] bool send_messages(int peer, link& to);
  [[nodiscard]] bool send(int peer, const fabric_message& message, flight* of);
  void check_limits();
  void fail(const flight& one, const std::string& why);
  void fail_because_it_left(const flight& one) {
    fail(one,
         "that rank has destroyed its device communicator: let all ranks pass a barrier on the host between the last "
         "operation and the end of a device communicator");
  }
  /// What the fabric says of an operation.
  void fail_in_fabric(const flight& one, const std::string& error);
  [[nodiscard]] link& link_to(const flight& one) { return links_[one.operation.head.peer]; }
  [[nodiscard]] const link& link_to(const flight& one) const { return links_[one.operation.head.peer]; }

  surroundings about_;
  std::unique_ptr<fabric> fabric_;
  std::uint64_t piece_bytes_;  // of one write or read
  fabric_secret secret_;
  std::vector<link> links_;  // by rank
  std::list<flight> flights_;
  std::map<std::uint32_t, std::unique_ptr<fabric_region>> regions_;  // by window
  std::vector<piece> pieces_;
  std::vector<std::size_t> free_pieces_;
  std::vector<sent_message> sends_;
  std::vector<std::size_t> free_sends_;
  // Messages, and room for what each carries.
  std::size_t buffer_bytes_;
  std::vector<std::byte> send_bytes_;
  std::vector<std::byte> receive_bytes_;
  std::vector<std::byte> carried_;  // by the message that is handled
  std::unique_ptr<fabric_region> send_memory_;
  std::unique_ptr<fabric_region> receive_memory_;
  // Of memory that the fabric does not reach. Copies come to an end before the memory that they use.
  std::unique_ptr<staging> own_pieces_;  // null: there is none
  std::unique_ptr<host_memory> landing_;
  std::unique_ptr<host_memory> values_;  // of changes
  std::unique_ptr<fabric_region> own_region_;
  std::unique_ptr<fabric_region> landing_region_;
  std::uint32_t landing_pieces_ = 0;  // of each peer
  std::uint32_t landing_bytes_ = 0;   // of a piece
  std::list<landing_work> landings_;
  std::vector<std::size_t> copying_;  // pieces
  std::unique_ptr<copy_engine> copies_;
  std::uint64_t serials_ = 0;
  std::uint64_t bytes_in_flight_ = 0;
  std::size_t first_link_ = 0;   // whose turn it is to begin a piece
  std::size_t first_ready_ = 0;  // to give one to the fabric
  std::uint32_t first_queue_ = 0;
  std::uint64_t dropped_ = 0;
  clock::time_point checked_{};
  bool stood_still_ = false;  // before the latest check
  bool failed_ = false;
  std::array<fabric_completion, 32> over_;  // of a poll
  std::atomic<bool> left_alone_ = false;
};

template <class Use>
fabric_engine::own_memory fabric_engine::with_own(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes,
                                                  const Use& use) {
  own_memory found;
  static_cast<void>(about_.windows->with(window, [&](const window_table::entry& memory) {
    const bool inside = offset <= memory.bytes && bytes <= memory.bytes - offset;
    found = {inside ? refusal::none : refusal::past_end, memory.bytes};
    if (inside) use(memory);
  }));
  return found;
}

}  // namespace devcomm::host::detail
