/// \file group_session.cuh
/// Groups of sends and receives: a list of messages of any sizes, to and from any ranks, in one call of a kernel.
/// channel/detail/connection_end.cuh has the protocol and the invariant by which no order of a list deadlocks.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/detail/connection_end.cuh>
#include <devcomm/channel/detail/posted_note.cuh>
#include <devcomm/channel/detail/single_message.cuh>
#include <devcomm/channel/messages.hpp>
#include <devcomm/data/copy.cuh>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/group.cuh>
#include <devcomm/lsa/detail/members.cuh>

namespace devcomm::channel {

/// A stripe for each block of the grid.
DEVCOMM_DEVICE inline stripe stripe_of_block() { return {arch::block_rank(), arch::grid_blocks()}; }

/// A group of threads' part in moving groups of messages; usually a block's, with one stripe a block.
///
///     channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
///     session.transfer(list);  // all that the list sends and receives
///
/// The messages between two ranks match in the order in which both list them; the order of a list is of no account
/// beyond that. Every send is a rendezvous: a message goes when both of its ranks are in calls that list it, and a call
/// returns only when the peers have listed all of its sends and receives. So ranks that exchange messages put their
/// sends and receives into one call: with the send in one call and the receive in the next, each waits for the other. A
/// rank's messages to itself, which must match within one call, are copied.
///
/// Short parts of messages travel with the sender's RTS, see `connections::inline_bytes`. Of longer ones, what a rank
/// receives into a window (`message::receive` with a `sym_ptr`) the sender stores there itself; the lists of both name
/// the window. What it receives elsewhere goes through slots of its pool.
///
/// *Blocks*: all stripes of a rank call `transfer` with the same list; each moves its part of each message. What a
/// stripe received is visible to its group when the call returns, and to the grid after its end or a sync of it. What
/// is sent must be complete before the first stripe begins, and stay until the last ends; what is received into must be
/// free in all stripes before the first begins. Lists and windows likewise. Between two calls with different numbers of
/// stripes lies a launch or a sync of the grid, as the first stripe keeps counts of stripes that a call leaves out. A
/// grid with more blocks than are resident makes progress only as the hardware dispatches blocks in the order of their
/// index, on all ranks alike; it is safe to have all of them resident.
///
/// *Collective*: every method is called by all threads of the group, in the same order. *Requires* that one session at
/// a time uses a stripe, on all ranks with the same number of stripes.
///
/// *Failure*: as for `barrier_session`; a wait without a deadline of its own ends after the communicator's timeout
/// without progress of anything that its thread serves. A message whose two ranks name different sizes is a
/// `status::mismatch` on both, whose record names both ranks and both sizes. From a failure on, the session moves
/// nothing more, and the list's receives are undefined. `agree` returns the outcome. A session that ends before a list
/// that it began has been moved, after a `transfer_for` that was not repeated, leaves a record of `status::timeout`:
/// its connections are no longer between messages, so later sessions of the device communicator begin dead.
template <class Group>
class group_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

  using step = detail::connection_step;
  using sender = detail::sending_connection;
  using receiver = detail::receiving_connection;

 public:
  using handle = connection_handle;

  /// Among the members of the LSA team.
  DEVCOMM_DEVICE group_session(Group group, const device_comm& comm, const handle& connections, stripe which)
      : group_session(group, comm, comm.lsa(), connections, which) {}

  /// *Requires* that `members` is part of the LSA team.
  DEVCOMM_DEVICE group_session(Group group, const device_comm& comm, const team& members, const handle& connections,
                               stripe which)
      : group_(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        memory_(detail::connection_memory::of(comm)),
        members_(members),
        connections_(connections),
        stripe_(which) {
    detail::check_team(members, comm);
    comm.check_owner(connections);
    DEVCOMM_ASSERT_OF(which.index < which.count && which.count <= connections.count, "stripe", which.index,
                      connections.count, "the stripe is past the stripes that requirements asked for; ask for more");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members.size) == connections.members,
                   "the connections were made for a team of another size");
    if (detail::is_aborted(home_)) failure_ = status::aborted;
    arch::begin_session(id());
  }

  group_session(const group_session&) = delete;
  group_session& operator=(const group_session&) = delete;

  DEVCOMM_DEVICE ~group_session() noexcept(false) {
    if (arch::unwinding()) return;
    if (open_ && !dead_) report_open();
    arch::call_session(id(), detail::session_call::end);
    detail::sync_at_end(group_);
    arch::leave_session(id());
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }

  /// Moves all messages of the list. *Ordering*: what a rank's threads wrote before its stripes called it, and its
  /// messages carry, is what the receiver's memory holds afterwards.
  DEVCOMM_DEVICE void transfer(const message_list& list) {
    DEVCOMM_ASSERT(!open_ || dead_, "a list is under way: repeat transfer_for until it succeeds");
    static_cast<void>(run(list, detail::communicator_timeout()));
  }

  /// `transfer`, for `limit` and a little more, see `barrier_session::wait_for`; a piece that has been begun is copied
  /// to its end: a stripe's whole part of a message into a window, else a slot. After `status::timeout` nothing is
  /// recorded, and some messages may have been moved; the call is to be repeated, with the same list.
  [[nodiscard]] DEVCOMM_DEVICE status transfer_for(const message_list& list, nanoseconds limit) {
    return run(list, detail::within(limit));
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*: synchronizes
  /// the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    failure_ = detail::agree(group_, failure_, status::timeout, here().outcome());
    dead_ = failure_ != status::success;
    return failure_;
  }

  /// A span of this group, in a trace.
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return {group_, home_, name}; }

 private:
  DEVCOMM_DEVICE detail::connection_stripe here() const { return {memory_, members_, connections_, stripe_}; }
  DEVCOMM_DEVICE auto id() const {
    return [this]() -> detail::session_id {
      const device_comm& comm = home_->comm;
      return {operation::message_receive, stripe_.index,       comm.rank, group_.thread_rank(), group_.size(),
              comm.resources.base,        connections_.offset, false};
    };
  }
  DEVCOMM_DEVICE bool any(bool predicate) const { return detail::any(group_, predicate, here().outcome()); }
  DEVCOMM_DEVICE uint32_t member_count() const { return static_cast<uint32_t>(members_.size); }
  /// Whether more than one thread serves peers.
  DEVCOMM_DEVICE bool many_serve() const { return member_count() > 2 && group_.size() > 1; }

  /// Calls `action(peer)` for each of this thread's.
  template <class Action>
  DEVCOMM_DEVICE void for_each_own(const Action& action) const {
    DEVCOMM_UNROLL_BY(1)
    for (uint32_t peer = group_.thread_rank(); peer < member_count(); peer += group_.size())
      if (static_cast<int>(peer) != members_.rank) action(peer);
  }
  // What is done with each end, and waits. Named, as NVRTC takes a generic lambda for a host function (CUDA 13.0).
  struct rewinding {
    template <class End>
    DEVCOMM_DEVICE void operator()(End one) const {
      one.rewind();
    }
  };
  struct finding_open {
    detail::wait_site& awaited;
    template <class End>
    DEVCOMM_DEVICE void operator()(const End& one) const {
      if (one.is_open()) awaited = one.wait();
    }
  };
  struct ending_copies {
    const uint32_t* mask;
    template <class End>
    DEVCOMM_DEVICE void operator()(End one) const {
      if ((mask[one.number() / 32] >> one.number() % 32 & 1) != 0) one.end_copy();
    }
  };
  struct reporting_open {
    resource_header* home;
    template <class End>
    DEVCOMM_DEVICE void operator()(const End& one) const {
      if (!one.is_open()) return;
      const detail::wait_site w = one.wait();
      detail::report(home, status::timeout, w, w.expected - 1);
    }
  };
  struct waiting {
    group_session& session;
    template <class Ready>
    DEVCOMM_DEVICE bool operator()(const detail::wait_site& awaited, const Ready& ready) const {
      return session.wait_for(awaited, ready);
    }
  };

  /// The same with both directions of its connection, `action(end)`, as they are in memory.
  template <class Action>
  DEVCOMM_DEVICE void for_each_end(const detail::connection_stripe& at, const message_list& list,
                                   const Action& action) const {
    for_each_own([&](uint32_t peer) {
      action(sender(at, list, peer, *at.state(peer, direction::send)));
      action(receiver(at, list, peer, *at.state(peer, direction::receive)));
    });
  }

  DEVCOMM_DEVICE status run(const message_list& list, detail::deadline limit) {
    arch::call_session(id(), detail::session_call::transfer);
    if (dead_) return agree();
    const trace_span traced = trace({"messages", span_kind::copy});
    const list_kind kind = open_ || limit.own ? list_kind::unknown : move_by_warps(list);
    if (kind == list_kind::moved) return dead_ ? agree() : status::success;
    const uint64_t start = limit.own ? arch::global_time() : 0;
    const auto is_late = [&] { return limit.own && any(arch::global_time() - start >= limit.budget); };
    if (!open_) begin(list, kind);
    status outcome = status::success;
    while (!dead_) {
      const pass_outcome found = polling_pass(list, limit, start);
      if (any(failure_ != status::success)) {
        die();
        break;
      }
      if (copy_pieces(list) || copy_more_of_own(list)) {
        if (!is_late()) continue;
        outcome = status::timeout;
        break;
      }
      if (!any(found.is_busy)) {
        open_ = false;
        if (stripe_.index == 0) count_for_others();
        break;
      }
      if (any(found.timed_out)) {
        outcome = status::timeout;
        break;
      }
    }
    return dead_ ? agree() : outcome;
  }

  /// Result of the first pass over a list.
  enum class list_kind {
    unknown,
    valid,     ///< without messages to the rank itself
    with_own,  ///< valid
    moved,     ///< by warps, or has failed
  };
  /// Moves the list by some warps for each message, where `warp_assignment` says that it can go this way. *Collective*.
  DEVCOMM_DEVICE list_kind move_by_warps(const message_list& given) {
    using detail::warp_assignment;
    constexpr uint32_t warp_threads = arch::warp_threads;
    if constexpr (!detail::is_whole_block<Group>) {
      return list_kind::unknown;  // which threads are in a warp is not known
    } else {
      group_.sync();  // the list is there
      const message_list list = given;
      if (group_.size() % warp_threads != 0 || list.count == 0 || list.count > warp_assignment::most ||
          list.window_count > warp_assignment::most)
        return list_kind::unknown;
      const detail::connection_stripe at = here();
      warp_assignment found(at, list, group_.size() / warp_threads);
      if (!found.fit())
        return !found.are_valid() ? list_kind::unknown : found.has_own() ? list_kind::with_own : list_kind::valid;
      if (any(failure_ != status::success)) {
        die();
        return list_kind::moved;
      }
      const status failure = found.move(
          at, list, waiting{*this}, [](const detail::message_warps& warps, char* to, const char* from, uint64_t bytes) {
            copy_by(warps, to, from, bytes);
          });
      if (failure != status::success) failure_ = failure;
      if (any(failure_ != status::success)) {
        die();
      } else if (stripe_.index == 0) {
        count_for_others();
      }
      return list_kind::moved;
    }
  }

  DEVCOMM_DEVICE void begin(const message_list& list, list_kind kind) {
    const detail::connection_stripe at = here();
    open_ = fresh_ = over_ = true;
    pass_ = arch::load<memory_order::relaxed, scope::device>(at.wake());
    bool has_own = kind == list_kind::with_own;
    group_.sync();  // the list is there, and all have read what is kept of connections
    if (kind == list_kind::unknown) has_own = any(check(list));
    for_each_end(at, list, rewinding{});
    for_each_own([&](uint32_t) { over_ = false; });
    sending_ = receiving_ = {{nullptr, 0}, true};
    if (group_.thread_rank() == 0) {
      clear(at.mask(0));
      clear(at.mask(1));
    }
    own_ = {};
    if (has_own) begin_own(list);
    if (any(failure_ != status::success)) die();
  }
  DEVCOMM_DEVICE void clear(uint32_t* mask) const {
    using arch::store;
    const uint32_t words = connections_.layout.mask_words();
    for (uint32_t w = 0; w < words; ++w) store<memory_order::relaxed, scope::device>(mask + w, 0u);
  }

  /// Whether each message names a member, and a window that the list has. Returns whether one that this thread checked
  /// is to or from the rank itself.
  DEVCOMM_DEVICE bool check(const message_list& list) {
    bool has_own = false;
    for (uint32_t i = group_.thread_rank(); i < list.count; i += group_.size()) {
      const message& m = list.messages[i];
      const bool own = m.peer == members_.rank;
      has_own = has_own || own;
      bool has_window = m.window == 0 || own;
      for (uint32_t w = 0; w < list.window_count; ++w) has_window = has_window || list.windows[w].id + 1 == m.window;
      if (m.peer >= 0 && m.peer < members_.size && has_window) continue;
      if (failure_ == status::success)
        failure_ = detail::report_message(home_, m.way, i, -1, {m.bytes, stripe_.count, 0}, {0, 0, 0});
    }
    return has_own;
  }

  /// What the rank sends to itself: a send and the receive of it in the list, and how far this stripe is with them.
  struct own_message {
    uint32_t send, receive;
    uint32_t number;  ///< of those before it
    uint64_t at;      ///< first byte that is left
    uint64_t end;     ///< of this stripe's part
    uint64_t left;    ///< of this stripe's parts of all
  };
  DEVCOMM_DEVICE uint32_t next_own(const message_list& list, uint32_t i, direction way) const {
    while (i < list.count && (list.messages[i].peer != members_.rank || list.messages[i].way != way)) ++i;
    return i;
  }
  DEVCOMM_DEVICE message_part own_part(uint64_t bytes, uint32_t number) const {
    return part_of_stripe(bytes, members_.rank, members_.rank, members_.size, number, stripe_.index, stripe_.count);
  }
  /// Compares the sizes of all, and finds how many bytes there are.
  DEVCOMM_DEVICE void begin_own(const message_list& list) {
    uint32_t number = 0;
    uint32_t s = next_own(list, 0, direction::send);
    uint32_t r = next_own(list, 0, direction::receive);
    own_ = {s, r, 0, 0, 0, 0};
    while (s < list.count && r < list.count) {
      const uint64_t bytes = list.messages[s].bytes;
      if (bytes != list.messages[r].bytes) {
        fail_own(direction::receive, r, list.messages[r].bytes, bytes);
        return;
      }
      const message_part part = own_part(bytes, number);
      if (number++ == 0) {
        own_.at = part.begin;
        own_.end = part.end;
      }
      own_.left += part.end - part.begin;
      s = next_own(list, s + 1, direction::send);
      r = next_own(list, r + 1, direction::receive);
    }
    if (s < list.count) fail_own(direction::send, s, list.messages[s].bytes, no_such_message);
    if (r < list.count) fail_own(direction::receive, r, list.messages[r].bytes, no_such_message);
  }
  DEVCOMM_DEVICE void fail_own(direction way, uint32_t index, uint64_t mine, uint64_t other) {
    if (group_.thread_rank() == 0)
      failure_ = detail::report_message(home_, way, index, home_->comm.rank, {mine, stripe_.count, 0},
                                        {other, stripe_.count, 0});
  }
  /// Copies up to `most` bytes of it; whether there were any left.
  DEVCOMM_DEVICE bool copy_own(const message_list& list, uint64_t most) {
    if (own_.left == 0) return false;
    while (most != 0 && own_.left != 0) {
      while (own_.at == own_.end) {
        own_.send = next_own(list, own_.send + 1, direction::send);
        own_.receive = next_own(list, own_.receive + 1, direction::receive);
        const message_part part = own_part(list.messages[own_.send].bytes, ++own_.number);
        own_.at = part.begin;
        own_.end = part.end;
      }
      const uint64_t bytes = own_.end - own_.at < most ? own_.end - own_.at : most;
      copy_by(group_, list.messages[own_.receive].data + own_.at, list.messages[own_.send].data + own_.at, bytes);
      own_.at += bytes;
      own_.left -= bytes;
      most -= bytes;
    }
    return true;
  }
  /// While nothing else is to be copied. Synchronizes the group, as `copy_pieces` does.
  DEVCOMM_DEVICE bool copy_more_of_own(const message_list& list) {
    if (!copy_own(list, unhurried())) return false;
    group_.sync();
    return true;
  }
  /// Out of line, so that its loops have all registers, which the rest of a session fills.
  template <class Threads>
  DEVCOMM_DEVICE DEVCOMM_NOINLINE static void copy_by(Threads threads, char* to, const char* from, uint64_t bytes) {
    copy(threads, reinterpret_cast<unsigned char*>(to), reinterpret_cast<const unsigned char*>(from), bytes);
  }
  /// Bytes that a group copies in some µs, a multiple of all units.
  DEVCOMM_DEVICE uint64_t unhurried() const { return uint64_t{group_.size()} * 256; }

  struct pass_outcome {
    bool is_busy;    ///< a message that this thread serves is left
    bool timed_out;  ///< a deadline of the caller's own
  };

  /// Serves this thread's connections until the group has something to do: a piece to copy, which another thread may
  /// have found. The first pass over a list does not wait, nor does one while the rank has something of its own to
  /// copy.
  DEVCOMM_DEVICE pass_outcome polling_pass(const message_list& list, detail::deadline limit, uint64_t start) {
    using arch::load;
    const detail::connection_stripe at = here();
    const uint32_t pass = ++pass_;
    const bool many = many_serve();
    const bool at_once = fresh_ || own_.left != 0;
    const bool one_each = member_count() <= group_.size();  // else the awaited word is searched for on every pass
    fresh_ = false;
    bool is_busy = false;
    bool timed_out = false;
    bool moved = false;  // pieces that need no copy
    // Before this thread waits for the others, which may be in the same warp, and poll this word.
    const auto end_pass = [&] {
      if (many) arch::store<memory_order::relaxed, scope::device>(at.wake(), pass);
    };
    const auto ready = [&] {
      const bool woken = many && load<memory_order::relaxed, scope::device>(at.wake()) == pass;
      bool stop = at_once;
      is_busy = false;
      for_each_own([&](uint32_t peer) {
        if (!one_each) sending_ = receiving_ = {{nullptr, 0}, true};
        const bool sends = sending_.is_due();
        const bool receives = receiving_.is_due();
        if (sends) serve<sender>(at, list, peer, sending_, moved, stop);
        if (receives) serve<receiver>(at, list, peer, receiving_, moved, stop);
        is_busy = is_busy || sending_.is_busy || receiving_.is_busy;
      });
      if (stop) end_pass();
      return stop || woken || !is_busy;
    };
    if (limit.own) {
      const uint64_t passed = arch::global_time() - start;
      limit.budget = passed < limit.budget ? limit.budget - passed : 0;
    }
    const auto label = [&] {
      const detail::wait_site wait = awaited_of_own(at, list);
      return detail::label_of(home_, wait, limit, wait.expected - 1);
    };
    if (!over_ && failure_ == status::success) {
      detail::poll<1>(home_, limit, label, ready, [&](status failure) {
        end_pass();
        timed_out = failure == status::timeout && limit.own;
        if (timed_out || (failure == status::timeout && moved)) return;  // the next pass has the whole timeout
        fail_wait(failure, awaited_of_own(at, list));
      });
    }
    over_ = !is_busy;
    return {is_busy, timed_out};
  }
  /// This thread's state of one direction of its connection.
  struct served : detail::connection_watch {
    bool is_busy;  ///< a message of the list is left

    DEVCOMM_DEVICE bool is_due() const {
      if (!is_busy || this->word == nullptr) return is_busy;
      const uint32_t seen = arch::load<memory_order::relaxed, scope::system>(this->word);
      return static_cast<int32_t>(seen - this->due) >= 0;
    }
  };
  /// Does for a direction what can be done. `stop`: the group is to copy a piece, or it has failed.
  template <class End>
  DEVCOMM_DEVICE void serve(const detail::connection_stripe& at, const message_list& list, uint32_t peer, served& how,
                            bool& moved, bool& stop) {
    connection_state state = *at.state(peer, End::way);
    End one(at, list, peer, state);
    const uint32_t before = one.pieces();
    const step found = one.advance(failure_);
    *at.state(peer, End::way) = state;
    how = {one.watch(), found != step::over};
    moved = moved || one.pieces() != before;
    stop = stop || found == step::copy || found == step::failed;
    if (found == step::copy)
      arch::fetch_or<memory_order::relaxed, scope::device>(at.mask(pass_ % 2) + one.number() / 32,
                                                           1u << one.number() % 32);
  }
  /// Something that this thread waits for.
  DEVCOMM_DEVICE detail::wait_site awaited_of_own(const detail::connection_stripe& at, const message_list& list) const {
    detail::wait_site awaited{};
    for_each_end(at, list, finding_open{awaited});
    return awaited;
  }
  DEVCOMM_DEVICE void fail_wait(status failure, const detail::wait_site& awaited) {
    failure_ = failure;
    detail::report(home_, failure, awaited, awaited.expected - 1);
  }

  /// Copies the pieces that threads have found in this pass; whether there were any. Synchronizes the group then.
  DEVCOMM_DEVICE bool copy_pieces(const message_list& list) {
    const detail::connection_stripe at = here();
    const uint32_t words = connections_.layout.mask_words();
    const uint32_t* mask = at.mask(pass_ % 2);
    bool copied = false;
    for (uint32_t w = 0; w < words; ++w) {
      uint32_t bits = mask[w];  // complete since the vote
      copied = copied || bits != 0;
      for (uint32_t c = w * 32; bits != 0; ++c, bits >>= 1)
        if ((bits & 1) != 0) copy_piece(list, *at.piece(c), c);
    }
    if (group_.thread_rank() == 0) clear(at.mask((pass_ + 1) % 2));
    if (!copied) return false;
    if (any(failure_ != status::success)) {  // packets that never came
      die();
      return true;
    }
    for_each_end(at, list, ending_copies{mask});
    return true;
  }
  /// One piece; `number` is that of its direction. With a long one goes, in turns, what the rank has for itself: the
  /// links and this GPU's memory then work at the same time.
  DEVCOMM_DEVICE void copy_piece(const message_list& list, const connection_piece& piece, uint32_t number) {
    if (piece.flag != 0) {
      if (number % 2 == static_cast<uint32_t>(direction::send)) {
        detail::send_inline<1>(group_, piece);
      } else {
        receive_inline(piece, number / 2);
      }
      return;
    }
    const uint64_t turn = unhurried();
    uint64_t own_turn = 0;
    if (own_.left != 0 && piece.bytes > turn) {
      const uint64_t own = (own_.left / ((piece.bytes + turn - 1) / turn) + 255) / 256 * 256;
      own_turn = own < 4 * turn ? own : 4 * turn;  // the peer waits for the piece
    }
    for (uint64_t done = 0; done < piece.bytes; done += turn) {
      copy_by(group_, piece.to + done, piece.from + done, piece.bytes - done < turn ? piece.bytes - done : turn);
      if (done + turn < piece.bytes) static_cast<void>(copy_own(list, own_turn));
    }
  }
  /// A sender stores all packets without waiting for anything, so a wait for them is short, and has the communicator's
  /// timeout.
  DEVCOMM_DEVICE void receive_inline(const connection_piece& piece, uint32_t peer) {
    const detail::wait_site awaited = detail::awaited_packets(here(), peer, piece.index, piece.number);
    static_cast<void>(detail::receive_inline<1>(group_, piece, awaited, waiting{*this}));
  }
  /// Polls with the communicator's timeout; whether `ready` came true. Else the failure has been recorded.
  template <class Ready>
  DEVCOMM_DEVICE bool wait_for(const detail::wait_site& awaited, const Ready& ready) {
    const detail::deadline limit = detail::communicator_timeout();
    bool is_ready = true;
    detail::poll<1>(
        home_, limit, [&] { return detail::label_of(home_, awaited, limit, awaited.expected - 1); }, ready,
        [&](status failure) {
          is_ready = false;
          fail_wait(failure, awaited);
        });
    return is_ready;
  }

  /// Stripes that this call leaves out have the same number of the next message, by which stripes share it out.
  DEVCOMM_DEVICE void count_for_others() const {
    if (stripe_.count == connections_.count) return;
    const detail::connection_stripe at = here();
    const uint64_t stripe_bytes = connections_.layout.state(1, 0, direction::send) - connections_.layout.states;
    for_each_own([&](uint32_t peer) {
      for (const direction way : {direction::send, direction::receive}) {
        const connection_state* mine = at.state(peer, way);
        const uint32_t messages = mine->messages;
        auto* other = reinterpret_cast<char*>(at.state(peer, way)) + stripe_.count * stripe_bytes;
        for (uint32_t l = stripe_.count; l < connections_.count; ++l, other += stripe_bytes)
          reinterpret_cast<connection_state*>(other)->messages = messages;
      }
    });
  }

  /// What is under way ends here, as timed out: later sessions of this rank begin between two messages.
  DEVCOMM_DEVICE void report_open() const { for_each_end(here(), message_list{}, reporting_open{home_}); }

  /// The whole group has seen a failure; `agree` returns which.
  DEVCOMM_DEVICE void die() {
    dead_ = true;
    if (failure_ == status::success) failure_ = status::aborted;
  }

  Group group_;
  resource_header* home_;
  detail::connection_memory memory_;
  team members_;
  connection_handle connections_;
  stripe stripe_;
  uint32_t pass_ = 0;
  served sending_{};  // to the peer that this thread serves
  served receiving_{};
  own_message own_{};
  status failure_ = status::success;  // of this thread
  bool dead_ = false;                 // the whole group has seen a failure
  bool open_ = false;                 // a list is under way
  bool fresh_ = false;                // no thread has processed it
  bool over_ = false;                 // this thread serves no message that is left of it
};

}  // namespace devcomm::channel
