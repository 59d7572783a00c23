/// \file queue.hpp
/// The queue between the kernels of a rank and its proxy: descriptors one way, words the other.
///
/// *Descriptors*. A context has a ring of them in pinned host memory. Operation `n` of the context lies in descriptor
/// `n % depth`. The lowest bit of each word distinguishes one pass around the ring from the one before, so nothing is
/// ever cleared: it is 1 on even passes and 0 on odd ones, and memory starts as zeros. A kernel stores `head` with
/// release and the other words relaxed, after it: a release that came after them would wait until they have crossed the
/// bus. The proxy takes a descriptor when all of its words are of this pass, and loads `head` with acquire. It is
/// reused once the proxy has stored a `consumed` past it: `n < consumed + depth`.
///
/// *Words*. Signals, counters and progress for kernels, also in pinned host memory and stored with release: signals by
/// the proxies of peers, one at a time, all others by this rank's proxy. Threads that wait poll such a word across the
/// bus in turns, one instruction of a warp per context every `arch::proxy_interval` nanoseconds; lanes that wait alone
/// take no turns. Words that only grow are copied to device memory for the others, see `detail::wait_for_proxy`.
/// Kernels store zero to signals and counters that they reset, while nobody else stores to them.
///
/// Operations of a context have 64-bit numbers, which do not wrap around in practice.
///
/// A bit that alternates from pass to pass follows the triggers of MSCCL++'s proxy.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/requirements.hpp>

namespace devcomm::gin {

/// What an operation does.
enum class operation_kind : uint32_t {
  put = 1,    ///< from this rank's window to the peer's
  put_value,  ///< of up to 8 bytes, which the descriptor holds
  get,        ///< from the peer's window to this rank's
  signal,     ///< no data
  fence,      ///< nothing; not complete before all earlier ones of its context to that peer have had their effect
};

/// What becomes of a signal of the peer.
enum class signal_change : uint32_t { none, add, set };

/// What a signal says has arrived before it.
enum class strength : uint32_t {
  weak,    ///< the data of its own put
  strong,  ///< that, and all earlier puts of the same context to the same peer, and their strong signals
};

/// `descriptor::head`.
struct descriptor_head {
  operation_kind kind;
  signal_change change;
  strength covers;
  bool counts;           ///< adds 1 to a counter of this rank's
  uint32_t value_bytes;  ///< of a value
  uint32_t peer;         ///< world rank

  DEVCOMM_HOST_DEVICE constexpr uint64_t pack(bool lap) const {
    return uint64_t{lap ? 1u : 0u} | static_cast<uint64_t>(kind) << 1 | static_cast<uint64_t>(change) << 4 |
           static_cast<uint64_t>(covers) << 6 | uint64_t{counts ? 1u : 0u} << 7 | uint64_t{value_bytes} << 8 |
           uint64_t{peer} << 32;
  }
  DEVCOMM_HOST_DEVICE static constexpr descriptor_head unpack(uint64_t head) {
    return {static_cast<operation_kind>(head >> 1 & 7), static_cast<signal_change>(head >> 4 & 3),
            static_cast<strength>(head >> 6 & 1),       (head >> 7 & 1) != 0,
            static_cast<uint32_t>(head >> 8 & 15),      static_cast<uint32_t>(head >> 32)};
  }
};

/// One operation, as a kernel posts it.
struct alignas(16) descriptor {
  uint64_t local;         ///< offset in this rank's window
  uint64_t remote;        ///< offset in the peer's window
  uint64_t windows;       ///< id of this rank's window in the lower half, of the peer's in the upper one
  uint64_t bytes;         ///< to move
  uint64_t value;         ///< of `operation_kind::put_value`
  uint64_t signal_value;  ///< to add, or to set
  uint64_t actions;       ///< the peer's signal in the lower half, this rank's counter in the upper one
  uint64_t head;          ///< `descriptor_head`

  /// Of operation `number` in a ring of `depth`.
  DEVCOMM_HOST_DEVICE static constexpr bool lap(uint64_t number, uint32_t depth) { return (number / depth & 1) == 0; }

  /// As it lies in the ring: the other words make room for the lap, and `head` has their highest bits.
  DEVCOMM_HOST_DEVICE constexpr descriptor packed(const descriptor_head& what, bool lap) const {
    const uint64_t bit = lap ? 1 : 0;
    const uint64_t highest = local >> 63 | remote >> 63 << 1 | windows >> 63 << 2 | bytes >> 63 << 3 |
                             value >> 63 << 4 | signal_value >> 63 << 5 | actions >> 63 << 6;
    return {local << 1 | bit, remote << 1 | bit,       windows << 1 | bit, bytes << 1 | bit,
            value << 1 | bit, signal_value << 1 | bit, actions << 1 | bit, what.pack(lap) | highest << highest_bits};
  }
  DEVCOMM_HOST_DEVICE constexpr descriptor unpacked() const {
    const uint64_t highest = head >> highest_bits;
    return {local >> 1 | highest << 63,        remote >> 1 | highest >> 1 << 63,
            windows >> 1 | highest >> 2 << 63, bytes >> 1 | highest >> 3 << 63,
            value >> 1 | highest >> 4 << 63,   signal_value >> 1 | highest >> 5 << 63,
            actions >> 1 | highest >> 6 << 63, head};
  }

 private:
  static constexpr int highest_bits = 12;  // of `head`: `descriptor_head` leaves these free
};

static_assert(sizeof(descriptor) == 64, "kernels write it: change device_comm::layout_version with it");

/// Independent contexts of the network. Plain data; pass it to the kernel. `members` are the ranks of the world.
struct context_handle : resource_handle {
  uint32_t signals;   ///< of a context: the kernel's own, then those of features; not those of its barriers
  uint32_t counters;  ///< of a context
  uint32_t depth;     ///< descriptors of a context's ring
  uint32_t barriers;  ///< of a context

  /// The first of the signals that a feature has by `requirements::add_signals`. *Requires* `has(taken)`.
  DEVCOMM_HOST_DEVICE constexpr uint32_t first_signal(signal_range taken) const { return signals - taken.from_end; }
  /// Whether contexts have these signals: else `taken` is of other requirements.
  DEVCOMM_HOST_DEVICE constexpr bool has(signal_range taken) const { return taken.from_end <= signals; }
  /// The signal by which `peer` arrives at barrier `index` of a context, where the barrier fences puts or not.
  DEVCOMM_HOST_DEVICE constexpr uint64_t arrivals(uint32_t index, bool fenced, uint32_t peer) const {
    return signals + (uint64_t{index} * 2 + (fenced ? 1 : 0)) * members + peer;
  }
  /// Signals of a context in all.
  DEVCOMM_HOST_DEVICE constexpr uint64_t all_signals() const { return arrivals(barriers, false, 0); }
};

/// What a context keeps on its rank, at the start of its part of the resource window. Written by the host library
/// before the first launch, but for what kernels store.
struct context_record {
  descriptor* ring;    ///< host memory
  uint64_t* words;     ///< host memory, see `queue_layout`
  uint64_t posted;     ///< operations that have a number
  uint64_t host_poll;  ///< when a thread last loaded a word across the bus
  uint32_t reserved[24];
};

static_assert(sizeof(context_record) == 128, "kernels read it: change device_comm::layout_version with it");

/// The words of a context, by index, and where the parts of a context are in device memory, in bytes from its record.
struct queue_layout {
  uint32_t peers;
  uint32_t signals;
  uint32_t counters;

  // Words that the proxy stores.

  /// All operations below it have been read from the ring.
  DEVCOMM_HOST_DEVICE constexpr uint32_t consumed() const { return 0; }
  /// All operations below it are complete on this rank.
  DEVCOMM_HOST_DEVICE constexpr uint32_t done() const { return 1; }
  /// All operations below it that go to `peer` are complete on this rank.
  DEVCOMM_HOST_DEVICE constexpr uint32_t done_with(uint32_t peer) const { return 2 + peer; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t signal(uint32_t index) const { return 2 + peers + index; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t counter(uint32_t index) const { return 2 + peers + signals + index; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t words() const { return counter(counters); }

  // Device memory.

  /// Whether a word only grows: the first ones, up to those of the peers.
  DEVCOMM_HOST_DEVICE constexpr bool only_grows(uint32_t index) const { return index < signal(0); }
  /// Latest value seen of word `index`, which only grows.
  DEVCOMM_HOST_DEVICE constexpr uint64_t seen(uint32_t index) const {
    return sizeof(context_record) + uint64_t{index} * sizeof(uint64_t);
  }
  /// 1 more than the number of the latest operation to `peer`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t latest(uint32_t peer) const {
    return seen(signal(0)) + uint64_t{peer} * sizeof(uint64_t);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return detail::round_up_to_line(latest(peers)); }
};

/// What a rank keeps of the barriers of all contexts, in device memory behind the contexts: bytes from there.
struct barrier_layout {
  uint32_t contexts;
  uint32_t barriers;  ///< of each
  uint32_t peers;

  /// Of barrier `index` of `context`: twice the number of barriers with, or without, a fence of puts that this rank has
  /// completed with `peer`; 1 more if it has arrived at the next one.
  DEVCOMM_HOST_DEVICE constexpr uint64_t completed(uint32_t context, uint32_t index, bool fenced, uint32_t peer) const {
    return (uint64_t{context} * barriers + index) * bytes_of_barrier() +
           ((fenced ? uint64_t{peers} : 0) + peer) * sizeof(uint64_t);
  }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t context, uint32_t index) const {
    return completed(context, index, true, peers);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const {
    return detail::limited_product(uint64_t{contexts} * barriers, bytes_of_barrier());
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes_of_barrier() const {
    return (2 * uint64_t{peers} + 1) * sizeof(uint64_t);
  }
};

}  // namespace devcomm::gin
