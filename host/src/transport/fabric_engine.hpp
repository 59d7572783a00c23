/// \file fabric_engine.hpp
/// Does what kernels of one rank post, over a fabric that promises no order.
///
/// *Data before signals.* The data of a put goes by writes into the peer's window, in pieces. A write is complete when
/// the peer's threads can see what it wrote. Signals and values go by messages, which the peer's engine carries out.
/// The message of a weak signal is sent when the writes of its own put are complete; that of a strong one when those of
/// all earlier puts of its context to that peer are, and their strong signals and values have been sent. Messages of
/// one rank to another are numbered, and are carried out in the order of their numbers whatever the order in which they
/// arrive. So no promise of a provider's about order is needed, but one about completion.
///
/// *Completion.* An operation is complete when its data and its signal have had their effect on the peer: a put when
/// its writes are complete, whatever goes by message when the peer has acknowledged it. Acknowledgements say how many
/// messages have been carried out; at most `most_unacknowledged` are on the way to one peer.
///
/// *Places.* The first operation on a peer's window asks the peer for its key, which it answers as long as it has the
/// window.
#pragma once

#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_message.hpp"
#include "transport/queue.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
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
  };

  fabric_engine(surroundings about, std::unique_ptr<fabric> reached);
  ~fabric_engine();
  fabric_engine(const fabric_engine&) = delete;
  fabric_engine& operator=(const fabric_engine&) = delete;

  [[nodiscard]] card own_card() const { return {fabric_->address(), secret_}; }
  /// From here on peers are reached; `cards` by rank.
  void connect(const std::vector<card>& cards);

  /// Does what can be done now; whether there was anything.
  [[nodiscard]] bool step();
  /// Nothing is posted, on its way or owed to peers; of a failed rank, nothing that it owes to peers.
  [[nodiscard]] bool idle() const;
  /// Nothing of this rank's own is posted or on its way.
  [[nodiscard]] bool is_done() const;
  /// Tells the peers that it has met that this rank ends: what they post to it fails from here on.
  void say_farewell();
  /// An operation of this rank's could not be done.
  [[nodiscard]] bool failed() const { return failed_; }
  /// Whether the fabric uses the memory of `window` for this rank's operations. When it does not, it knows the window
  /// no longer, and peers are refused.
  [[nodiscard]] bool forget(std::uint32_t window);
  /// The same, whatever uses it fails; where the fabric moves data there, the engine gives the fabric up.
  void take_away(std::uint32_t window);
  /// By another thread, while this one does not come back from the fabric: when it does, the engine does nothing more.
  void leave_alone() noexcept { left_alone_ = true; }

  static constexpr std::size_t most_in_flight = 256;                    ///< operations, of all contexts
  static constexpr std::uint64_t most_bytes = std::uint64_t{16} << 20;  ///< in flight
  static constexpr std::uint64_t most_piece = std::uint64_t{1} << 20;   ///< of one write or read
  static constexpr std::uint64_t most_unacknowledged = 64;              ///< messages to one peer
  static constexpr std::size_t receive_buffers = 256;
  static constexpr std::size_t send_buffers = 128;

 private:
  using clock = std::chrono::steady_clock;

  /// What became of a look at this rank's memory.
  struct own_memory {
    refusal why = refusal::no_window;
    std::uint64_t bytes = 0;  ///< of the window
  };
  struct flight {
    std::uint32_t context;
    posted_operation operation;
    std::list<flight>::iterator self;
    bool data_is_there = false;  ///< nothing is left but its message
    char* local = nullptr;
    const fabric_region* region = nullptr;  ///< while data moves
    remote_place remote;
    std::uint64_t issued = 0;   ///< bytes
    std::uint32_t pending = 0;  ///< pieces
    clock::time_point progressed;
  };
  /// Of a peer's window.
  struct known_place {
    bool is_known = false;
    refusal why = refusal::none;
    remote_place place;
    std::uint64_t bytes = 0;
    std::vector<flight*> waiting;
  };
  struct posted_message {
    fabric_message message;
    flight* of;
  };
  /// What there is between this rank and a peer.
  struct link {
    fabric_secret secret{};                         // the peer's
    std::map<std::uint32_t, known_place> places;    // by window
    std::deque<flight*> movers;                     // have pieces to issue
    std::vector<std::deque<flight*>> lanes;         // by context, in order: what is neither complete nor a sent message
    std::deque<posted_message> outgoing;            // changes without a number
    std::deque<flight*> unacknowledged;             // by number
    std::uint64_t next = 0;                         // number of the next change to the peer
    std::deque<fabric_message> answers;             // places and refusals
    std::map<std::uint64_t, fabric_message> early;  // changes of the peer that came before earlier ones
    std::uint64_t expected = 0;                     // number of the next change of the peer
    bool owes = false;                              // an acknowledgement
    bool acknowledging = false;                     // one is on its way
    clock::time_point heard;                        // when the peer last did something
    clock::time_point again{};                      // when what could not be sent is tried again
    bool met = false;                               // a message came from the peer or went to it
    bool has_left = false;                          // the peer ended
    bool refused = false;                           // a change of the peer: none is carried out any more
  };
  struct piece {
    flight* of = nullptr;
    std::uint64_t bytes = 0;
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
  void handle(const fabric_message& message);
  void handle_change(const fabric_message& message);
  void handle_acknowledgement(link& from, const fabric_message& message);
  void handle_refusal(link& from, const fabric_message& message);
  void handle_place(link& from, const fabric_message& message);
  void handle_farewell(link& from, const fabric_message& message);
  /// Tells where this rank's window is.
  void answer(link& to, std::uint32_t window);
  /// Carries out a peer's change; why not, where it does not.
  [[nodiscard]] own_memory carry_out(const fabric_message& change);
  /// The change that is next; whether it could be done.
  [[nodiscard]] bool carry_out_next(link& from, const fabric_message& change);
  void drop(const std::string& why);

  [[nodiscard]] bool take_posted();
  void begin(flight& one);
  void do_here(flight& one);
  /// Once the peer's window is known.
  void begin_to_move(flight& one, const known_place& at);
  void arrived(flight& one);
  /// Sends the messages of a lane that may be sent.
  void review(std::uint32_t context, std::uint32_t peer);
  void complete(flight& one);
  /// Calls `use` with an entry of this rank's windows that has the bytes; says why there is none.
  template <class Use>
  [[nodiscard]] own_memory with_own(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes, const Use& use);
  [[nodiscard]] const fabric_region& region_of(std::uint32_t window, const window_table::entry& memory);
  void fail_at_window(const flight& one, const std::string& whose, bool is_local, const own_memory& found);

  [[nodiscard]] bool issue();
  [[nodiscard]] bool issue(link& to);
  [[nodiscard]] bool send_messages();
  [[nodiscard]] bool send_messages(int peer, link& to);
  [[nodiscard]] bool send(int peer, const fabric_message& message, flight* of);
  void check_limits();
  void fail(const flight& one, const std::string& why);
  void fail_because_it_left(const flight& one) { fail(one, "that rank has destroyed its device communicator"); }
  [[nodiscard]] link& link_to(const flight& one) { return links_[one.operation.head.peer]; }

  surroundings about_;
  std::unique_ptr<fabric> fabric_;
  fabric_secret secret_;
  std::vector<link> links_;  // by rank
  std::list<flight> flights_;
  std::map<std::uint32_t, std::unique_ptr<fabric_region>> regions_;  // by window
  std::vector<piece> pieces_;
  std::vector<std::size_t> free_pieces_;
  std::vector<sent_message> sends_;
  std::vector<std::size_t> free_sends_;
  std::vector<fabric_message> receives_;
  std::uint64_t bytes_in_flight_ = 0;
  std::size_t first_link_ = 0;  // whose turn it is
  std::uint32_t first_queue_ = 0;
  std::uint64_t dropped_ = 0;
  clock::time_point checked_{};
  bool failed_ = false;
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
