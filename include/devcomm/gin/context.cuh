/// \file context.cuh
/// Puts, gets and signals to ranks that cannot be reached by load and store.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/gin/contexts.hpp>
#include <devcomm/gin/detail/queue_end.cuh>
#include <devcomm/group.cuh>
#include <devcomm/status.hpp>

namespace devcomm::gin {

/// What a flush waits for.
struct flush_ticket {
  uint32_t word;
  int32_t peer;  ///< world rank; -1: all
  uint64_t number;
  uint32_t context;  ///< whose flush it is
};

/// A group's hold on one of the communicator's contexts. Any number of groups of a rank may use a context at once.
///
///     __global__ void shift(device_comm comm, gin::context_handle contexts, sym_ptr<float> in, sym_ptr<float> out) {
///       gin::context net{block{}, comm, contexts, 0};
///       const int next = (comm.rank + 1) % comm.size;
///       net.put(next, out, in, 1000, gin::signal_add{0});
///       net.wait_signal(0, 1);  // what was put to this rank is visible to the block
///       net.flush();            // in may be written again
///     }
///
/// *Collective*: constructor and every method are called by all threads of the group, in the same order. Peers are
/// members of the team. *Requires* windows of the communicator that made the device communicator.
///
/// *Ordering*. Posting an operation is a release at system scope: it covers what any thread of the group wrote before,
/// in memory of this GPU and of others. Beyond that, operations are not ordered, not even those of one context to one
/// peer: they may be done in any order, and each in parts. What orders them:
///
/// - A weak signal, for the peer that waits for it or reads it: the data of its own put is there.
/// - A strong signal: that, and the data of all earlier puts of this context to that peer, and the effect of their
///   strong signals.
/// - The counter of an operation, for this rank: its source may be written again; what it got can be read.
/// - `flush`: the same of all operations that any thread posted to the context before.
///
/// - `fence`: what was posted to any context before, to one peer, before what is posted to that peer afterwards, to
/// any.
///
/// Completion on this rank says nothing of the peer: what has been flushed may not have arrived. An operation is
/// earlier than another if it was posted earlier by the same thread, or by one that the poster has synchronized with.
///
/// *Failure*. Waits, and posts that find the queue full, end after the communicator's timeout; a failure leaves a
/// record that names the context, the peer and both values, and ends the device communicator's other waits on this
/// rank. An operation that the proxy or the network cannot do ends them too, and `device_communicator::check` says
/// which and why; nothing that was posted after it is done. A session that a failed wait has ended is dead, and so is
/// every later one: it posts nothing, and its waits return at once. Call `agree` to share the outcome with the group.
template <class Group>
class context {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  /// Peers are world ranks.
  DEVCOMM_DEVICE context(Group group, const device_comm& comm, const context_handle& contexts, uint32_t index)
      : context(group, comm, comm.world(), contexts, index) {}

  DEVCOMM_DEVICE context(Group group, const device_comm& comm, team members, const context_handle& contexts,
                         uint32_t index)
      : group_(group),
        members_(members),
        queue_(detail::queue_end::of(comm, contexts, index)),
        contexts_(contexts.count),
        signals_(contexts.signals) {
    DEVCOMM_ASSERT_OF(index < contexts.count, "GIN context", index, contexts.count,
                      "context index is past the contexts that requirements asked for; ask for more: "
                      "gin::contexts{.count = count}");
    if (leads() && detail::is_aborted(queue_.home)) mine_ = status::aborted;
  }

  context(const context&) = delete;
  context& operator=(const context&) = delete;

  /// `bytes` from this rank's window to the peer's. Any size and alignment; the peer may be this rank.
  template <class Signal = no_action, class Counter = no_action>
  DEVCOMM_DEVICE void put(int peer, const window& destination, uint64_t destination_offset, const window& source,
                          uint64_t source_offset, uint64_t bytes, Signal remote = {}, Counter local = {}) {
    check_range(destination, destination_offset, bytes);
    check_range(source, source_offset, bytes);
    descriptor made = between(source, source_offset, destination, destination_offset, bytes);
    if (arch::short_puts_are_values && bytes != 0 && bytes <= sizeof made.value) {
      group_.sync();
      if (leads()) made.value = read_source(source.local + source_offset, static_cast<uint32_t>(bytes));
      return post(peer, operation_kind::put_value, made, remote, local, static_cast<uint32_t>(bytes));
    }
    post(peer, operation_kind::put, made, remote, local, 0);
  }
  /// `count` elements.
  template <class T, class Signal = no_action, class Counter = no_action>
  DEVCOMM_DEVICE void put(int peer, sym_ptr<T> destination, sym_ptr<T> source, uint64_t count, Signal remote = {},
                          Counter local = {}) {
    put(peer, destination.memory, destination.offset, source.memory, source.offset, count * sizeof(T), remote, local);
  }

  /// One element of at most 8 bytes, without a source: nothing has to be flushed. The value of thread 0 counts.
  template <class T, class Signal = no_action>
  DEVCOMM_DEVICE void put_value(int peer, sym_ptr<T> destination, T value, Signal remote = {}) {
    static_assert(sizeof(T) <= 8, "put_value takes elements of at most 8 bytes: put larger ones from a window");
    check_range(destination.memory, destination.offset, sizeof(T));
    descriptor made = between({}, 0, destination.memory, destination.offset, sizeof(T));
    detail::copy_bytes(&made.value, &value, sizeof(T));
    post(peer, operation_kind::put_value, made, remote, no_action{}, sizeof(T));
  }

  /// `count` elements from the peer's window to this rank's; they can be read after a flush, or by a counter.
  template <class T, class Counter = no_action>
  DEVCOMM_DEVICE void get(int peer, sym_ptr<T> destination, sym_ptr<T> source, uint64_t count, Counter local = {}) {
    const uint64_t bytes = count * sizeof(T);
    check_range(destination.memory, destination.offset, bytes);
    check_range(source.memory, source.offset, bytes);
    descriptor made = between(destination.memory, destination.offset, source.memory, source.offset, bytes);
    post(peer, operation_kind::get, made, no_action{}, local, 0);
  }

  /// A signal without data.
  template <class Signal>
  DEVCOMM_DEVICE void signal(int peer, Signal action) {
    static_assert(changes_signal<Signal> && !counts<Signal>, "signal needs gin::signal_add or gin::signal_set");
    post(peer, operation_kind::signal, between({}, 0, {}, 0, 0), action, no_action{}, 0);
  }

  /// Waits until all operations that were posted to this context before are complete on this rank.
  DEVCOMM_DEVICE void flush() { wait(begin_flush()); }
  /// The same of those to one peer.
  DEVCOMM_DEVICE void flush(int peer) { wait(begin_flush(peer)); }
  /// Begins a flush that `wait` ends: it covers what was posted before.
  [[nodiscard]] DEVCOMM_DEVICE flush_ticket begin_flush() {
    group_.sync();
    return {queue_.layout.done(), -1, arch::load<memory_order::relaxed, scope::device>(&queue_.record->posted),
            queue_.index};
  }
  [[nodiscard]] DEVCOMM_DEVICE flush_ticket begin_flush(int peer) {
    const uint32_t rank = world_rank(peer);
    group_.sync();
    return {queue_.layout.done_with(rank), static_cast<int32_t>(rank), queue_.latest(rank), queue_.index};
  }
  /// *Requires* a ticket of this context.
  DEVCOMM_DEVICE void wait(const flush_ticket& begun) {
    DEVCOMM_ASSERT(begun.context == queue_.index,
                   "the flush was begun on another context, whose operations this one does not know: wait there");
    if (leads() && mine_ == status::success)
      mine_ = detail::wait_for_proxy(queue_, begun.word, wait_of(begun), detail::communicator_timeout());
    group_.sync();
  }
  /// The same for `limit` and a little more, as `wait_signal_for`.
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(const flush_ticket& begun, nanoseconds limit) {
    DEVCOMM_ASSERT(begun.context == queue_.index,
                   "the flush was begun on another context, whose operations this one does not know: wait there");
    return wait_site_for(begun.word, wait_of(begun), limit);
  }

  /// Waits until all operations to `peer` that were posted before, to any context of the handle, have had their effect
  /// there and are complete here: data has arrived, signals have changed. What is posted to the peer afterwards, to
  /// whatever context, finds all that done. A trip to the peer and back; threads of the group take the contexts in
  /// turns.
  DEVCOMM_DEVICE void fence(int peer) {
    const uint32_t rank = world_rank(peer);
    group_.sync();
    for_each_sender(rank, [&](const detail::queue_end& queue) {
      const descriptor_head head{operation_kind::fence, signal_change::none, strength::strong, false, 0, rank};
      return detail::post(queue, {}, head, detail::communicator_timeout());
    });
    for_each_sender(rank, [&](const detail::queue_end& queue) {
      const detail::wait_site wait{operation::gin_fence, queue.index, static_cast<int32_t>(rank), queue.latest(rank),
                                   wait_condition::done_by_proxy};
      return detail::wait_for_proxy(queue, queue.layout.done_with(rank), wait, detail::communicator_timeout());
    });
    group_.sync();
    if (leads() && mine_ == status::success && detail::is_aborted(queue_.home)) mine_ = status::aborted;
  }

  /// Waits until signal `index` of this rank is at least `least`, by the sign of the difference. *Ordering*: acquires:
  /// every thread of the group sees what the signals that were waited for have before them.
  DEVCOMM_DEVICE void wait_signal(uint32_t index, uint64_t least) {
    wait_word(operation::gin_signal, signal_word(index), index, least);
  }
  /// The same for `limit` and a little more. The outcome is the same for all threads of the group. After
  /// `status::timeout` nothing is recorded, and the wait may be repeated.
  [[nodiscard]] DEVCOMM_DEVICE status wait_signal_for(uint32_t index, uint64_t least, nanoseconds limit) {
    return wait_site_for(signal_word(index), wait_of(operation::gin_signal, index, least), limit);
  }
  /// The signal as it is, the same for all threads of the group; does not wait. *Ordering*: acquires.
  [[nodiscard]] DEVCOMM_DEVICE uint64_t read_signal(uint32_t index) { return read_word(signal_word(index)); }
  /// The signal is 0 from now on. *Requires* that nothing is on its way to it: peers change it again only after they
  /// have heard of this rank.
  DEVCOMM_DEVICE void reset_signal(uint32_t index) { reset_word(signal_word(index)); }

  /// As those of signals, of this rank's counters.
  DEVCOMM_DEVICE void wait_counter(uint32_t index, uint64_t least) {
    wait_word(operation::gin_counter, counter_word(index), index, least);
  }
  [[nodiscard]] DEVCOMM_DEVICE status wait_counter_for(uint32_t index, uint64_t least, nanoseconds limit) {
    return wait_site_for(counter_word(index), wait_of(operation::gin_counter, index, least), limit);
  }
  [[nodiscard]] DEVCOMM_DEVICE uint64_t read_counter(uint32_t index) { return read_word(counter_word(index)); }
  DEVCOMM_DEVICE void reset_counter(uint32_t index) { reset_word(counter_word(index)); }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*: synchronizes
  /// the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    static_assert(detail::can_vote<Group>, "the group needs any(bool), as devcomm::block has");
    const status outcome = detail::agree(group_, mine_, status::timeout, nullptr);
    if (outcome != status::success) mine_ = outcome;
    return outcome;
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }

 private:
  DEVCOMM_DEVICE bool leads() const { return group_.thread_rank() == 0; }

  DEVCOMM_DEVICE uint32_t world_rank(int peer) const {
    DEVCOMM_ASSERT(peer >= 0 && peer < members_.size, "the peer of an operation is outside its team");
    return static_cast<uint32_t>(members_.world_rank(peer));
  }
  /// Calls `action` with each of this thread's contexts that has sent to `rank`, while it returns success.
  template <class Action>
  DEVCOMM_DEVICE void for_each_sender(uint32_t rank, const Action& action) {
    for (uint32_t i = group_.thread_rank(); i < contexts_ && mine_ == status::success; i += group_.size()) {
      const detail::queue_end queue = queue_.sibling(i);
      if (queue.latest(rank) != 0) mine_ = action(queue);
    }
  }
  DEVCOMM_DEVICE uint32_t signal_word(uint32_t index) const {
    DEVCOMM_ASSERT_OF(index < signals_, "GIN signal", index, signals_,
                      "signal index is past the signals that gin::contexts asked for; ask for more: "
                      "gin::contexts{.signals = count}");
    return queue_.layout.signal(index);
  }
  DEVCOMM_DEVICE uint32_t counter_word(uint32_t index) const {
    DEVCOMM_ASSERT_OF(index < queue_.layout.counters, "GIN counter", index, queue_.layout.counters,
                      "counter index is past the counters that gin::contexts asked for; ask for more: "
                      "gin::contexts{.counters = count}");
    return queue_.layout.counter(index);
  }
  DEVCOMM_DEVICE static void check_range([[maybe_unused]] const window& memory, [[maybe_unused]] uint64_t offset,
                                         [[maybe_unused]] uint64_t bytes) {
    DEVCOMM_ASSERT(offset <= memory.bytes && bytes <= memory.bytes - offset,
                   "an operation of the network runs past its window's end");
  }
  DEVCOMM_DEVICE static descriptor between(const window& local, uint64_t local_offset, const window& remote,
                                           uint64_t remote_offset, uint64_t bytes) {
    return {local_offset, remote_offset, uint64_t{remote.id} << 32 | local.id, bytes, 0, 0, 0, 0};
  }

  /// The first bytes of a value. By one load where it can be: a source in host memory is a trip across the bus away.
  DEVCOMM_DEVICE static uint64_t read_source(const char* source, uint32_t bytes) {
    const bool aligned_to_4 = reinterpret_cast<uintptr_t>(source) % 4 == 0;
    if (bytes == 8 && reinterpret_cast<uintptr_t>(source) % 8 == 0) return arch::load_bytes<8>(source);
    if (bytes == 4 && aligned_to_4) return arch::load_bytes<4>(source);
    if (bytes == 8 && aligned_to_4) {
      const uint64_t upper = arch::load_bytes<4>(source + 4);
      return upper << 32 | arch::load_bytes<4>(source);
    }
    uint64_t value = 0;
    detail::copy_bytes(&value, source, bytes);
    return value;
  }

  DEVCOMM_DEVICE void describe(const no_action&, descriptor&, descriptor_head&) const {}
  DEVCOMM_DEVICE void describe(const signal_add& action, descriptor& made, descriptor_head& head) const {
    describe_signal(action.signal, action.value, signal_change::add, action.covers, made, head);
  }
  DEVCOMM_DEVICE void describe(const signal_set& action, descriptor& made, descriptor_head& head) const {
    describe_signal(action.signal, action.value, signal_change::set, action.covers, made, head);
  }
  DEVCOMM_DEVICE void describe_signal(uint32_t signal, uint64_t value, signal_change change, strength covers,
                                      descriptor& made, descriptor_head& head) const {
    static_cast<void>(signal_word(signal));
    made.actions |= signal;
    made.signal_value = value;
    head.change = change;
    head.covers = covers;
  }
  DEVCOMM_DEVICE void describe(const counter_increment& action, descriptor& made, descriptor_head& head) const {
    static_cast<void>(counter_word(action.counter));
    made.actions |= uint64_t{action.counter} << 32;
    head.counts = true;
  }

  template <class Signal, class Counter>
  DEVCOMM_DEVICE void post(int peer, operation_kind kind, descriptor made, const Signal& remote, const Counter& local,
                           uint32_t value_bytes) {
    static_assert(changes_signal<Signal>,
                  "the action on the peer is gin::signal_add, gin::signal_set or gin::no_action");
    static_assert(counts<Counter>, "the action on this rank is gin::counter_increment or gin::no_action");
    descriptor_head head{kind, signal_change::none, strength::weak, false, value_bytes, world_rank(peer)};
    describe(remote, made, head);
    describe(local, made, head);
    group_.sync();
    if (leads() && mine_ == status::success) mine_ = detail::post(queue_, made, head, detail::communicator_timeout());
  }

  DEVCOMM_DEVICE detail::wait_site wait_of(operation what, uint32_t index, uint64_t least) const {
    return {what, index, -1, least, wait_condition::at_least, 0, queue_.index};
  }
  DEVCOMM_DEVICE detail::wait_site wait_of(const flush_ticket& begun) const {
    return {operation::gin_flush, queue_.index, begun.peer, begun.number, wait_condition::done_by_proxy};
  }
  DEVCOMM_DEVICE void wait_word(operation what, uint32_t word, uint32_t index, uint64_t least) {
    if (leads() && mine_ == status::success)
      mine_ = detail::wait_for_proxy(queue_, word, wait_of(what, index, least), detail::communicator_timeout());
    group_.sync();
  }
  DEVCOMM_DEVICE status wait_site_for(uint32_t word, const detail::wait_site& site, nanoseconds limit) {
    static_assert(detail::can_vote<Group>, "the group needs any(bool), as devcomm::block has");
    status mine = mine_ == status::timeout ? status::aborted : mine_;  // repeating would not help
    if (leads() && mine == status::success) mine = detail::wait_for_proxy(queue_, word, site, detail::within(limit));
    const status outcome = detail::agree(group_, mine, status::aborted, nullptr);
    if (outcome == status::aborted && mine_ == status::success) mine_ = outcome;
    return outcome;
  }
  DEVCOMM_DEVICE uint64_t read_word(uint32_t word) {
    uint64_t value = 0;
    if (leads()) value = queue_.load(word);
    value = broadcast(group_, value, 0);
    if constexpr (!detail::any_synchronizes<Group>) group_.sync();
    return value;
  }
  DEVCOMM_DEVICE void reset_word(uint32_t word) {
    group_.sync();
    if (leads()) arch::store<memory_order::relaxed, scope::system>(queue_.record->words + word, uint64_t{0});
    group_.sync();
  }

  Group group_;
  team members_;
  detail::queue_end queue_;
  uint32_t contexts_;              // of the handle
  uint32_t signals_;               // of the user's
  status mine_ = status::success;  // of thread 0, why it knows the session to be dead; of others, what was agreed
};

}  // namespace devcomm::gin
