/// \file hierarchical_ring.cuh
/// All-reduce over the world in chunks: reduce-scatter inside each LSA team, a ring across along each rail, all-gather
/// inside, all three at once for different chunks.
///
/// Protocol. Each block has a ring of its own among the ranks of its rail; a message is a chunk that a rank puts into a
/// slot of the next one. Messages of a ring are numbered from the device communicator's creation on, and message `n`
/// uses slot `n % slots`, on the sender's side too, where it is made.
///
/// - *Arrival*. Each slot has a signal of its own, to which the put of a message adds 1, weakly: the receiver reads
///   message `n` when the signal of its slot is `n / slots + 1`. It is at most one ahead, since the slot is not put to
///   again before its content was read. So a weak signal is enough: it has the data of its own put before it, and
///   messages of other slots may come before or after. One signal for all slots would have to be strong, and each
///   message would wait for those that other blocks have put before in the same context.
/// - *Credit*. When a rank has read a message it adds 1 to a signal of the previous rank, weakly. Message `n` is made
///   and put when that signal is at least `n - slots + 1`. Credits may overtake each other, but they are posted in the
///   order of the messages: where `c` have come, the receiver had read the first `c` messages at least.
/// - *A credit also frees the sender's own slot*. What the receiver read was put, and
///   so was read from there before. Nothing is flushed.
///
/// A credit is posted by a thread that has synchronized with all that read, and releases; it pairs with the acquire of
/// the wait for its signal. A put pairs with the wait for the signal of its slot in the same way.
///
/// *Between calls*. A call ends with as many messages received as sent, so one number, kept in device memory, is enough
/// for both. Credits for a call's last messages, as many as are in flight at once, are posted by the next call at its
/// beginning, and all others have come before a call ends. So nothing is under way to a rank that has returned from
/// its last call: device communicators are destroyed after a barrier of the host, as after any kernel. The numbers have
/// 64 bits and never wrap.
///
/// *Why it ends*. Before a rank sends message `n` it reads no message past `n - in_flight`, counted from the
/// beginning of the call, and `in_flight < slots`. Of all ranks take the one that has sent the least, `n` messages. Its
/// previous rank has sent as many, so what it waits for is on its way. Its next rank has sent as many too. Before it
/// sends another it reads message `n - 1 - in_flight`, which this rank has sent, and gives credit for it; and that is
/// the credit that this rank waits for, or a later one.
///
/// *Checked kernels* check, after each wait, for values that the protocol cannot have made, which something else with
/// the same signals has left: the signal of a slot is exactly at the message that is read next, as argued above, and
/// there are no more credits than messages sent.
///
/// The schedule of a round is that of NCCL's ring, see `ring_all_reduce_step`, with `in_flight` rounds side by side:
/// the credits are those of its Simple protocol.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/all_reduce/hierarchical.cuh>
#include <devcomm/collective/all_reduce/hierarchical_one_shot.cuh>
#include <devcomm/collective/all_reduce/rail_rings.hpp>
#include <devcomm/collective/barrier_session.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/detail/agree.cuh>
#include <devcomm/gin/buffer.cuh>
#include <devcomm/gin/detail/queue_end.cuh>
#include <devcomm/group.cuh>
#include <devcomm/ring.hpp>
#include <devcomm/status.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// What a ring keeps between calls, in device memory.
struct rail_ring_record : call_record {
  uint64_t messages;  ///< sent so far, and received
  uint64_t owed;      ///< credits of the last call that the next one posts
};

static_assert(sizeof(rail_ring_record) <= collective::rail_ring_handle::record_bytes, "the next one follows");

/// A block's position in its ring during a call. All threads of the group call each method, in the same order.
template <class Group>
class rail_ring_end {
 public:
  DEVCOMM_DEVICE rail_ring_end(const collective::barrier_session<Group>& barrier,
                               const collective::rail_ring_handle& rings, uint32_t index)
      : group_(barrier.group()),
        rings_(rings),
        index_(index),
        first_signal_(barrier.contexts().first_signal(rings.signals) + index * (rings.slots + 1)),
        own_(barrier.comm().resources.local),
        memory_(gin::network_memory(barrier.comm())),
        queue_(queue_end::of(barrier.comm(), barrier.contexts(), barrier.first_context())),
        next_(barrier.rail().world_rank(ring_next(barrier.rail()))),
        previous_(barrier.rail().world_rank(ring_previous(barrier.rail()))) {
    barrier.comm().check_owner(rings);
    DEVCOMM_ASSERT(index < rings.count, "block is past the rings that requirements asked for");
    DEVCOMM_ASSERT(barrier.contexts().has(rings.signals),
                   "the contexts lack signals for the rings: pass the gin::contexts that were added to the same "
                   "requirements after rail_rings");
    sent_ = received_ = load(&record()->messages);
    const uint64_t owed = load(&record()->owed);
    record()->check_context(queue_);
    if (leads() && owed != 0) mine_ = post_credits(owed);
  }

  /// Waits until the next message to send may be made. The same for all threads: false where the wait has failed, here
  /// or on this rank.
  DEVCOMM_DEVICE bool await_room() {
    if (leads()) wait_for_room();
    return agree();
  }
  /// Waits until the next message has come.
  DEVCOMM_DEVICE bool await_chunk() {
    if (leads()) wait_for_chunk();
    return agree();
  }
  /// Both.
  DEVCOMM_DEVICE bool await_chunk_and_room() {
    if (leads()) {
      wait_for_chunk();
      wait_for_room();
    }
    return agree();
  }
  /// Waits until `count` messages, of those sent in all calls, have been read.
  DEVCOMM_DEVICE bool await_credits(uint64_t count) {
    if (leads()) wait_for_credits(count);
    return agree();
  }

  /// Where the next message to send is made, and where the next one received is.
  DEVCOMM_DEVICE char* to_send() const { return memory_.local + rings_.sent(index_, slot_of(sent_)); }
  DEVCOMM_DEVICE const char* chunk() const { return memory_.local + rings_.received(index_, slot_of(received_)); }

  /// Ends what the group did with its messages: `passes_on` puts the next one of `packs` packs, `gives_back` signals
  /// the previous rank that the one received has been read.
  DEVCOMM_DEVICE void end_step(bool passes_on, uint64_t packs, bool received, bool gives_back) {
    group_.sync();
    if (leads() && mine_ == status::success && passes_on) mine_ = post_chunk(packs);
    if (leads() && mine_ == status::success && gives_back) mine_ = post_credits(1);
    sent_ += passes_on ? 1u : 0u;
    received_ += received ? 1u : 0u;
  }

  /// Messages sent in all calls so far.
  DEVCOMM_DEVICE uint64_t sent() const { return sent_; }
  /// Keeps what the next call begins with. The group synchronizes before it.
  DEVCOMM_DEVICE void keep(uint64_t owed) const {
    if (!leads()) return;
    store(&record()->messages, sent_);
    store(&record()->owed, owed);
    record()->keep_context(queue_);
  }

 private:
  DEVCOMM_DEVICE bool leads() const { return group_.thread_rank() == 0; }
  DEVCOMM_DEVICE rail_ring_record* record() const {
    return reinterpret_cast<rail_ring_record*>(own_ + rings_.record(index_));
  }
  template <class T>
  DEVCOMM_DEVICE static T load(const T* word) {
    return arch::load<memory_order::relaxed, scope::device>(word);
  }
  template <class T>
  DEVCOMM_DEVICE static void store(T* word, T value) {
    arch::store<memory_order::relaxed, scope::device>(word, value);
  }
  DEVCOMM_DEVICE uint32_t slot_of(uint64_t message) const { return static_cast<uint32_t>(message % rings_.slots); }
  /// Signals of this ring: of a slot, and of credits.
  DEVCOMM_DEVICE uint32_t arrival(uint32_t slot) const { return first_signal_ + slot; }
  DEVCOMM_DEVICE uint32_t credit() const { return arrival(rings_.slots); }

  DEVCOMM_DEVICE bool agree() {
    const status outcome = detail::agree(group_, mine_, status::timeout, &record()->outcome);
    if (outcome != status::success) mine_ = outcome;
    return outcome == status::success;
  }
  DEVCOMM_DEVICE void wait_for(uint32_t signal, int peer, uint64_t least) {
    if (mine_ != status::success) return;
    const wait_site wait{operation::gin_signal, signal, peer, least, wait_condition::at_least, 0, queue_.index};
    mine_ = wait_for_proxy(queue_, queue_.layout.signal(signal), wait, detail::communicator_timeout());
  }
  /// A signal as it is now. Relaxed, so that a check orders no more than the wait before it.
  DEVCOMM_DEVICE uint64_t peek(uint32_t signal) const {
    return arch::load<memory_order::relaxed, scope::system>(queue_.record->words + queue_.layout.signal(signal));
  }
  /// After a wait: a value above `most` is of something else that changes this signal.
  DEVCOMM_DEVICE void check_signal([[maybe_unused]] uint32_t signal, [[maybe_unused]] uint64_t most) const {
    DEVCOMM_ASSERT(mine_ != status::success || peek(signal) <= most,
                   "a signal of the rings is changed by others too: a kernel's own are those below "
                   "gin::contexts::signals, and one call at a time uses a block's ring");
  }
  DEVCOMM_DEVICE void wait_for_chunk() {
    wait_for(arrival(slot_of(received_)), previous_, received_ / rings_.slots + 1);
    check_signal(arrival(slot_of(received_)), received_ / rings_.slots + 1);
  }
  DEVCOMM_DEVICE void wait_for_room() {
    if (sent_ >= rings_.slots) wait_for_credits(sent_ - rings_.slots + 1);
  }
  DEVCOMM_DEVICE void wait_for_credits(uint64_t count) {
    wait_for(credit(), next_, count);
    check_signal(credit(), sent_);
  }

  DEVCOMM_DEVICE status post_chunk(uint64_t packs) const {
    const uint32_t slot = slot_of(sent_);
    const uint64_t window = uint64_t{memory_.id} << 32 | memory_.id;
    return post(gin::operation_kind::put, next_, arrival(slot), 1,
                {rings_.sent(index_, slot), rings_.received(index_, slot), window, packs * 16, 0, 0, 0, 0});
  }
  DEVCOMM_DEVICE status post_credits(uint64_t count) const {
    return post(gin::operation_kind::signal, previous_, credit(), count, {});
  }
  DEVCOMM_DEVICE status post(gin::operation_kind kind, int peer, uint32_t signal, uint64_t value,
                             gin::descriptor made) const {
    made.actions = signal;
    made.signal_value = value;
    const gin::descriptor_head head{kind, gin::signal_change::add,    gin::strength::weak, false,
                                    0,    static_cast<uint32_t>(peer)};
    return detail::post(queue_, made, head, detail::communicator_timeout());
  }

  Group group_;
  collective::rail_ring_handle rings_;
  uint32_t index_;
  uint32_t first_signal_;
  char* own_;      // resources of this rank
  window memory_;  // of the network
  queue_end queue_;
  int next_;  // world ranks
  int previous_;
  uint64_t sent_;
  uint64_t received_;
  status mine_ = status::success;  // of thread 0, why it knows the call to have failed; of others, what was agreed
};

/// The rounds into which a block's part of a piece is cut, as long as each other but for the last: each is a chunk of
/// every piece of the rail, and goes round once.
struct rail_ring_rounds {
  uint64_t at_once;  ///< that go round side by side
  uint64_t count;    ///< a multiple of `at_once`
  uint64_t chunk;    ///< packs

  DEVCOMM_DEVICE static rail_ring_rounds of(uint64_t packs, const collective::rail_ring_handle& rings) {
    if (packs == 0) return {0, 0, 0};
    const uint64_t least = (packs + rings.packs - 1) / rings.packs;
    const uint64_t turns = (least + rings.in_flight() - 1) / rings.in_flight();
    const uint64_t at_once = (least + turns - 1) / turns;
    return {at_once, turns * at_once, (packs + turns * at_once - 1) / (turns * at_once)};
  }
};

template <class T, class Group, class Operator>
struct rail_ring_all_reduce {
  const Group& group;
  team lsa;
  team rail;
  sym_ptr<T> input;
  sym_ptr<T> output;
  uint64_t count;
  uint64_t packs;          // of a piece
  collective::slice mine;  // the block's part of each piece
  rail_ring_rounds rounds;
  const Operator& op;

  using accumulator = accumulator_t<T>;

  /// Messages of a call.
  DEVCOMM_DEVICE uint64_t messages() const { return rounds.count * static_cast<uint64_t>(ring_all_reduce_steps(rail)); }
  /// Which of a call's messages one is.
  struct position {
    int step;
    uint64_t round;
  };
  DEVCOMM_DEVICE position position_of(uint64_t message) const {
    const auto steps = static_cast<uint64_t>(ring_all_reduce_steps(rail));
    const uint64_t turn = message / rounds.at_once;
    return {static_cast<int>(turn % steps), turn / steps * rounds.at_once + message % rounds.at_once};
  }
  /// The packs of a round that belong to team `t` of this rail: a chunk, or what there is of it.
  DEVCOMM_DEVICE collective::slice chunk_of(int t, uint64_t round) const {
    const uint64_t all = packs_of<T>(count);
    const uint64_t piece = static_cast<uint64_t>(lsa.rank * rail.size + t) * packs;
    const auto limited = [&](uint64_t p) {
      const uint64_t i = piece + (p < mine.end ? p : mine.end);
      return i < all ? i : all;
    };
    const uint64_t begin = mine.begin + round * rounds.chunk;
    return {limited(begin), limited(begin + rounds.chunk)};
  }

  /// Adds pack `i` of the team's inputs, in the order of its ranks, to `total`, which holds a sum or, where
  /// `is_first`, nothing yet.
  DEVCOMM_DEVICE void add_inputs(uint64_t i, bool is_first, accumulator (&total)[pack<T>::size]) const {
    constexpr int at_once = 4;
    DEVCOMM_UNROLL_BY(1)
    for (int first = 0; first < lsa.size; first += at_once) {
      pack<T> values[at_once];
      DEVCOMM_UNROLL
      for (int m = 0; m < at_once; ++m)  // issue all loads before the first is used
        if (first + m < lsa.size) values[m] = load_input(first + m, i);
      DEVCOMM_UNROLL
      for (int m = 0; m < at_once; ++m) {
        if (first + m >= lsa.size) break;
        DEVCOMM_UNROLL
        for (int e = 0; e < pack<T>::size; ++e) {
          const accumulator element = to_accumulator<T>(values[m][e], op);
          total[e] = is_first && first + m == 0 ? element : op(total[e], element);
        }
      }
    }
  }
  DEVCOMM_DEVICE pack<T> load_input(int member, uint64_t i) const {
    const T* const data = input.lsa(member);
    return is_whole_pack(data, i, count) ? load_pack(data + i * pack<T>::size)
                                         : to_pack<T>(load_elements(data, i, count));
  }
  /// To the outputs of the team.
  DEVCOMM_DEVICE void store_output(uint64_t i, const pack<T>& value) const {
    DEVCOMM_UNROLL_BY(1)
    for (int step = 0; step < lsa.size; ++step) {  // ranks write to different peers at a time
      const int member = lsa.rank + step < lsa.size ? lsa.rank + step : lsa.rank + step - lsa.size;
      collective::to_memory<T>{output.lsa(member), count}(i, value);
    }
  }

  /// The team's sum of a chunk; what has come of other teams' is in `came`, unless it is null.
  DEVCOMM_DEVICE void reduce(collective::slice chunk, const T* came, T* made) const {
    for (uint64_t i = group.thread_rank(); i < chunk.size(); i += group.size()) {
      accumulator total[pack<T>::size] = {};
      if (came != nullptr) read_partial(came + i * pack<T>::size, total);
      add_inputs(chunk.begin + i, came == nullptr, total);
      pack<T> partial;
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) partial[e] = static_cast<T>(total[e]);
      store_pack(made + i * pack<T>::size, partial);
    }
  }
  /// The result of a chunk to the outputs of the team, and to `made`, unless it is null.
  DEVCOMM_DEVICE void finish(collective::slice chunk, const T* came, T* made) const {
    for (uint64_t i = group.thread_rank(); i < chunk.size(); i += group.size()) {
      accumulator total[pack<T>::size] = {};
      if (came != nullptr) read_partial(came + i * pack<T>::size, total);
      add_inputs(chunk.begin + i, came == nullptr, total);
      pack<T> result;
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) result[e] = from_accumulator<T>(total[e], lsa.size * rail.size, op);
      if (made != nullptr) store_pack(made + i * pack<T>::size, result);
      store_output(chunk.begin + i, result);
    }
  }
  DEVCOMM_DEVICE static void read_partial(const T* from, accumulator (&total)[pack<T>::size]) {
    const pack<T> value = load_pack(from);
    DEVCOMM_UNROLL
    for (int e = 0; e < pack<T>::size; ++e) total[e] = static_cast<accumulator>(value[e]);
  }
  /// A result that has come to the outputs of the team, and to `made`, unless it is null.
  DEVCOMM_DEVICE void copy(collective::slice chunk, const T* came, T* made) const {
    for (uint64_t i = group.thread_rank(); i < chunk.size(); i += group.size()) {
      const pack<T> result = load_pack(came + i * pack<T>::size);
      if (made != nullptr) store_pack(made + i * pack<T>::size, result);
      store_output(chunk.begin + i, result);
    }
  }

  /// Puts the first message of a round.
  DEVCOMM_DEVICE bool begin_round(rail_ring_end<Group>& ring, uint64_t round) const {
    if (!ring.await_room()) return false;
    const collective::slice chunk = chunk_of(ring_all_reduce_step(rail, 0).sends, round);
    reduce(chunk, nullptr, reinterpret_cast<T*>(ring.to_send()));
    ring.end_step(true, chunk.size(), false, false);
    return true;
  }
  /// Takes the message of a step, and puts that of the next step of its round, if there is one.
  DEVCOMM_DEVICE bool take(rail_ring_end<Group>& ring, const position& now, bool gives_back) const {
    const ring_step what = ring_all_reduce_step(rail, now.step);
    const bool passes_on = now.step + 1 < ring_all_reduce_steps(rail);
    if (!(passes_on ? ring.await_chunk_and_room() : ring.await_chunk())) return false;
    const collective::slice chunk = chunk_of(what.receives, now.round);
    const T* const came = reinterpret_cast<const T*>(ring.chunk());
    T* const made = passes_on ? reinterpret_cast<T*>(ring.to_send()) : nullptr;
    if (!what.reduces) {
      copy(chunk, came, made);
    } else if (what.receives == rail.rank) {
      finish(chunk, came, made);
    } else {
      reduce(chunk, came, made);
    }
    ring.end_step(passes_on, chunk.size(), true, gives_back);
    return true;
  }

  /// The whole call; returns false where a wait has failed.
  DEVCOMM_DEVICE bool run(rail_ring_end<Group>& ring) const {
    const uint64_t all = messages();
    const uint64_t lag = rounds.at_once;  // a message follows from the one received this many before it
    const uint64_t before = ring.sent();
    for (uint64_t n = 0; n < all + lag; ++n) {
      const position next = position_of(n);
      if (n < all && next.step == 0 && !begin_round(ring, next.round)) return false;
      if (n < lag) continue;
      const uint64_t received = n - lag;
      if (!take(ring, position_of(received), received + lag < all)) return false;
    }
    if (!ring.await_credits(before + all - lag)) return false;
    ring.keep(lag);
    return true;
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// `all_reduce_hierarchical` with a ring along each rail, see `rail_exchange::ring`: while a chunk crosses to the next
/// host, others are reduced from the inputs of the LSA team or stored to its outputs. A rank has one peer to put to,
/// and scratch memory of a fixed size. Two barriers of the LSA team, none of the rail.
///
///     const auto rings = needs.add(collective::rail_rings{.groups = blocks});  // and contexts after them
///
///     collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
///     collective::all_reduce_hierarchical_ring<float>(barrier, tensor, tensor, rings, count, sum{});
///
/// `input` and `output` may be the same memory. Elements accumulate in `accumulator_t<T>`: the piece that belongs to
/// team `t` in the order of the teams from `t + 1` around to `t`, within each in the order of its ranks, rounded to `T`
/// after each team. Each element is computed once, so all ranks get the same bits in every run, whatever the grid and
/// the rings; not those of `all_reduce_hierarchical`.
///
/// *Blocks*: block `b` uses ring `b` alone. It synchronizes with block `b` of the LSA team and exchanges with block `b`
/// of its rail: nothing is shared, so calls of one launch may have different counts. Inputs must be complete before the
/// launch, and outputs are complete after it, or the grid is synchronized before and after the call. A ring stays with
/// the context of its first call, on all ranks the same, and one call at a time uses it.
///
/// *Ordering*: outputs are there, and inputs may be written, when the call returns, for the block's part of them.
///
/// *Failure*: a wait that fails leaves a record of the signal and the rank it waited for. The call returns early on all
/// threads, without arriving at the last barrier; outputs are undefined, and `barrier.agree()` says why. A failure at
/// the first barrier leaves outputs unchanged.
///
/// *Collective* over the barrier's group on every rank of the world, once in each block of the grid, with the same grid
/// and `count`. *Requires* rails, and a ring for each block.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void all_reduce_hierarchical_ring(barrier_session<Group>& barrier, sym_ptr<T> input, sym_ptr<T> output,
                                                 const rail_ring_handle& rings, uint64_t count, Operator op) {
  const team lsa = barrier.inside().members();
  const team rail = barrier.rail();
  DEVCOMM_ASSERT(detail::spans_lsa_team(lsa, input.memory),
                 "an all-reduce needs windows of the communicator that made the device communicator");
  detail::check_in_window(input, count);
  detail::check_in_window(output, count);
  const uint64_t packs = packs_of_piece<T>(count, barrier.members().size);
  const slice mine = slice_of_block(packs);
  const trace_span traced = barrier.trace_call(collective_call::all_reduce_hierarchical_ring, count);
  barrier.inside().sync();
  if (barrier.agree() != status::success) return;  // a late peer may still use its memory
  const detail::rail_ring_all_reduce<T, Group, Operator> call{barrier.group(),
                                                              lsa,
                                                              rail,
                                                              input,
                                                              output,
                                                              count,
                                                              packs,
                                                              mine,
                                                              detail::rail_ring_rounds::of(mine.size(), rings),
                                                              op};
  if (rail.size == 1) {
    for (uint64_t round = 0; round < call.rounds.count; ++round) call.finish(call.chunk_of(0, round), nullptr, nullptr);
  } else if (mine.size() != 0) {
    detail::rail_ring_end<Group> ring(barrier, rings, arch::block_rank());
    if (!call.run(ring)) return;
  }
  barrier.inside().sync();
}

/// The memory of all ways in which `all_reduce_hierarchical` can cross, and which one it takes.
template <class T>
struct rail_memory {
  rail_exchange exchange;       ///< the same on all ranks, see `rail_exchange_for`
  sym_ptr<T> scratch;           ///< for `direct`
  rail_ring_handle rings;       ///< for `ring`
  network_slot_handle slots{};  ///< for `one_shot`
};

/// One of them, as `rails.exchange` says.
template <class T, class Group, class Operator>
DEVCOMM_DEVICE void all_reduce_hierarchical(barrier_session<Group>& barrier, sym_ptr<T> input, sym_ptr<T> output,
                                            const rail_memory<T>& rails, uint64_t count, Operator op) {
  if (rails.exchange == rail_exchange::one_shot) {
    all_reduce_hierarchical_one_shot<T>(barrier, input, output, rails.slots, count, op);
  } else if (rails.exchange == rail_exchange::ring) {
    all_reduce_hierarchical_ring<T>(barrier, input, output, rails.rings, count, op);
  } else {
    all_reduce_hierarchical<T>(barrier, input, output, rails.scratch, count, op);
  }
}

}  // namespace devcomm::collective
