/// \file session.cuh
/// A group sends, receives and reduces through FIFOs: the primitives that ring, tree and point-to-point kernels are
/// made of. channel/detail/fifo_end.cuh has the protocol.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/detail/call.cuh>
#include <devcomm/channel/detail/fifo_deadline.cuh>
#include <devcomm/channel/detail/fifo_end.cuh>
#include <devcomm/channel/detail/fifo_transport.cuh>
#include <devcomm/channel/detail/session_actions.cuh>
#include <devcomm/channel/detail/slot_packets.cuh>
#include <devcomm/channel/detail/step_contracts.cuh>
#include <devcomm/channel/fifos.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/slice.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/group.cuh>

namespace devcomm::channel {

/// A group's use of the FIFOs from up to `Receives` ranks and to up to `Sends` ranks; usually a block's.
///
///     channel::session ring{block{}, comm, fifos, from_previous(ranks, blockIdx.x), to_next(ranks, blockIdx.x)};
///     ring.send<T>(chunk(2), input);                                // my input of a chunk, to the next rank
///     ring.recv_reduce_send<T>(chunk(1), input, sum{});             // what comes, plus mine, to the next rank
///     ring.recv_reduce_copy<T>(chunk(0), input, output, sum{}, 3);  // what comes, plus mine, to my output
///
/// Each call moves a slice of packs of 16 bytes. `input(i)` returns pack `i`, and `output(i, pack)` takes it, each for
/// every `i` of the slice, by one thread of the group. As with the collectives, `collective::from_memory` and
/// `to_memory` are vectors of any alignment, and functors fuse what they like. The names are those of NCCL's
/// primitives: what a call receives comes from all FIFOs that the session receives from, and is reduced in their order,
/// this rank's input last; what it sends goes into all that it sends to; `copy` means that this rank's output gets it.
/// Between ranks, partial results are elements of `T`; they accumulate in `accumulator_t<T>`.
///
/// A call cuts its slice into steps, a slot each. *Requires* of the two ends of a FIFO slices of the same sizes, in the
/// same order; in checked mode one that differs is a `status::mismatch` that names both ranks. A slice without packs
/// takes no step, and counts among the slices. In checked mode, steps of calls that a session has made and not received
/// are a `status::mismatch` when it ends, if they have arrived by then, and else when the next session begins.
///
/// *Ordering*. What a call receives is what the peer's call sent. With `simple`, all that the peer's group wrote before
/// that call is visible after it; with `ll` and `ll128` nothing else is ordered.
///
/// *Collective*: every method is called by all threads of the group, in the same order. *Requires* that one session at
/// a time uses an end of a FIFO; LL128 needs groups of whole warps.
///
/// *Failure*: as for `barrier_session`. From a failed wait on, the session moves nothing more, and no slot is written
/// that its receiver may still read; outputs of the failed call are undefined. `agree` returns the outcome.
template <protocol Protocol, class Group, int Receives = 1, int Sends = 1>
class session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");
  static_assert(Receives >= 1 && Sends >= 1, "leave a direction out by endpoint::none()");
  static_assert(Protocol != protocol::ll128 || detail::may_hold_warps<Group>,
                "LL128 needs a group of whole warps, such as block, warp_span or warp; use ll");

  using none = detail::none;
  using via = detail::via;
  using transport = detail::fifo_transport<Protocol>;

 public:
  using handle = fifo_handle<Protocol>;
  static constexpr protocol fifo_protocol = Protocol;

  /// Among the members of the LSA team; with `network`, among all ranks.
  DEVCOMM_DEVICE session(Group group, const device_comm& comm, const handle& fifos, const endpoint& from,
                         const endpoint& to)
      : session(group, comm, transport::everyone(comm), fifos, from, to) {}

  /// *Requires* that `members` is part of the LSA team; with `network`, of the world.
  DEVCOMM_DEVICE session(Group group, const device_comm& comm, const team& members, const handle& fifos,
                         const endpoint& from, const endpoint& to)
      : session(group, comm, members, fifos) {
    static_assert(Receives == 1 && Sends == 1, "give an array of endpoints for each direction");
    const typename transport::ends ends(comm, members, fifos, group.thread_rank() == 0);
    from_[0] = ends.receiving(from);
    to_[0] = ends.sending(to);
    for_each_id(detail::begin_action{});
    find_left_steps();
  }

  /// With several ranks. An endpoint without a peer is left out.
  DEVCOMM_DEVICE session(Group group, const device_comm& comm, const team& members, const handle& fifos,
                         const endpoint (&from)[Receives], const endpoint (&to)[Sends])
      : session(group, comm, members, fifos) {
    const typename transport::ends ends(comm, members, fifos, group.thread_rank() == 0);
    DEVCOMM_UNROLL
    for (int r = 0; r < Receives; ++r) from_[r] = ends.receiving(from[r]);
    DEVCOMM_UNROLL
    for (int s = 0; s < Sends; ++s) to_[s] = ends.sending(to[s]);
    for_each_id(detail::begin_action{});
    find_left_steps();
  }

  session(const session&) = delete;
  session& operator=(const session&) = delete;

  /// Keeps the counts of steps for the next session.
  DEVCOMM_DEVICE ~session() noexcept(false) {
    if (arch::unwinding()) return;
    called(detail::session_call::end);
    find_left_steps();
    detail::sync_at_end(group_);
    if (group_.thread_rank() == 0) keep_counts();
    detail::sync_at_end(group_);
    for_each_id(detail::leave_action{});
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }
  /// Index of `member` in the LSA team.
  DEVCOMM_DEVICE int lsa_member(int member) const { return members_.number(member) - home_->comm.lsa_first; }
  /// Packs of a slot: what one step moves at most.
  DEVCOMM_DEVICE uint32_t capacity() const { return slot_packs_; }
  /// Steps that the session may be ahead of a receiver.
  DEVCOMM_DEVICE uint32_t slots() const { return slots_; }

  /// Sends this rank's input.
  template <class T, class Produce>
  DEVCOMM_DEVICE void send(slice packs, const Produce& input) {
    run<T, via::nothing, via::slots>(packs, input, none{}, none{}, 0, none{});
  }
  /// `send`, and the output gets it too.
  template <class T, class Produce, class Consume>
  DEVCOMM_DEVICE void copy_send(slice packs, const Produce& input, const Consume& output) {
    run<T, via::nothing, via::slots>(packs, input, output, none{}, 0, none{});
  }
  /// The output gets what comes.
  template <class T, class Consume>
  DEVCOMM_DEVICE void recv(slice packs, const Consume& output) {
    static_assert(Receives == 1, "what comes from several ranks must be reduced");
    run<T, via::slots, via::nothing>(packs, none{}, output, none{}, 0, none{});
  }
  /// The output gets what comes, and so do those that the session sends to.
  template <class T, class Consume>
  DEVCOMM_DEVICE void recv_copy_send(slice packs, const Consume& output) {
    static_assert(Receives == 1, "what comes from several ranks must be reduced");
    run<T, via::slots, via::slots>(packs, none{}, output, none{}, 0, none{});
  }
  /// Sends what comes, reduced with this rank's input.
  template <class T, class Produce, class Operator>
  DEVCOMM_DEVICE void recv_reduce_send(slice packs, const Produce& input, const Operator& op) {
    run<T, via::slots, via::slots>(packs, input, none{}, op, 0, none{});
  }
  /// The output gets what comes, reduced with this rank's input. `inputs`: the ranks whose inputs are in the result
  /// then, for operators that finish with them, such as `average`; 0 where more are to come.
  template <class T, class Produce, class Consume, class Operator>
  DEVCOMM_DEVICE void recv_reduce_copy(slice packs, const Produce& input, const Consume& output, const Operator& op,
                                       int inputs) {
    run<T, via::slots, via::nothing>(packs, input, output, op, inputs, none{});
  }
  /// `recv_reduce_copy`, and the result is sent too.
  template <class T, class Produce, class Consume, class Operator>
  DEVCOMM_DEVICE void recv_reduce_copy_send(slice packs, const Produce& input, const Consume& output,
                                            const Operator& op, int inputs) {
    run<T, via::slots, via::slots>(packs, input, output, op, inputs, none{});
  }

  // Direct forms: the data goes into the receiver's own memory, and the FIFO counts steps only. `destination(i, pack)`
  // stores pack `i` there: a `to_memory` of `sym_ptr::lsa(peer)`. *Requires* `simple`, one rank to send to, and that
  // the receiver's memory may be written: that it has begun, and reads what was there no more.

  /// `send` into the receiver's memory; the receiver calls `direct_recv` or `direct_recv_send`.
  template <class T, class Produce, class Destination>
  DEVCOMM_DEVICE void direct_send(slice packs, const Produce& input, const Destination& destination) {
    run<T, via::nothing, via::memory>(packs, input, none{}, none{}, 0, destination);
  }
  /// Waits until the slice is in this rank's memory.
  template <class T>
  DEVCOMM_DEVICE void direct_recv(slice packs) {
    run<T, via::memory, via::nothing>(packs, none{}, none{}, none{}, 0, none{});
  }
  /// `direct_recv`, and the slice goes on into the next rank's memory; `input` reads it from this rank's.
  template <class T, class Produce, class Destination>
  DEVCOMM_DEVICE void direct_recv_send(slice packs, const Produce& input, const Destination& destination) {
    run<T, via::memory, via::memory>(packs, input, none{}, none{}, 0, destination);
  }
  /// `recv_reduce_copy`, and the result goes into the next rank's memory.
  template <class T, class Produce, class Consume, class Operator, class Destination>
  DEVCOMM_DEVICE void recv_reduce_copy_direct_send(slice packs, const Produce& input, const Consume& output,
                                                   const Operator& op, int inputs, const Destination& destination) {
    run<T, via::slots, via::memory>(packs, input, output, op, inputs, destination);
  }

  /// Waits, for `limit` and a little more, until a step of `packs` packs, at most `capacity()`, can be received: then a
  /// call for so much does not wait. After `status::timeout` nothing is recorded or taken: it may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_receive_for(uint32_t packs, nanoseconds limit) {
    const status outcome = detail::fifo_deadline::receive(*this, packs, limit);
    if constexpr (Protocol != protocol::network)
      if (outcome == status::timeout && group_.thread_rank() == 0) detail::note_timeout(home_, offset_, layout());
    return outcome;
  }
  /// The same until there is room for a step at every rank that it sends to.
  [[nodiscard]] DEVCOMM_DEVICE status wait_send_for(nanoseconds limit) {
    return detail::fifo_deadline::send(*this, limit);
  }

  /// `status::success`, or why the session is dead; the same for the whole group, which it synchronizes.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    failure_ = detail::agree(group_, failure_, status::timeout, outcome_word());
    dead_ = failure_ != status::success;
    return failure_;
  }

  /// A span of this group, in a trace.
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return {group_, home_, name}; }

 private:
  friend struct detail::fifo_deadline;
  friend struct detail::fifo_transport<Protocol>;
  static constexpr bool has_tail = transport::has_tail;
  using failing_wait = typename transport::wait_type;
  using contract_type = detail::checked_call;
  using packets = detail::slot_packets<Protocol>;
  using cursor = typename packets::cursor;

  DEVCOMM_DEVICE session(Group group, const device_comm& comm, const team& members, const handle& fifos)
      : group_(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(members),
        offset_(fifos.offset),
        slots_(fifos.slots),
        slot_packs_(fifos.packs),
        count_(fifos.count) {
    transport::check_members(members, comm);
    comm.check_owner(fifos);
    DEVCOMM_ASSERT(fifos.packs > 0 && fifos.slots > 0, "these FIFOs have no slots: ask for some");
    const bool can_move = fifos.packs > 0 && (Protocol != protocol::ll128 || group.size() % 32 == 0);
    if (!can_move || packets::lane_group::any(detail::is_aborted(home_))) failure_ = status::aborted;
    dead_ = !can_move;
  }

  // Ends are only ever indexed by constants, so that they stay in registers.
  DEVCOMM_DEVICE bool receives_from(int r) const { return Receives == 1 || from_[r].is_connected(); }
  DEVCOMM_DEVICE bool sends_to(int s) const { return Sends == 1 || to_[s].is_connected(); }

  /// Calls `action(id)` for each connected end, where `id()` identifies this session's use of it to the simulator.
  template <class Action>
  DEVCOMM_DEVICE void for_each_id(const Action& action) const {
    if constexpr (arch::observes_sessions) {
      for (const detail::receiving_end& end : from_)
        if (end.is_connected()) action(id_of(operation::fifo_receive, end));
      for (const detail::sending_end& end : to_)
        if (end.is_connected()) action(id_of(operation::fifo_send, end));
    }
  }
  DEVCOMM_DEVICE void called(detail::session_call call) const { for_each_id(detail::call_action{call}); }
  /// Identifies this session's use of an end to the simulator.
  DEVCOMM_DEVICE auto id_of(operation what, const detail::fifo_end& end) const {
    return [this, what, index = end.index]() -> detail::session_id {
      const device_comm& comm = home_->comm;
      return {what, index, comm.rank, group_.thread_rank(), group_.size(), comm.resources.base, offset_of(index),
              false};
    };
  }
  /// As `session_id::offset`.
  DEVCOMM_DEVICE uint64_t offset_of(uint32_t index) const { return offset_ + index * uint64_t{8}; }
  template <class End>
  DEVCOMM_DEVICE failing_wait wait_of(operation what, const End& end) const {
    const wait_condition condition = what == operation::fifo_send ? wait_condition::taken : wait_condition::sent;
    return transport::wait_of({what, end.index, end.peer, 0, condition, 0, end.peer_index, offset_of(end.index)}, end,
                              slots_);
  }

  DEVCOMM_DEVICE fifo_layout<Protocol> layout() const { return {count_, slots_, slot_packs_}; }
  DEVCOMM_DEVICE fifo_counts* counts_of(uint32_t index) const {
    return reinterpret_cast<fifo_counts*>(reinterpret_cast<char*>(home_) + offset_ + layout().counts(index));
  }
  DEVCOMM_DEVICE uint32_t* outcome_word() const {
    uint32_t index = 0;
    uint32_t word = 1;
    DEVCOMM_UNROLL
    for (int s = 0; s < Sends; ++s)
      if (to_[s].is_connected()) index = to_[s].index;
    DEVCOMM_UNROLL
    for (int r = 0; r < Receives; ++r) {
      if (!from_[r].is_connected()) continue;
      index = from_[r].index;
      word = 0;
    }
    return &counts_of(index)->outcomes[word];
  }
  /// In checked mode, reports steps of calls before this moment that were not received.
  DEVCOMM_DEVICE void find_left_steps() {
    if constexpr (DEVCOMM_CHECKED != 0 && Protocol != protocol::network) {
      if (group_.thread_rank() != 0) return;
      detail::note_fifos(home_, offset_, layout());
      for (const auto& from : from_)
        if (failure_ == status::success && from.is_connected())
          failure_ = detail::find_left_step(home_, from, wait_of(operation::fifo_receive, from), slots_);
    }
  }
  DEVCOMM_DEVICE void keep_counts() {
    DEVCOMM_UNROLL
    for (int r = 0; r < Receives; ++r)
      if (from_[r].is_connected()) from_[r].keep(counts_of(from_[r].index));
    DEVCOMM_UNROLL
    for (int s = 0; s < Sends; ++s)
      if (to_[s].is_connected()) to_[s].keep(counts_of(to_[s].index));
    transport::end(*this);
  }

  template <class T, via Receive, via Send, class Produce, class Consume, class Operator, class Destination>
  DEVCOMM_DEVICE void run(slice packs, const Produce& input, const Consume& output, const Operator& op, int inputs,
                          const Destination& destination) {
    using call_type = detail::channel_call<T, Receive, Send, Produce, Consume, Operator, Destination>;
    static_assert(Protocol == protocol::simple || (Receive != via::memory && Send != via::memory),
                  "ll and ll128 carry their flags in the slots: only simple stores into the receiver's memory");
    static_assert(Sends == 1 || Send != via::memory, "direct forms send to one rank");
    DEVCOMM_ASSERT(Receive == via::nothing || detail::is_any_connected(from_), "this session receives from nobody");
    DEVCOMM_ASSERT(Send == via::nothing || detail::is_any_connected(to_), "this session sends to nobody");
    called(detail::session_call::transfer);
    if constexpr (DEVCOMM_CHECKED != 0) {
      for (auto& from : from_) from.calls += Receive != via::nothing ? 1 : 0;
      for (auto& to : to_) to.calls += Send != via::nothing ? 1 : 0;
    }
    const call_type call{packs, input, output, op, inputs, destination};
    const auto contract = contract_type::of("channel call", 0, packs.size(), sizeof(T));
    for (uint64_t first = packs.begin; first < packs.end && !dead_; first += slot_packs_) {
      const uint64_t rest = packs.end - first;
      const uint32_t count = rest < slot_packs_ ? static_cast<uint32_t>(rest) : slot_packs_;
      if (!begin_step<call_type>(contract)) return;
      if constexpr (has_tail) {
        move_bytes(call, first, count);
      } else {
        move_packets(call, first, count, contract);
      }
      end_step<call_type>(count);
    }
  }

  /// Waits until this step's slots may be read and written. Whether they may; the same for the whole group.
  template <class Call>
  DEVCOMM_DEVICE bool begin_step(const contract_type& contract) {
    constexpr bool receives = has_tail && Call::receive != via::nothing;
    constexpr bool sends = Call::send != via::nothing;
    bool waits = receives || !voted_;  // a session that begins dead moves nothing
    if constexpr (sends) {
      DEVCOMM_UNROLL
      for (int s = 0; s < Sends; ++s) waits = waits || lacks_credit(s);
    }
    if (waits) {
      wait_at_ends<receives, sends>(contract);
      if (detail::any(group_, failure_ != status::success, outcome_word())) return die();
      voted_ = true;
      if constexpr (sends) {
        DEVCOMM_UNROLL
        for (int s = 0; s < Sends; ++s)
          if (lacks_credit(s)) to_[s].credited = to_[s].step - slots_ + 1;
      }
    }
    if constexpr (sends) {
      DEVCOMM_UNROLL
      for (int s = 0; s < Sends; ++s)
        if (sends_to(s) && packets::shows_steps(group_.thread_rank())) detail::show_step(to_[s], slots_, contract);
    }
    return true;
  }
  DEVCOMM_DEVICE bool lacks_credit(int s) const { return sends_to(s) && !to_[s].has_credit(slots_); }
  /// The first threads of the group wait at an end each: those that are received from first.
  template <bool Receive, bool Send>
  DEVCOMM_DEVICE void wait_at_ends(const contract_type& contract) {
    constexpr int receives = Receive ? Receives : 0;
    constexpr int sends = Send ? Sends : 0;
    const trace_span traced = trace({"FIFO", span_kind::wait});
    for (auto i = static_cast<int>(group_.thread_rank()); i < receives + sends; i += static_cast<int>(group_.size())) {
      const uint32_t* word = nullptr;
      uint32_t target = 0;
      failing_wait wait{};
      const detail::receiving_end* sender = nullptr;  // where the wait is not for credit
      DEVCOMM_UNROLL
      for (int r = 0; r < receives; ++r) {
        if (r != i || !receives_from(r)) continue;
        word = from_[r].tail;
        target = from_[r].step + 1;
        wait = wait_of(operation::fifo_receive, from_[r]);
        sender = &from_[r];
      }
      DEVCOMM_UNROLL
      for (int s = 0; s < sends; ++s) {
        if (receives + s != i || !lacks_credit(s)) continue;
        target = to_[s].step - slots_ + 1;
        if (to_[s].has_acquired(target)) continue;
        word = to_[s].head;
        wait = wait_of(operation::fifo_send, to_[s]);
      }
      if (word == nullptr || failure_ != status::success) continue;
      const detail::step_difference difference{sender, slots_, contract};
      const detail::seen_count seen = transport::wait_for_count(home_, wait, word, target, difference);
      failure_ = seen.outcome;
      if (failure_ == status::success && difference.arrived()) failure_ = difference.report(home_, wait);
      DEVCOMM_UNROLL
      for (int s = 0; s < sends; ++s)
        if (receives + s == i && failure_ == status::success) to_[s].acquired = seen.count;
    }
  }

  /// The whole group has seen a failure.
  DEVCOMM_DEVICE bool die() {
    dead_ = true;
    if (failure_ == status::success) failure_ = status::aborted;
    return false;
  }

  // simple

  template <class Call>
  DEVCOMM_DEVICE void move_bytes(const Call& call, uint64_t first, uint32_t count) {
    constexpr uint32_t at_once = Receives + Sends > 2 ? 2 : 4;
    const uint32_t threads = group_.size();
    uint32_t i = group_.thread_rank();
    for (; i + uint64_t{at_once - 1} * threads < count; i += at_once * threads)
      move_packs<at_once>(call, first, i, threads);
    for (; i < count; i += threads) move_packs<1>(call, first, i, threads);
  }

  /// Packs `i`, `i + stride` and so on of a step.
  template <int AtOnce, class Call>
  DEVCOMM_DEVICE void move_packs(const Call& call, uint64_t first, uint32_t i, uint32_t stride) {
    using T = typename Call::element;
    constexpr uint64_t bytes = 16;
    pack<T> own[AtOnce]{};
    pack<T> received[AtOnce][Receives]{};
    if constexpr (Call::receive == via::slots) {
      DEVCOMM_UNROLL
      for (int r = 0; r < Receives; ++r) {
        if (!receives_from(r)) continue;
        const char* slot = slot_of(from_[r]) + i * bytes;
        DEVCOMM_UNROLL
        for (int u = 0; u < AtOnce; ++u)
          received[u][r] =
              load_pack_streaming(reinterpret_cast<const T*>(slot + static_cast<uint32_t>(u) * stride * bytes));
      }
    }
    if constexpr (Call::has_input) {
      DEVCOMM_UNROLL
      for (int u = 0; u < AtOnce; ++u) own[u] = call.produce(first + i + static_cast<uint32_t>(u) * stride);
    }
    pack<T> values[AtOnce];
    DEVCOMM_UNROLL
    for (int u = 0; u < AtOnce; ++u) values[u] = call.combine(received[u], present(), own[u]);
    if constexpr (Call::send == via::slots) {
      DEVCOMM_UNROLL
      for (int s = 0; s < Sends; ++s) {
        if (!sends_to(s)) continue;
        char* slot = slot_of(to_[s]) + i * bytes;
        DEVCOMM_UNROLL
        for (int u = 0; u < AtOnce; ++u)
          store_pack_streaming(reinterpret_cast<T*>(slot + static_cast<uint32_t>(u) * stride * bytes), values[u]);
      }
    }
    DEVCOMM_UNROLL
    for (int u = 0; u < AtOnce; ++u) {
      const uint64_t at = first + i + static_cast<uint32_t>(u) * stride;
      if constexpr (Call::send == via::memory) call.to(at, values[u]);
      if constexpr (Call::has_output) call.consume(at, values[u]);
    }
  }

  /// A bit for each rank that is received from.
  DEVCOMM_DEVICE uint32_t present() const {
    uint32_t bits = 0;
    DEVCOMM_UNROLL
    for (int r = 0; r < Receives; ++r) bits |= (receives_from(r) ? 1u : 0u) << r;
    return bits;
  }
  DEVCOMM_DEVICE char* slot_of(const detail::fifo_end& end) const {
    return end.slot(slots_, slot_bytes<Protocol>(slot_packs_));
  }

  // ll and ll128

  template <class Call>
  DEVCOMM_DEVICE void move_packets(const Call& call, uint64_t first, uint32_t count, const contract_type& contract) {
    cursor at(group_);
    if constexpr (Receives + Sends == 2) {
      for (;;) {
        cursor second = at;
        second.next();
        if (second.first() >= count) break;
        move_packets_at(call, first, count, {at, second}, contract);
        at = second;
        at.next();
      }
    }
    for (; at.first() < count; at.next()) move_packets_at(call, first, count, {at}, contract);
  }

  template <int AtOnce, class Call>
  DEVCOMM_DEVICE void move_packets_at(const Call& call, uint64_t first, uint32_t count, const cursor (&at)[AtOnce],
                                      const contract_type& contract) {
    using T = typename Call::element;
    pack<T> own[AtOnce]{};
    pack<T> received[AtOnce][Receives]{};
    if constexpr (Call::has_input) {
      DEVCOMM_UNROLL
      for (int u = 0; u < AtOnce; ++u)
        if (at[u].is_below(count)) own[u] = call.produce(first + at[u].index());
    }
    if constexpr (Call::receive == via::slots) {
      DEVCOMM_UNROLL
      for (int r = 0; r < Receives; ++r)
        if (receives_from(r)) receive_packets(from_[r], r, at, received, contract);
    }
    if (failure_ != status::success) return;
    DEVCOMM_UNROLL
    for (int u = 0; u < AtOnce; ++u) {
      const pack<T> value = call.combine(received[u], present(), own[u]);
      if constexpr (Call::send == via::slots) {
        DEVCOMM_UNROLL
        for (int s = 0; s < Sends; ++s)
          if (sends_to(s)) packets::store(slot_of(to_[s]), at[u], value, to_[s].flag());
      }
      if constexpr (Call::has_output)
        if (at[u].is_below(count)) call.consume(first + at[u].index(), value);
    }
  }

  /// Waits for this thread's packs from one rank. After a failure, see `failure_`, they are not all there.
  template <int AtOnce, class T>
  DEVCOMM_DEVICE void receive_packets(const detail::receiving_end& from, int r, const cursor (&at)[AtOnce],
                                      pack<T> (&received)[AtOnce][Receives], const contract_type& contract) {
    using lane_group = typename packets::lane_group;
    typename packets::raw raw[AtOnce];
    const char* slot = slot_of(from);
    const failing_wait wait = wait_of(operation::fifo_receive, from);
    bool differs = false, other = false;  // as this thread knows, as one that loads with it does
    const auto ready = [&] {
      DEVCOMM_UNROLL
      for (int u = 0; u < AtOnce; ++u) raw[u] = packets::load(slot, at[u]);
      bool missing = false;
      DEVCOMM_UNROLL
      for (int u = 0; u < AtOnce; ++u) missing = missing | packets::is_missing(raw[u], from.flag());
      const bool whole = !lane_group::any(missing);
      if constexpr (DEVCOMM_CHECKED != 0) {
        differs = packets::has_flag() && detail::differs(from, slots_, contract, whole);
        other = lane_group::any(differs);
      }
      return whole || other;
    };
    packets::join();
    if (failure_ == status::success) {
      const trace_span traced = trace({"FIFO", span_kind::wait});
      detail::poll<1, lane_group>(
          home_, detail::communicator_timeout(),
          [&] { return detail::label_of(home_, wait.until(from.step + 1), detail::communicator_timeout(), from.step); },
          ready,
          [&](status failure) {
            failure_ = failure;
            detail::report(home_, failure, wait.until(from.step + 1), from.step);
          });
      if (other) failure_ = status::aborted;
      if (differs) failure_ = detail::report_difference(home_, from, wait, slots_, contract);
    }
    if (failure_ != status::success) return;
    DEVCOMM_UNROLL
    for (int u = 0; u < AtOnce; ++u) received[u][r] = packets::template decode<T>(raw[u]);
  }

  /// Publishes this step of `count` packs to the other ends, and advances to the next.
  template <class Call>
  DEVCOMM_DEVICE void end_step([[maybe_unused]] uint32_t packs) {
    constexpr bool receives = Call::receive != via::nothing;
    constexpr bool sends = Call::send != via::nothing;
    if constexpr (has_tail) {
      transport::template tell<receives ? Receives : 0, sends ? Sends : 0>(*this, packs);
    } else if constexpr (receives) {
      if (detail::any(group_, failure_ != status::success, outcome_word())) return static_cast<void>(die());
      if (group_.thread_rank() == 0) {
        DEVCOMM_UNROLL
        for (int r = 0; r < Receives; ++r)
          if (receives_from(r)) arch::store<memory_order::relaxed, scope::system>(from_[r].head, from_[r].step + 1);
      }
    }
    if constexpr (receives) {
      DEVCOMM_UNROLL
      for (int r = 0; r < Receives; ++r) ++from_[r].step;
    }
    if constexpr (sends) {
      DEVCOMM_UNROLL
      for (int s = 0; s < Sends; ++s) ++to_[s].step;
    }
  }

  Group group_;
  resource_header* home_;
  team members_;
  uint64_t offset_;
  uint32_t slots_;
  uint32_t slot_packs_;
  uint32_t count_;
  typename transport::receiving from_[Receives];
  typename transport::sending to_[Sends];
  status failure_ = status::success;  // of this thread
  bool dead_ = false;                 // the whole group has seen a failure
  bool voted_ = false;                // on whether it has begun dead
};

}  // namespace devcomm::channel
