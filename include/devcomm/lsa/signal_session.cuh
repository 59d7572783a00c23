/// \file signal_session.cuh
/// Public flags: words that a kernel stores to on its peers, and waits for. For ping-pong, credits and pipelines.
///
/// Protocol. There is none but the user's own: a signal is a word in every member's memory. A release store or addition
/// by a peer pairs with the acquire load by which a wait ends; the group's own `sync` before the one and after the
/// other extends the order to all its threads.
#pragma once

#include <devcomm/any_order.hpp>
#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/wait_for_word.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/group.cuh>
#include <devcomm/lsa/detail/members.cuh>
#include <devcomm/lsa/signals.hpp>
#include <devcomm/sym_ptr.hpp>

namespace devcomm::lsa {

/// Condition of a wait: the signal is `value`.
struct equal_to {
  uint64_t value;

  DEVCOMM_HOST_DEVICE constexpr bool operator()(uint64_t seen) const { return seen == value; }
};

/// Condition of a wait: the signal is `value` or more. Values are compared by the sign of their difference, so a
/// counter may wrap around.
struct at_least {
  uint64_t value;

  DEVCOMM_HOST_DEVICE constexpr bool operator()(uint64_t seen) const { return static_cast<int64_t>(seen - value) >= 0; }
};

/// A group's use of one signal: of its own word, which it waits for, and of the same word of its peers, which it stores
/// to or adds to. Peers are members of the team.
///
///     // Rank 0 sends, rank 1 replies; called by both with what they send and where the other's arrives.
///     lsa::signal_session signal{block{}, comm, signals, 0};
///     const int peer = 1 - comm.lsa().rank;
///     for (int round = 0; round < rounds; ++round) {
///       if (comm.lsa().rank == 1) signal.take(peer);  // the ball is here, and what came with it is visible
///       data.lsa(peer)[threadIdx.x] = data.local()[threadIdx.x] + 1;
///       signal.add(peer, 1);                          // all that the block wrote before is visible to who takes it
///       if (comm.lsa().rank == 0) signal.take(peer);
///     }
///
/// *Where a launch stands*. Signals are not reset, and a peer may signal before this launch has begun; so a launch
/// must not read the word to learn where it starts. `take` counts: a session begins where the last one on this rank
/// ended, as barrier sessions do with their epoch. With `wait`, values come from the caller, for example from a counter
/// of launches or as multiples of `taken()`.
///
/// *Collective*: constructor, destructor and every method but `taken` are called by all threads of the group, in the
/// same order. Ranks need not call the same. Any number of groups of a rank may use one signal, but at most one of them
/// at a time takes from it, or, of groups without a member `any`, waits with a deadline.
///
/// *Failure*: as for `barrier_session`: a wait without a deadline of its own ends after the communicator's timeout,
/// leaves a record that names the signal, the peer, and both values, and ends the device communicator's other waits on
/// this rank. From then on the session, and every later one, is dead: it signals nothing, and its waits return at once.
/// Call `agree` to share the outcome with the group.
template <class Group>
class signal_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  /// Signal `index` of `signals`, which were made for the LSA team.
  DEVCOMM_DEVICE signal_session(Group group, const device_comm& comm, signal_handle signals, uint32_t index)
      : signal_session(group, comm, comm.lsa(), signals, index) {}

  /// Signal `index` of `signals`, which were made for a team of this size. *Requires* that `members` is part of the LSA
  /// team and has this rank where it says.
  DEVCOMM_DEVICE signal_session(Group group, const device_comm& comm, team members, signal_handle signals,
                                uint32_t index)
      : signal_session(group, comm, members, {comm.resources, signals.offset + signal_layout{}.word(index)}, index, 0) {
    comm.check_owner(signals);
    DEVCOMM_ASSERT_OF(
        index < signals.count, "signal", index, signals.count,
        "signal index is past the signals that requirements asked for; ask for more: lsa::signals{team, count}");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members.size) == signals.members,
                   "the signals were made for a team of another size");
    char* own = comm.resources.local + signals.offset;
    const signal_layout layout{signals.count};
    kept_ = reinterpret_cast<uint64_t*>(own + layout.taken(index));
    outcome_ = reinterpret_cast<uint32_t*>(own + layout.outcome(index));
    taken_ = began_ = arch::load<memory_order::relaxed, scope::device>(kept_);
  }

  /// A word of a window or buffer of the user's own, on all LSA members. `taken` is where `take` begins to count:
  /// nobody keeps it but the caller.
  DEVCOMM_DEVICE signal_session(Group group, const device_comm& comm, sym_ptr<uint64_t> word, uint64_t taken = 0)
      : signal_session(group, comm, comm.lsa(), word, static_cast<uint32_t>(word.offset / sizeof(uint64_t)),
                       word.memory.id + 1) {
    static_assert(detail::has_any<Group>,
                  "a signal in your own memory needs a group with any(bool), such as devcomm::block: or ask for "
                  "lsa::signals");
    DEVCOMM_ASSERT(word.offset % sizeof(uint64_t) == 0, "a signal's word lies at a multiple of 8 bytes");
    DEVCOMM_ASSERT(word.offset + sizeof(uint64_t) <= word.memory.bytes, "a signal's word is past its window's end");
    taken_ = began_ = taken;
  }

  signal_session(const signal_session&) = delete;
  signal_session& operator=(const signal_session&) = delete;

  /// Keeps `taken()` for the next session.
  DEVCOMM_DEVICE ~signal_session() noexcept(false) {
    if (arch::unwinding() || kept_ == nullptr || taken_ == began_) return;
    if (leads()) {
      DEVCOMM_ASSERT((arch::load<memory_order::relaxed, scope::device>(kept_)) == began_,
                     "two sessions took from one signal at a time; give groups that run side by side signals of their "
                     "own, or let them wait for values");
      arch::store<memory_order::relaxed, scope::device>(kept_, taken_);
    }
    detail::sync_at_end(group_);
  }

  /// Stores `value` to the signal of `peer`, which may be this rank. *Ordering*: with an order that releases, what any
  /// thread of the group wrote before is visible to threads that acquire by waiting for this value.
  DEVCOMM_DEVICE void store(int peer, uint64_t value, any_order order = memory_order::release) {
    uint64_t* const word = outgoing(peer, order);
    group_.sync();
    if (!leads() || is_dead()) return;
    if (releases(order)) {
      arch::store<memory_order::release, scope::system>(word, value);
    } else {
      arch::store<memory_order::relaxed, scope::system>(word, value);
    }
  }

  /// Adds `value` to the signal of `peer`, which may be this rank, in one step: several ranks and groups may add to one
  /// signal. *Ordering*: as `store`. *Requires* links with atomics, as NVLink is; over PCIe, `store` from one rank.
  DEVCOMM_DEVICE void add(int peer, uint64_t value, any_order order = memory_order::release) {
    uint64_t* const word = outgoing(peer, order);
    group_.sync();
    if (!leads() || is_dead()) return;
    if (releases(order)) {
      arch::fetch_add<memory_order::release, scope::system>(word, value);
    } else {
      arch::fetch_add<memory_order::relaxed, scope::system>(word, value);
    }
  }

  /// The signal of this rank, the same for all threads of the group; does not wait. *Ordering*: as `wait`.
  [[nodiscard]] DEVCOMM_DEVICE uint64_t load(any_order order = memory_order::acquire) {
    check_wait(any_peer, order);
    uint64_t value = 0;
    if (leads()) {
      value = acquires(order) ? arch::load<memory_order::acquire, scope::system>(own_)
                              : arch::load<memory_order::relaxed, scope::system>(own_);
    }
    value = broadcast(group_, value, 0);
    if constexpr (!detail::any_synchronizes<Group>) group_.sync();
    return value;
  }

  /// Waits until the signal of this rank meets `condition`: `at_least{value}`, `equal_to{value}`, or a function that
  /// takes a value and returns bool. `peer`, the member that is expected to signal, or `any_peer`, is for reports. A
  /// condition must hold until this rank or group goes on: a value that is overwritten soon may never be seen.
  /// *Ordering*: with an order that acquires, every thread of the group sees what the peer wrote before it released the
  /// value that was waited for.
  template <class Condition>
  DEVCOMM_DEVICE void wait(int peer, Condition condition, any_order order = memory_order::acquire) {
    check_wait(peer, order);
    const trace_span traced = trace(condition);
    if (leads() && !is_dead()) mine_ = poll(peer, condition, order, detail::communicator_timeout());
    group_.sync();
  }

  /// `wait`, for `limit` and a little more, see `barrier_session::wait_for`. The outcome is the same for all threads of
  /// the group. After `status::timeout` nothing is recorded, and the wait may be repeated.
  template <class Condition>
  [[nodiscard]] DEVCOMM_DEVICE status wait_for(int peer, Condition condition, nanoseconds limit,
                                               any_order order = memory_order::acquire) {
    check_wait(peer, order);
    const trace_span traced = trace(condition);
    status mine = mine_ == status::timeout ? status::aborted : mine_;  // repeating would not help
    if (leads() && mine == status::success) mine = poll(peer, condition, order, detail::within(limit));
    const status outcome = detail::agree(group_, mine, status::aborted, outcome_);
    if (outcome == status::aborted) mine_ = outcome;
    return outcome;
  }

  /// Waits until `count` more have been added than were taken so far: until the signal is at least `taken() + count`,
  /// and takes them. *Ordering*: as `wait`.
  DEVCOMM_DEVICE void take(int peer, uint64_t count = 1, any_order order = memory_order::acquire) {
    wait(peer, at_least{taken_ + count}, order);
    taken_ += count;
  }

  /// `take`, as `wait_for`. After `status::timeout` nothing has been taken.
  [[nodiscard]] DEVCOMM_DEVICE status take_for(int peer, nanoseconds limit, uint64_t count = 1,
                                               any_order order = memory_order::acquire) {
    const status outcome = wait_for(peer, at_least{taken_ + count}, limit, order);
    if (outcome == status::success) taken_ += count;
    return outcome;
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*: synchronizes
  /// the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    const status outcome = detail::agree(group_, mine_, status::timeout, outcome_);
    if (outcome != status::success) mine_ = outcome;
    return outcome;
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  DEVCOMM_DEVICE const team& members() const { return members_; }
  /// How much sessions of this rank have taken since the signal was made; wraps around.
  [[nodiscard]] DEVCOMM_DEVICE uint64_t taken() const { return taken_; }

 private:
  DEVCOMM_DEVICE signal_session(Group group, const device_comm& comm, team members, sym_ptr<uint64_t> word,
                                uint32_t index, uint32_t window)
      : group_(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(members),
        word_(word),
        own_(word.local()),
        index_(index),
        window_(window) {
    detail::check_team(members, comm);
    if (leads() && detail::is_aborted(home_)) mine_ = status::aborted;
  }

  /// One thread stores and polls for its group.
  DEVCOMM_DEVICE bool leads() const { return group_.thread_rank() == 0; }
  DEVCOMM_DEVICE bool is_dead() const { return mine_ != status::success; }

  /// The word on `peer`.
  DEVCOMM_DEVICE uint64_t* outgoing(int peer, memory_order order) const {
    DEVCOMM_ASSERT_OF(peer >= 0 && peer < members_.size, "member", peer, members_.size,
                      "the peer of a signal is outside its team");
    detail::check_store_order(order);
    return word_.lsa(members_.number(peer) - word_.memory.lsa_first);
  }
  DEVCOMM_DEVICE void check_wait([[maybe_unused]] int peer, memory_order order) const {
    DEVCOMM_ASSERT(peer == any_peer || (peer >= 0 && peer < members_.size), "the peer of a signal is outside its team");
    detail::check_load_order(order);
  }

  template <class Condition>
  DEVCOMM_DEVICE detail::wait_site awaited(int peer, const Condition& condition) const {
    const int rank = peer == any_peer ? -1 : members_.number(peer);
    return {operation::lsa_signal, index_, rank, value_of(condition), kind_of(condition), window_};
  }
  template <class Condition>
  DEVCOMM_DEVICE status poll(int peer, const Condition& condition, memory_order order, detail::deadline limit) const {
    return detail::wait_for_word(home_, awaited(peer, condition), own_, condition, order, limit);
  }
  template <class Condition>
  DEVCOMM_DEVICE trace_span trace(const Condition& condition) const {
    const auto handle = static_cast<uint32_t>(word_.offset / 128);
    const awaited_span name{static_cast<uint32_t>(operation::lsa_signal),
                            index_,
                            handle,
                            static_cast<uint32_t>(value_of(condition)),
                            static_cast<uint32_t>(members_.first),
                            span_kind::wait};
    return {group_, home_, name.pack()};
  }

  DEVCOMM_DEVICE static constexpr wait_condition kind_of(const at_least&) { return wait_condition::at_least; }
  DEVCOMM_DEVICE static constexpr wait_condition kind_of(const equal_to&) { return wait_condition::equal; }
  template <class Predicate>
  DEVCOMM_DEVICE static constexpr wait_condition kind_of(const Predicate&) {
    return wait_condition::predicate;
  }
  DEVCOMM_DEVICE static constexpr uint64_t value_of(const at_least& condition) { return condition.value; }
  DEVCOMM_DEVICE static constexpr uint64_t value_of(const equal_to& condition) { return condition.value; }
  template <class Predicate>
  DEVCOMM_DEVICE static constexpr uint64_t value_of(const Predicate&) {
    return 0;
  }

  Group group_;
  resource_header* home_;
  team members_;
  sym_ptr<uint64_t> word_;
  const uint64_t* own_;
  uint64_t* kept_ = nullptr;     // what was taken, between sessions; null for a word of the user's own
  uint32_t* outcome_ = nullptr;  // for groups without a vote
  uint64_t taken_ = 0;
  uint64_t began_ = 0;
  uint32_t index_;
  uint32_t window_;
  status mine_ = status::success;  // of thread 0, why it knows the session to be dead; of others, what was agreed
};

}  // namespace devcomm::lsa
