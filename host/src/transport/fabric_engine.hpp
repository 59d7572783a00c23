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
/// operations before it are complete. Every message carries an acknowledgment. If none was sent 5 us after the oldest
/// change that needs one, a message of its own is sent; usually a kernel's answer to a signal comes first.
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

#include "transport/connection.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_endpoint.hpp"
#include "transport/fabric_message.hpp"
#include "transport/fabric_operation.hpp"
#include "transport/message_buffers.hpp"
#include "transport/own_memory.hpp"
#include "transport/queue.hpp"
#include "transport/window_copies.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
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
    /// Called for the first operation that cannot be done; nothing is posted to peers after it, but peers are answered.
    std::function<void(const std::string&)> fail;
    std::chrono::milliseconds limit;  ///< for an operation, from its latest progress on
    std::uint32_t first_context = 0;  ///< what the first of `queues` is called in texts
    /// For windows that are `on_device`. Where the fabric reaches them, pinned memory is for values, and for what a
    /// rank does to itself.
    window_copies::settings staged{};
    /// Called when a peer that this rank has met has ended, all of whose operations are done.
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
  static constexpr std::size_t send_buffers = 128;
  static constexpr std::size_t answer_buffers = 16;  ///< of those, for what operations of this rank do not send

 private:
  using clock = std::chrono::steady_clock;

  /// What a peer asked for: `stage_in` or `stage_out`.
  struct staging_work {
    fabric_message asked;
    window_copy copy;
  };
  struct sent_message {
    fabric_message message;
    int peer = -1;
    fabric_operation* of = nullptr;  // null: an answer
  };

  void handle_change(const fabric_message& message, std::span<const std::byte> carried);
  /// Whether it makes sense.
  [[nodiscard]] bool handle_acknowledgment(connection& from, const fabric_message& message);
  void handle_refusal(connection& from, const fabric_message& message);
  void handle_remote_key(connection& from, const fabric_message& message);
  void handle_shutdown_notice(connection& from, const fabric_message& message);
  void handle_staging(connection& from, const fabric_message& message);
  void handle_staged(connection& from, const fabric_message& message);
  /// Sends the key of this rank's window.
  void answer(connection& to, std::uint32_t window);
  /// Begins to do a peer's change; why not, where it does not.
  [[nodiscard]] own_memory begin_change(connection& from, const fabric_message& change,
                                        std::span<const std::byte> carried);
  /// The same for the change that is next; whether it can be done.
  [[nodiscard]] bool begin_next_change(connection& from, const fabric_message& change,
                                       std::span<const std::byte> carried);
  /// Begins to bring what a peer's write has brought to the window.
  [[nodiscard]] window_copy from_inbound(const fabric_message& change);
  /// Sends the peer a refusal: this change cannot be applied, nor can those after it.
  void refuse(connection& from, const fabric_message& change, const own_memory& found);
  /// Those whose values have arrived, in order.
  void finish_changes(connection& from);
  /// The peer has done the oldest change that it had not acknowledged.
  void finish_oldest(connection& to);
  void drop(const std::string& why) { at_.drop(why); }

  [[nodiscard]] bool take_posted();
  void begin(fabric_operation& one);
  void do_here(fabric_operation& one);
  /// Of a small put: reads its source, for its message. False where the fabric is to move it.
  [[nodiscard]] bool begin_to_carry(fabric_operation& one);
  /// Once the peer's window is known.
  void begin_to_move(fabric_operation& one, const remote_window& at);
  void arrived(fabric_operation& one);
  /// What is sent from here on is behind its data at the peer: so may its message be.
  void put_in_order(fabric_operation& one);
  /// The message with which an operation whose data is in order leaves its send queue; `overtakes` says that it would
  /// be sent before what is in `outgoing`. None where there is no message, or where it has to wait for others.
  [[nodiscard]] std::optional<fabric_message> message_to_leave_with(const fabric_operation& one, bool overtakes) const;
  /// Its message, if it has one, is on its way.
  void leave_send_queue(fabric_operation& one);
  /// Where nothing of it is left to be waited for.
  void complete_if_done(fabric_operation& one);
  /// Sends the messages of a send queue that may be sent.
  void review(std::uint32_t context, std::uint32_t peer);
  void complete(fabric_operation& one);
  void fail_at_window(const fabric_operation& one, const std::string& whose, bool is_local, const own_memory& found);

  [[nodiscard]] bool issue();
  /// Gives the fabric fragments that are ready. Peers take turns, by fragments.
  [[nodiscard]] bool give_ready();
  /// The first ready fragment of a connection; whether the fabric took it.
  [[nodiscard]] bool give_to_fabric(connection& to);
  [[nodiscard]] bool has_posted() const;  ///< something that no operation was made of yet
  /// All of the operation has had its effect on the peer: only the fabric has not let go of its source.
  [[nodiscard]] bool is_done_by_peer(const fabric_operation& one) const;
  /// Sends the change that a write of the fragment will bring payload for; whether it has been. That of the last
  /// fragment is the operation's message too, where the message need not wait.
  [[nodiscard]] bool announce(connection& to, std::size_t fragment);
  [[nodiscard]] std::uint64_t bytes_of_next_fragment(const connection& to) const;
  /// Whether the peer may have another fragment of what all peers share.
  [[nodiscard]] bool has_share(const connection& to) const;
  /// For a next fragment in what all peers share.
  [[nodiscard]] bool has_room(const connection& to) const;
  /// The next fragment of the first mover, for which there is room.
  void begin_fragment(connection& to);
  /// What follows for a fragment that has come through its stage.
  void advance(std::size_t fragment);
  void end(std::size_t fragment);
  /// Between this rank's window that the fragment's operation names and its pinned memory.
  void begin_copy(std::size_t fragment, fragment_stage stage);
  /// Asks the fragment's peer to `stage_in` or to `stage_out` it.
  void ask(std::size_t fragment, message_kind kind);
  /// The fragment that a peer's answer, or a message to it, is about; none where it is about none.
  [[nodiscard]] std::optional<std::size_t> fragment_of(const connection& to, const fabric_message& message) const;
  /// Looks what copies are done; whether any is, or is under way.
  [[nodiscard]] bool handle_copies();
  [[nodiscard]] std::size_t rank_of(const connection& one) const {
    return static_cast<std::size_t>(&one - connections_.data());
  }
  /// Whether the fabric moves data between the operation's window on this rank and a peer.
  [[nodiscard]] bool is_moving(const fabric_operation& one) const;
  [[nodiscard]] bool is_own(const connection& one) const {
    return &one == &connections_[static_cast<std::size_t>(at_.rank())];
  }
  [[nodiscard]] bool send_messages();
  void drop_inactive();
  [[nodiscard]] bool send_messages(int peer, connection& to);
  [[nodiscard]] bool send(int peer, const fabric_message& message, fabric_operation* of);
  void check_limits();
  void fail(const fabric_operation& one, const std::string& why);
  void fail_because_it_left(const fabric_operation& one) {
    fail(one,
         "that rank has destroyed its device communicator: let all ranks pass a barrier on the host between the last "
         "operation and the end of a device communicator");
  }
  /// The fabric's completion of an operation.
  void fail_in_fabric(const fabric_operation& one, const std::string& error);
  /// Steps poll the peer from here on, until there is nothing to do for it.
  connection& activate(connection& one) {
    if (!std::exchange(one.is_active, true)) active_.push_back(&one);
    return one;
  }
  [[nodiscard]] connection& connection_to(const fabric_operation& one) {
    return activate(connections_[one.posted.head.peer]);
  }
  [[nodiscard]] const connection& connection_to(const fabric_operation& one) const {
    return connections_[one.posted.head.peer];
  }

  surroundings about_;
  fabric_endpoint& at_;
  std::uint32_t index_ = 0;              // of its tokens
  std::uint64_t fragment_bytes_;         // of one write or read
  std::vector<connection> connections_;  // by rank
  std::vector<connection*> active_;      // for which there may be something to do
  std::list<fabric_operation> operations_;
  fragment_table fragments_;
  message_buffers<sent_message> sends_;
  window_copies copies_;
  std::list<staging_work> staging_work_;
  std::vector<std::size_t> copying_;  // fragments
  std::size_t first_connection_ = 0;  // of `active_`, whose turn it is to begin a fragment
  std::size_t first_ready_ = 0;       // to give one to the fabric
  std::uint32_t first_queue_ = 0;
  clock::time_point checked_{};
  bool stood_still_ = false;  // before the latest check
  bool failed_ = false;
  bool has_fabric_ = false;  // its memory is registered
};

}  // namespace devcomm::host::detail
