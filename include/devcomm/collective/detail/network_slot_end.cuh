/// \file network_slot_end.cuh
/// A block's use of network slots: each member puts a message to each other, all wait for all, in one trip.
///
/// Protocol. Exchanges of a group are numbered from the device communicator's creation on; number `k` uses the slots
/// and signals of parity `k % 2`, on both sides. In exchange `k` each rank makes messages in its own slots, puts each
/// to the receiver's slot with a weak signal of its own, which adds 1 to the signal that the receiver has for this
/// sender and parity, and waits until each of its own signals of that parity is `k / 2 + 1`. Then it reads what came.
///
/// There are no credits, no barriers and no flushes, because each message is also an answer. When rank A makes and puts
/// its message `k + 2` to B, it has received B's message `k + 1`. B put that after all its threads had read what came
/// in exchange `k`, the slot that A puts to now. And B had waited for A's message `k` before that, so A's slot of
/// parity `k % 2` had been read by the network, and A may write it. With one slot instead of two, A's message `k + 1`
/// could overtake B's reading of `k`. For the same reason a signal is at most at the value that is waited for: a weak
/// one says that its own put's data is there, and there is one put for each value. Checked kernels check for a higher
/// one, which something else with the same signals has left.
///
/// So each exchange has the same members: those of two teams take slots of their own.
///
/// A put is posted after the group has synchronized, and releases: it has the reads of the exchange before, and the
/// writes of its own message, before it. It pairs with the acquire of the wait for its signal.
///
/// *Between calls*. The number is kept in device memory when a call has ended well, so that launches, and replays of
/// graphs, go on with it. After a wait that fails it is not, and need not be: the device communicator's waits have
/// ended on this rank, nothing is posted any more, and whoever goes on makes another device communicator, whose slots
/// begin at 0. What was on its way goes to windows and signals of the old one. The number has 64 bits and never wraps.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/assert.hpp>
#include <devcomm/collective/barrier_session.cuh>
#include <devcomm/collective/network_slots.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/gin/buffer.cuh>
#include <devcomm/gin/context.cuh>
#include <devcomm/gin/detail/queue_end.cuh>
#include <devcomm/group.cuh>
#include <devcomm/status.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// What a group keeps between calls, in device memory.
struct network_slot_record : call_record {
  uint64_t exchanges;
};

static_assert(sizeof(network_slot_record) <= collective::network_slot_handle::record_bytes, "the next one follows");

/// All threads of the group call each method, in the same order.
template <class Group>
class network_slot_end {
 public:
  DEVCOMM_DEVICE network_slot_end(const collective::barrier_session<Group>& barrier,
                                  const collective::network_slot_handle& slots, const team& members, uint32_t index)
      : barrier_(barrier),
        slots_(slots),
        memory_(gin::network_memory(barrier.comm())),
        members_(members),
        index_(index),
        queue_(queue_end::of(barrier.comm(), barrier.contexts(), barrier.first_context())) {
    barrier.comm().check_owner(slots_);
    DEVCOMM_ASSERT(index < slots_.count, "block is past the groups that collective::network_slots asked for");
    DEVCOMM_ASSERT(slots_.members == static_cast<uint32_t>(members.size),
                   "slots are of another team: all_reduce takes those of the rail, all_to_all those of the world");
    DEVCOMM_ASSERT(barrier.contexts().has(slots_.signals),
                   "the contexts lack signals for the slots: pass the gin::contexts that were added to the same "
                   "requirements after network_slots");
    DEVCOMM_ASSERT(slots_.received(slots_.count, 0, 0) <= memory_.bytes,
                   "the slots end past the network memory: they are of another device communicator");
    number_ = arch::load<memory_order::relaxed, scope::device>(&record()->exchanges);
    record()->check_context(queue_);
  }

  /// Where the message to `member` is made, and where the one from there has come to.
  DEVCOMM_DEVICE char* to_send(int member) const { return memory_.local + slots_.sent(index_, parity(), member); }
  DEVCOMM_DEVICE const char* came(int member) const {
    return memory_.local + slots_.received(index_, parity(), member);
  }

  /// Puts `bytes` to each member that `is_peer(member)`, from the slot that `source(member)` has.
  template <class Peers, class Source>
  DEVCOMM_DEVICE void put(uint64_t bytes, const Peers& is_peer, const Source& source) {
    barrier_.group().sync();  // all have read the exchange before, and written this one's messages
    auto net = barrier_.context(thread{});
    const gin::signal_add arrival{signal_of(members_.rank), 1, gin::strength::weak};
    for_each(is_peer, [&](int member) {
      net.put(members_.world_rank(member), memory_, slots_.received(index_, parity(), members_.rank), memory_,
              slots_.sent(index_, parity(), source(member)), bytes, arrival);
    });
    mine_ = net.agree();
  }
  /// Waits for the messages of the same members. The same for all threads: false where a wait has failed.
  template <class Peers>
  DEVCOMM_DEVICE bool await(const Peers& is_peer) {
    for_each(is_peer, [&](int member) {
      if (mine_ != status::success) return;
      const uint32_t signal = signal_of(member);
      const wait_site wait{
          operation::gin_signal, signal, members_.world_rank(member), number_ / 2 + 1, wait_condition::at_least, 0,
          queue_.index};
      mine_ = wait_for_proxy(queue_, queue_.layout.signal(signal), wait, communicator_timeout());
      // A value above it is of something else that changes this signal.
      DEVCOMM_ASSERT(mine_ != status::success || queue_.load(queue_.layout.signal(signal)) == number_ / 2 + 1,
                     "a signal of the slots is changed by others too: a kernel's own are those below "
                     "gin::contexts::signals, and one call at a time uses a block's slots");
    });
    return agree(barrier_.group(), mine_, status::timeout, &record()->outcome) == status::success;
  }
  /// Goes on to the next exchange: what came is read no more once it is put.
  DEVCOMM_DEVICE void advance() { ++number_; }
  /// Keeps what the next call begins with.
  DEVCOMM_DEVICE void keep() const {
    if (barrier_.group().thread_rank() == 0) {
      arch::store<memory_order::relaxed, scope::device>(&record()->exchanges, number_);
      record()->keep_context(queue_);
    }
    barrier_.group().sync();
  }

 private:
  DEVCOMM_DEVICE network_slot_record* record() const {
    return reinterpret_cast<network_slot_record*>(barrier_.comm().resources.local + slots_.record(index_));
  }
  DEVCOMM_DEVICE uint32_t parity() const { return static_cast<uint32_t>(number_ % 2); }
  /// The signal of a receiver that messages of `member` change.
  DEVCOMM_DEVICE uint32_t signal_of(int member) const {
    return barrier_.contexts().first_signal(slots_.signals) +
           (index_ * 2 + static_cast<uint32_t>(number_ % 2)) * slots_.members + static_cast<uint32_t>(member);
  }
  /// Threads of the group take the members in turns, each rank from the one behind its own on.
  template <class Peers, class Body>
  DEVCOMM_DEVICE void for_each(const Peers& is_peer, const Body& body) const {
    const auto others = static_cast<uint32_t>(members_.size - 1);
    for (uint32_t i = barrier_.group().thread_rank(); i < others; i += barrier_.group().size()) {
      const int member = (members_.rank + 1 + static_cast<int>(i)) % members_.size;
      if (is_peer(member)) body(member);
    }
  }

  const collective::barrier_session<Group>& barrier_;
  collective::network_slot_handle slots_;
  window memory_;
  team members_;
  uint32_t index_;
  queue_end queue_;
  uint64_t number_;
  status mine_ = status::success;  // why this thread knows the exchange to have failed
};

}  // namespace devcomm::detail
