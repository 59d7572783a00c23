/// \file queue_end.cuh
/// The kernels' end of a context's queue: posting descriptors and waiting for the proxy's words.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/assert.hpp>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/gin/queue.hpp>
#include <devcomm/memory_order.hpp>
#include <devcomm/status.hpp>

namespace devcomm::detail {

/// A context of this rank, as one thread uses it.
struct queue_end {
  resource_header* home;
  gin::context_record* record;
  gin::queue_layout layout;
  uint32_t index;  ///< of the context
  uint32_t depth;

  DEVCOMM_DEVICE static queue_end of(const device_comm& comm, const gin::context_handle& contexts, uint32_t index) {
    comm.check_owner(contexts);
    const gin::queue_layout layout{contexts.members, static_cast<uint32_t>(contexts.all_signals()), contexts.counters};
    char* const own = comm.resources.local;
    return {reinterpret_cast<resource_header*>(own),
            reinterpret_cast<gin::context_record*>(own + contexts.offset + index * layout.bytes()), layout, index,
            contexts.depth};
  }

  template <class T>
  DEVCOMM_DEVICE T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(record) + offset);
  }
  /// Another context of the same handle.
  DEVCOMM_DEVICE queue_end sibling(uint32_t other) const {
    char* const first = reinterpret_cast<char*>(record) - index * layout.bytes();
    return {home, reinterpret_cast<gin::context_record*>(first + other * layout.bytes()), layout, other, depth};
  }
  /// 1 more than the number of the latest operation to world rank `peer` that the caller has observed.
  DEVCOMM_DEVICE uint64_t latest(uint32_t peer) const {
    return arch::load<memory_order::relaxed, scope::device>(at<uint64_t>(layout.latest(peer)));
  }
  /// A word as it is now. *Ordering*: acquires.
  DEVCOMM_DEVICE uint64_t load(uint32_t word) const {
    return arch::load<memory_order::acquire, scope::system>(record->words + word);
  }
};

/// What a group whose calls all use one context keeps between them, in device memory; each kind of call adds its own.
struct call_record {
  uint32_t outcome;  ///< for groups without a vote of their own
  uint32_t context;  ///< 1 more than the context of all calls

  DEVCOMM_DEVICE void check_context([[maybe_unused]] const queue_end& queue) const {
    [[maybe_unused]] const uint32_t before = arch::load<memory_order::relaxed, scope::device>(&context);
    DEVCOMM_ASSERT(before == 0 || before == queue.index + 1,
                   "a block's slots, and its ring, stay with the context of their first call");
  }
  /// By one thread, when a call has ended well.
  DEVCOMM_DEVICE void keep_context(const queue_end& queue) {
    arch::store<memory_order::relaxed, scope::device>(&context, queue.index + 1);
  }
};

/// A waiting thread's turns at the words of a context, which it has with the lanes of its warp that ask when it does.
/// While nobody else has had a turn since its latest one, the thread needs no further turn: a lone warp polls as fast
/// as the bus lets it.
class turns_at_words {
 public:
  /// `latest` has the time of the latest turn of any thread.
  DEVCOMM_DEVICE explicit turns_at_words(uint64_t* latest) : latest_(latest) {}

  /// Whether the thread may load a word now.
  DEVCOMM_DEVICE bool take() {
    if (mine_ != 0) return true;
    mine_ = arch::proxy_turn(latest_, arch::global_time());
    return mine_ != 0;
  }
  /// What `load` returns. Whether others have had turns is looked up while the word is on its way.
  template <class Load>
  DEVCOMM_DEVICE uint64_t in_turn(const Load& load) {
    const uint64_t latest = arch::latest_proxy_turn(latest_);
    const uint64_t value = load();
    if (latest != mine_) mine_ = 0;
    return value;
  }

 private:
  uint64_t* latest_;
  uint64_t mine_ = 0;  // the time of its latest turn; 0: it needs one
};

/// Waits for word `word` of the proxy's to be `wait.expected` or past it, by the sign of the difference. Returns why it
/// did not come where it did not, and then has left a record and ended this rank's waits; but not for running out of a
/// deadline of the caller's own.
///
/// The word lies in host memory, and threads load it in turns. What one saw of a word that only grows it stores to
/// device memory, which the others poll: what is seen there may be older than what another thread has seen already, but
/// is never newer than the word. A signal or counter may be set or reset to less, so that only the word itself counts.
///
/// *Ordering*: acquires what the proxy released with the value, by whatever thread loaded it. A slow thread may store
/// an older value after the one that ended this wait; then a fence makes an acquire of the load that saw that.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline status wait_for_proxy(const queue_end& queue, uint32_t word,
                                                             const wait_site& wait, deadline limit) {
  uint64_t value = 0;
  status outcome = status::success;
  const bool is_shared = queue.layout.only_grows(word);
  uint64_t* const seen = is_shared ? queue.at<uint64_t>(queue.layout.seen(word)) : nullptr;
  turns_at_words turns(&queue.record->host_poll);
  const auto holds = [&] { return static_cast<int64_t>(value - wait.expected) >= 0; };
  const auto label = [&] { return label_of(queue.home, wait, limit, value); };
  poll<1>(
      queue.home, limit, label,
      [&] {
        if (is_shared) {
          value = arch::load<memory_order::relaxed, scope::device>(seen);
          if (holds()) {
            if (arch::load<memory_order::acquire, scope::device>(seen) != value)
              arch::fence<memory_order::acquire, scope::device>();
            return true;
          }
        }
        if (!turns.take()) return false;
        const uint64_t fresh = turns.in_turn([&] { return queue.load(word); });
        if (is_shared && fresh != value) arch::store<memory_order::release, scope::device>(seen, fresh);
        value = fresh;
        return holds();
      },
      [&](status failure) {
        outcome = failure;
        if (failure == status::timeout && limit.own) return;
        report(queue.home, failure, wait, value);
      });
  return outcome;
}

/// Posts an operation: takes a number, waits until its descriptor may be written, and writes it. Returns why it was not
/// posted. *Ordering*: releases at system scope, so that the proxy reads what this thread, and whoever it has
/// synchronized with, wrote before.
DEVCOMM_DEVICE inline status post(const queue_end& queue, const gin::descriptor& operation, gin::descriptor_head head,
                                  deadline limit) {
  const uint64_t number = arch::fetch_add<memory_order::relaxed, scope::device>(&queue.record->posted, uint64_t{1});
  const wait_site credit{operation::gin_post, queue.index, -1, number + 1 - queue.depth, wait_condition::read_by_proxy};
  if (number >= queue.depth) {
    const status outcome = wait_for_proxy(queue, queue.layout.consumed(), credit, limit);
    if (outcome != status::success) return outcome;
  }
  gin::descriptor* const slot = queue.record->ring + (number & (queue.depth - 1));
  const gin::descriptor ready = operation.packed(head, gin::descriptor::lap(number, queue.depth));
  arch::note_post(&slot->head);
  arch::store<memory_order::release, scope::system>(&slot->head, ready.head);
  arch::store_halves(&slot->local, {ready.local, ready.remote});
  arch::store_halves(&slot->windows, {ready.windows, ready.bytes});
  arch::store_halves(&slot->value, {ready.value, ready.signal_value});
  arch::store<memory_order::relaxed, scope::system>(&slot->actions, ready.actions);

  if (head.peer >= queue.layout.peers) return status::success;  // the proxy says that there is no such rank
  // For flushes: the largest number of all posts to this peer.
  uint64_t* const latest = queue.at<uint64_t>(queue.layout.latest(head.peer));
  uint64_t before = arch::load<memory_order::relaxed, scope::device>(latest);
  while (before < number + 1) {
    const uint64_t found = arch::compare_exchange<scope::device>(latest, before, number + 1);
    if (found == before) break;
    before = found;
  }
  return status::success;
}

}  // namespace devcomm::detail
