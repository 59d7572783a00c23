/// \file fabric_engine.hpp
/// Executes the operations that the kernels of one rank post, over a fabric that promises no order.
///
/// *Ordering*. The payload of a put is written to the peer's memory in fragments. Signals, values, and the notice that
/// a fragment was written are messages, the *changes*, which the peer's engine applies. Changes from one rank to
/// another are numbered, and applied in that order whatever the order in which they arrive. A write to host memory
/// carries immediate data, made from the number of its change, which the fabric delivers with the data: so the change
/// is sent beside the write and waits at the peer for the immediate data. A put is *ordered* once the changes of all
/// its fragments have numbers; its signal may travel in the last one. Where the fabric has no immediate data, or writes
/// to device memory, a put is ordered when its writes have completed, which means that the peer's threads can see them.
/// A weak signal is sent when its own put is ordered; a strong one when all earlier puts of its context to that peer
/// are ordered, and their strong signals and values have been sent. This needs no ordering guarantee of a provider,
/// only that completion means visibility.
///
/// *Completion*. An operation completes when its data and its signal have taken effect at the peer: changes when the
/// peer has acknowledged them, other writes when the fabric says so. A fence has nothing to do: kernels wait until all
/// operations before it are complete. Every message carries an acknowledgment. If none was sent `acknowledged_after`
/// the oldest change that needs one, a message of its own is sent; usually a kernel's answer to a signal comes first.
/// At most `max_unacknowledged` changes are on the way to one peer; a quarter of that is acknowledged at once.
///
/// *Small puts*. Payload of up to `fabric_endpoint::carried` bytes travels in the message, as a value does: one trip,
/// where a write has to complete before its message starts. If messages of this rank's fabric or the peer's are
/// shorter, the limit is lower. The payload is read when the put is taken, by a copy engine if it is device memory. The
/// peer's engine writes it before it changes the signal. The peer's window need be neither known nor registered.
///
/// *Staging*, for memory that the fabric does not reach. Payload passes through bounce buffers in pinned host memory;
/// copy engines move it between windows and bounce buffers. A put: a copy to a bounce buffer of this rank, a write to a
/// bounce buffer of the peer, and its change, upon which the peer copies to the window. Without immediate data: the
/// write; the message `stage_in`, upon which the peer copies; the answer `staged`, upon which that fragment is there. A
/// get: the message `stage_out`, upon which the peer copies to a bounce buffer; the answer; a read; a copy to the
/// window. A rank's inbound bounce buffers are divided among its peers in advance; those for its own payload are
/// shared. Steps are left out where the fabric reaches one of the two windows. A window is kept until no copy reaches
/// it. What a rank does to itself is staged too, without fabric. Where the fabric reaches device memory, only values
/// and what a rank does to itself are staged.
///
/// *Remote keys*. The first operation on a peer's window asks the peer for its key.
///
/// *Shutdown*. A send completion does not imply delivery. A rank that shuts down sends the peers that it has met a
/// shutdown notice with the number of their changes that it has applied, and stays until they have answered. A write
/// may complete here long after its change was acknowledged, when the peer has shut down or the connection is closed:
/// the put has been done, and completes when the fabric releases its source, with an error or without.
///
/// *Shares*. Operations, bytes and fragments in flight, and message buffers are shared by all peers. Of each, a peer
/// may hold at most twice what is left (`may_take`), so unresponsive peers cannot starve the others, and a single peer
/// can use two thirds. Some buffers are reserved for answers and acknowledgments.
///
/// *Limits*. An operation that waits its turn fails when its peer has been silent for `surroundings::limit`; one whose
/// data or message is on its way, when nothing of it has come back for half as long again, whatever else the peer does.
/// Each copy, transfer and answer of a fragment restarts the operation's time limit.
#pragma once

#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_endpoint.hpp"
#include "transport/fabric_message.hpp"
#include "transport/queue.hpp"
#include "transport/staging.hpp"
#include "util/fifo.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace devcomm::host::detail {

/// The thread of its endpoint calls it.
class fabric_engine final : public endpoint_user {
 public:
  struct surroundings {
    std::uint32_t number;                                 ///< of the device communicator, the same on all ranks
    std::vector<std::unique_ptr<network_queue>>& queues;  ///< of its contexts
    /// Told of the first operation that cannot be done; nothing is posted to peers after it, but peers are answered.
    std::function<void(const std::string&)> fail;
    std::chrono::milliseconds limit;  ///< for an operation, from its latest progress on
    std::uint32_t first_context = 0;  ///< what the first of `queues` is called in texts
    /// For windows that are `on_device`. Where the fabric reaches them, pinned memory is for values, and for what a
    /// rank does to itself.
    struct {
      memory_port* memory = nullptr;
      int device = 0;
      backend_traits shape{};
      std::unique_ptr<copy_engine> copies{};
    } staged{};
    /// Told when a peer that this rank has met has ended, all of whose operations are done.
    std::function<void(int rank)> departed{};
  };

  /// Allocates what it needs. *Requires* a connected endpoint.
  fabric_engine(surroundings about, fabric_endpoint& at);
  /// *Requires* that nothing of it is with the fabric, or that the endpoint is closed.
  ~fabric_engine() override;
  fabric_engine(const fabric_engine&) = delete;
  fabric_engine& operator=(const fabric_engine&) = delete;

  /// Registers its memory. Peers reach it from here on.
  void attach();
  /// Peers learn from here on that it has ended, and what it has begun has no effect here any more.
  void end();
  /// Whether the fabric still has something of it.
  [[nodiscard]] bool is_with_fabric() const;

  /// Does what can be done now; whether there was anything.
  [[nodiscard]] bool step();
  /// Nothing is posted, on its way or owed to peers; of a failed rank, nothing that it owes to peers.
  [[nodiscard]] bool idle() const;
  /// Nothing of this rank's own is posted or on its way.
  [[nodiscard]] bool is_done() const;
  /// All that was posted has had its effect on peers. Where it is not complete, as the fabric holds on to sources, its
  /// peers have left.
  [[nodiscard]] bool is_done_by_peers() const;
  /// Sends a shutdown notice to the peers that it has met: what they post to it fails from here on.
  void send_shutdown_notice();
  /// Those peers know.
  [[nodiscard]] bool has_parted() const;
  /// An operation of this rank's could not be done.
  [[nodiscard]] bool failed() const { return failed_; }

  void handle_message(const fabric_message& message, std::span<const std::byte> carried) override;
  void handle_arrival(std::uint32_t sender, std::uint32_t sequence) override;
  void handle_sent(std::size_t slot, const std::string& error) override;
  void handle_moved(std::size_t slot, const std::string& error) override;
  [[nodiscard]] bool uses(const fabric_region& memory) const override;
  [[nodiscard]] bool take_away(const fabric_region& memory, const std::string& why) override;
  void refuse_writes_to(std::uint32_t window) override;
  void lose_fabric(const std::string& why) override;

  static constexpr std::size_t max_in_flight = 256;                            ///< operations, of all contexts
  static constexpr std::uint64_t max_bytes = std::uint64_t{16} << 20;          ///< in flight
  static constexpr std::uint64_t max_fragment_bytes = std::uint64_t{1} << 20;  ///< of one write or read
  static constexpr std::chrono::microseconds acknowledged_after{5};
  static constexpr std::size_t send_buffers = 128;
  static constexpr std::size_t answer_buffers = 16;         ///< of those, for what operations of this rank do not send
  static constexpr std::uint32_t min_inbound_bytes = 1024;  ///< of a bounce buffer, however many ranks share the memory

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// The result of reading this rank's memory.
  struct own_memory {
    refusal why = refusal::no_window;
    std::uint64_t bytes = 0;  ///< of the window
    int code = 0;             ///< of the fabric, which does not take it
  };
  struct operation {
    std::uint32_t context = 0;
    posted_operation posted{};
    std::list<operation>::iterator self;
    bool data_is_ordered = false;  ///< it is at the peer before what messages from here on say
    bool is_in_lane = false;
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
    clock::time_point progressed;
    std::uint32_t out = 0;  ///< fragments, messages and questions that are with the fabric or the peer
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
    std::vector<operation*> waiting;
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
    operation* of;
    bool is_message = true;       ///< the operation's: its value or signal
    std::size_t fragment = none;  ///< that it announces
  };
  /// A peer's change that came before earlier ones, and what it carries.
  struct early_change {
    fabric_message change;
    std::vector<std::byte> carried;
  };
  struct posted_message {
    fabric_message message;
    operation* of;
  };
  /// What is taken for one peer of what there is for all.
  struct held_shares {
    std::size_t operations = 0;
    std::size_t sends = 0;
    std::size_t fragments = 0;
    std::size_t bounce_buffers = 0;  // of pinned memory
    std::uint64_t bytes = 0;         // of fragments
  };
  /// Whether a peer for which `held` is taken may have `more` of something of which `left` is free.
  [[nodiscard]] static constexpr bool may_take(std::uint64_t held, std::uint64_t left, std::uint64_t more = 1) {
    return more <= left && (held == 0 || held + more <= 2 * (left - more));
  }
  /// What there is between this rank and a peer.
  struct link {
    std::map<std::uint32_t, remote_window> places;  // by window
    fifo<operation*> movers;                        // have fragments to issue
    std::vector<fifo<operation*>>
        lanes;  // by context, once it is used; in order: what is neither complete nor a sent message
    fifo<posted_message> outgoing;     // changes without a number
    fifo<sent_change> unacknowledged;  // by number
    std::uint64_t next = 0;            // number of the next change to the peer
    fifo<fabric_message> answers;      // places and refusals
    std::map<std::uint64_t, early_change> early;
    std::set<std::uint64_t> early_writes;    // that have arrived, by the numbers of their changes
    std::uint64_t expected = 0;              // number of the next change of the peer
    fifo<begun_change> begun;                // changes below that are not done
    fifo<std::size_t> ready;                 // fragments for the fabric
    remote_address inbound;                  // the peer's bounce buffers for this rank
    std::uint32_t inbound_bytes = 0;         // of each
    std::vector<std::size_t> inbound_users;  // fragments of this rank's, by bounce buffer
    std::vector<std::uint32_t> free_inbound;
    bool owes = false;  // an acknowledgment
    clock::time_point owes_since{};
    std::uint64_t said_done = 0;  // `changes_done` of the latest message to the peer
    bool acknowledging = false;   // one is on its way
    held_shares held;
    clock::time_point heard;              // when the peer last did something
    clock::time_point acknowledged_at{};  // when it last acknowledged a change: all behind it have come nearer
    clock::time_point again{};            // when what could not be sent is tried again
    bool is_active = false;               // in `active_`
    bool met = false;                     // a message came from the peer or went to it
    bool has_spoken = false;              // a message came from it
    bool has_left = false;                // the peer ended
    bool leave_sent = false;              // this rank ends, which the peer hears
    bool leave_heard = false;             // the peer has the notice, or cannot get it
    bool refused = false;                 // a change of the peer: none is begun any more

    [[nodiscard]] bool has_work() const {
      return owes || !movers.empty() || !ready.empty() || !outgoing.empty() || !answers.empty() || !begun.empty();
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
    operation* of = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the operation's data
    std::uint64_t serial = 0;
    fragment_stage at = fragment_stage::ready;
    bool is_sent = false;                   // of `asked_to_...`: the message was
    std::optional<std::uint64_t> change{};  // its number, where one announces the fragment
    bool is_acknowledged = false;           // the change
    std::optional<std::size_t> own;         // bounce buffer of this rank's
    std::optional<std::uint32_t> inbound;   // bounce buffer of the peer's
    window_copy copy{};
  };
  /// What a peer asked for: `stage_in` or `stage_out`.
  struct staging_work {
    fabric_message asked;
    window_copy copy;
  };
  struct sent_message {
    fabric_message message;
    int peer = -1;
    operation* of = nullptr;  // null: an answer
  };

  void handle_change(const fabric_message& message, std::span<const std::byte> carried);
  /// Whether it makes sense.
  [[nodiscard]] bool handle_acknowledgment(link& from, const fabric_message& message);
  /// Of the peer's changes, all below it are done.
  [[nodiscard]] static std::uint64_t changes_done_for(const link& peer) { return peer.expected - peer.begun.size(); }
  /// Whether that is to be acknowledged by a message of its own, now.
  [[nodiscard]] static bool is_acknowledgment_due(const link& to);
  void handle_refusal(link& from, const fabric_message& message);
  void handle_remote_key(link& from, const fabric_message& message);
  void handle_shutdown_notice(link& from, const fabric_message& message);
  void handle_staging(link& from, const fabric_message& message);
  void handle_staged(link& from, const fabric_message& message);
  /// Sends the key of this rank's window.
  void answer(link& to, std::uint32_t window);
  /// Begins to do a peer's change; why not, where it does not.
  [[nodiscard]] own_memory begin_change(link& from, const fabric_message& change, std::span<const std::byte> carried);
  /// The same for the change that is next; whether it can be done.
  [[nodiscard]] bool begin_next_change(link& from, const fabric_message& change, std::span<const std::byte> carried);
  /// Begins to bring what a peer's write has brought to the window.
  [[nodiscard]] window_copy from_inbound(const fabric_message& change);
  /// Sends the peer a refusal: this change cannot be applied, nor can those after it.
  void refuse(link& from, const fabric_message& change, const own_memory& found);
  /// Those whose values have arrived, in order.
  void finish_changes(link& from);
  /// The peer has done the oldest change that it had not acknowledged.
  void finish_oldest(link& to);
  /// A peer that has ended waits for none.
  static void send_answer(link& to, const fabric_message& answer) {
    if (!to.has_left) to.answers.push_back(answer);
  }
  void drop(const std::string& why) { at_.drop(why); }

  [[nodiscard]] bool take_posted();
  void begin(operation& one);
  void do_here(operation& one);
  /// Of a small put: reads its source, for its message. False where the fabric is to move it.
  [[nodiscard]] bool begin_to_carry(operation& one);
  /// Once the peer's window is known.
  void begin_to_move(operation& one, const remote_window& at);
  void arrived(operation& one);
  /// What is sent from here on is behind its data at the peer: so may its message be.
  void put_in_order(operation& one);
  /// The message with which an operation whose data is in order leaves its lane; `overtakes` says that it would be sent
  /// before what is in `outgoing`. None where there is no message, or where it has to wait for others.
  [[nodiscard]] std::optional<fabric_message> message_to_leave_with(const operation& one, bool overtakes) const;
  /// Its message, if it has one, is on its way.
  void leave_lane(operation& one);
  /// Where nothing of it is left to be waited for.
  void complete_if_done(operation& one);
  /// Sends the messages of a lane that may be sent.
  void review(std::uint32_t context, std::uint32_t peer);
  void complete(operation& one);
  /// Calls `use` with an entry of this rank's windows that has the bytes; says why there is none.
  template <class Use>
  [[nodiscard]] own_memory with_own(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes, const Use& use);
  void fail_at_window(const operation& one, const std::string& whose, bool is_local, const own_memory& found);

  [[nodiscard]] bool issue();
  /// Gives the fabric fragments that are ready. Peers take turns, by fragments.
  [[nodiscard]] bool give_ready();
  /// The first ready fragment of a link; whether the fabric took it.
  [[nodiscard]] bool give_to_fabric(link& to);
  [[nodiscard]] bool has_posted() const;  ///< something that no operation was made of yet
  /// All of the operation has had its effect on the peer: only the fabric has not let go of its source.
  [[nodiscard]] bool is_done_by_peer(const operation& one) const;
  /// Sends the change that a write of the fragment will bring payload for; whether it has been. That of the last
  /// fragment is the operation's message too, where the message need not wait.
  [[nodiscard]] bool announce(link& to, std::size_t fragment);
  [[nodiscard]] std::uint64_t bytes_of_next_fragment(const link& to) const;
  /// Whether the peer may have another fragment of what all peers share.
  [[nodiscard]] bool has_share(const link& to) const;
  /// For a next fragment in what all peers share.
  [[nodiscard]] bool has_room(const link& to) const;
  /// The next fragment of the first mover, for which there is room.
  void begin_fragment(link& to);
  /// What follows for a fragment that has come through its stage.
  void advance(std::size_t fragment);
  void end(std::size_t fragment);
  /// Between this rank's window that the fragment's operation names and its pinned memory.
  void begin_copy(std::size_t fragment, fragment_stage stage);
  /// Asks the fragment's peer to `stage_in` or to `stage_out` it.
  void ask(std::size_t fragment, message_kind kind);
  /// The fragment that a peer's answer, or a message to it, is about; none where it is about none.
  [[nodiscard]] std::optional<std::size_t> fragment_of(const link& to, const fabric_message& message) const;
  [[nodiscard]] window_copy copy_window(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes, char* pinned,
                                        bool to_window);
  [[nodiscard]] bool is_done(const window_copy& copy) const;
  /// Looks what copies are done; whether any is, or is under way.
  [[nodiscard]] bool handle_copies();
  void divide_bounce_buffers();
  /// Of the inbound bounce buffers, offset of buffer `slot` of a peer.
  [[nodiscard]] std::size_t inbound_offset(std::size_t rank, std::uint32_t slot) const {
    return (rank * inbound_count_ + slot) * inbound_bytes_;
  }
  [[nodiscard]] std::span<std::byte> send_buffer(std::size_t slot) {
    return std::span(send_bytes_).subspan(slot * at_.buffer_bytes(), at_.buffer_bytes());
  }
  /// Of a place for the payload of a peer's change, in pinned memory.
  [[nodiscard]] std::size_t value_bytes() const { return std::max(sizeof(std::uint64_t), at_.carried()); }
  [[nodiscard]] std::size_t rank_of(const link& one) const { return static_cast<std::size_t>(&one - links_.data()); }
  /// Whether the fabric moves data between the operation's window on this rank and a peer.
  [[nodiscard]] bool is_moving(const operation& one) const;
  [[nodiscard]] bool is_own(const link& one) const { return &one == &links_[static_cast<std::size_t>(at_.rank())]; }
  [[nodiscard]] bool send_messages();
  void drop_inactive();
  [[nodiscard]] bool send_messages(int peer, link& to);
  [[nodiscard]] bool send(int peer, const fabric_message& message, operation* of);
  void check_limits();
  void fail(const operation& one, const std::string& why);
  void fail_because_it_left(const operation& one) {
    fail(one,
         "that rank has destroyed its device communicator: let all ranks pass a barrier on the host between the last "
         "operation and the end of a device communicator");
  }
  /// The fabric's completion of an operation.
  void fail_in_fabric(const operation& one, const std::string& error);
  /// Steps poll the peer from here on, until there is nothing to do for it.
  link& activate(link& one) {
    if (!std::exchange(one.is_active, true)) active_.push_back(&one);
    return one;
  }
  [[nodiscard]] link& link_to(const operation& one) { return activate(links_[one.posted.head.peer]); }
  [[nodiscard]] const link& link_to(const operation& one) const { return links_[one.posted.head.peer]; }

  surroundings about_;
  fabric_endpoint& at_;
  std::uint32_t index_ = 0;       // of its tokens
  std::uint64_t fragment_bytes_;  // of one write or read
  std::vector<link> links_;       // by rank
  std::vector<link*> active_;     // for which there may be something to do
  std::list<operation> operations_;
  std::vector<fragment> fragments_;
  std::vector<std::size_t> free_fragments_;
  std::vector<sent_message> sends_;
  std::vector<std::size_t> free_sends_;
  std::vector<std::byte> send_bytes_;  // messages, and room for what each carries
  std::unique_ptr<fabric_region> send_memory_;
  // Of memory that the fabric does not reach. Copies come to an end before the memory that they use.
  std::unique_ptr<staging> bounce_buffers_;  // null: there is none
  std::unique_ptr<host_memory> inbound_;
  std::unique_ptr<host_memory> values_;  // of changes
  std::unique_ptr<fabric_region> own_region_;
  std::unique_ptr<fabric_region> inbound_region_;
  std::size_t inbound_total_ = 0;    // bytes
  std::uint32_t inbound_count_ = 0;  // of each peer
  std::uint32_t inbound_bytes_ = 0;  // of each
  std::list<staging_work> staging_work_;
  std::vector<std::size_t> copying_;  // fragments
  std::unique_ptr<copy_engine> copies_;
  std::uint64_t serials_ = 0;
  std::uint64_t bytes_in_flight_ = 0;
  std::size_t first_link_ = 0;   // of `active_`, whose turn it is to begin a fragment
  std::size_t first_ready_ = 0;  // to give one to the fabric
  std::uint32_t first_queue_ = 0;
  clock::time_point checked_{};
  bool stood_still_ = false;  // before the latest check
  bool failed_ = false;
  bool has_fabric_ = false;  // its memory is registered
};

template <class Use>
fabric_engine::own_memory fabric_engine::with_own(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes,
                                                  const Use& use) {
  own_memory found;
  static_cast<void>(at_.windows().with(window, [&](const window_table::entry& memory) {
    const bool inside = offset <= memory.bytes && bytes <= memory.bytes - offset;
    found = {inside ? refusal::none : refusal::past_end, memory.bytes};
    if (inside) use(memory);
  }));
  return found;
}

}  // namespace devcomm::host::detail
