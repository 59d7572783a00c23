/// \file vectors.cuh
/// Vectors in memory as the producer and consumer of a collective, and how ranks and blocks divide them.
#pragma once

#include <devcomm/arch/language.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/slice.hpp>
#include <devcomm/status.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/team.hpp>

namespace devcomm::detail {

/// Whether pack `i` of `count` elements is full and aligned.
template <class T>
DEVCOMM_DEVICE bool is_whole_pack(const T* data, uint64_t i, uint64_t count) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && (i + 1) * pack<T>::size <= count;
}

/// Pack `i` of `count` elements of any alignment, zeros where there are none. In whole words: put together from
/// elements, packs that are loaded at once would be taken apart, and waited for, where the two paths join.
template <class T>
DEVCOMM_DEVICE DEVCOMM_NOINLINE arch::vec16 load_elements(const T* data, uint64_t i, uint64_t count) {
  uint32_t words[4] = {0, 0, 0, 0};
  DEVCOMM_UNROLL
  for (int e = 0; e < pack<T>::size; ++e) {
    const uint64_t index = i * pack<T>::size + static_cast<uint64_t>(e);
    if (index >= count) break;
    constexpr int in_words = sizeof(T) <= 4 ? 1 : static_cast<int>(sizeof(T) / 4);
    uint32_t bits[in_words] = {};
    copy_bytes(bits, data + index, sizeof(T));
    const int first = e * static_cast<int>(sizeof(T));
    DEVCOMM_UNROLL
    for (int w = 0; w < in_words; ++w) words[first / 4 + w] |= bits[w] << 8 * (first % 4);
  }
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace devcomm::detail

namespace devcomm::collective {

using devcomm::packs_of;
using devcomm::slice;

/// Packs of a block's share when `blocks` blocks share `packs` packs out.
DEVCOMM_HOST_DEVICE constexpr uint64_t packs_per_block(uint64_t packs, uint64_t blocks) {
  return (packs + blocks - 1) / blocks;
}

/// The calling block's share of `packs` packs, `share` for each block as long as there are any. A kernel that gets
/// `packs_per_block` from the host is spared the division, which takes 0.1 us.
DEVCOMM_DEVICE inline slice slice_of_block(uint64_t packs, uint64_t share) {
  const uint64_t before = arch::block_rank() * share;
  const uint64_t begin = before < packs ? before : packs;
  return {begin, share < packs - begin ? begin + share : packs};
}
DEVCOMM_DEVICE inline slice slice_of_block(uint64_t packs) {
  return slice_of_block(packs, packs_per_block(packs, arch::grid_blocks()));
}

/// Produces the `count` elements from `data` on, of any alignment. What fills the last pack up is zero.
template <class T>
struct from_memory {
  const T* data;
  uint64_t count;

  DEVCOMM_DEVICE pack<T> operator()(uint64_t i) const {
    return detail::to_pack<T>(detail::is_whole_pack(data, i, count) ? arch::load16_streaming(data + i * pack<T>::size)
                                                                    : detail::load_elements(data, i, count));
  }
};
template <class T>
from_memory(const T*, uint64_t) -> from_memory<T>;

/// Stores what it consumes to `count` elements from `data` on, of any alignment, and nothing past them.
template <class T>
struct to_memory {
  T* data;
  uint64_t count;

  DEVCOMM_DEVICE void operator()(uint64_t i, const pack<T>& value) const {
    if (detail::is_whole_pack(data, i, count)) {
      store_pack(data + i * pack<T>::size, value);
      return;
    }
    // In line: a call would take registers from all loops that store.
    for (int e = 0; e < pack<T>::size; ++e) {
      const uint64_t index = i * pack<T>::size + static_cast<uint64_t>(e);
      if (index < count) data[index] = value[e];
    }
  }
};
template <class T>
to_memory(T*, uint64_t) -> to_memory<T>;

/// A consumer that stores to the `count` elements from `data` on, of any alignment, on every rank: results go to the
/// outputs of all ranks as soon as they are there. Its `store` identifies consumers of this kind.
template <class T>
struct to_window {
  sym_ptr<T> data;
  uint64_t count;

  DEVCOMM_DEVICE void operator()(uint64_t i, const pack<T>& value) const {
    to_memory<T>{data.local(), count}(i, value);
  }
  DEVCOMM_DEVICE void store(int member, uint64_t i, const pack<T>& value) const {
    to_memory<T>{data.lsa(member), count}(i, value);
  }
  /// Pack `i` of this rank's output.
  DEVCOMM_DEVICE pack<T> load(uint64_t i) const { return from_memory<T>{data.local(), count}(i); }
};
template <class T>
to_window(sym_ptr<T>, uint64_t) -> to_window<T>;

}  // namespace devcomm::collective

namespace devcomm::detail {

/// Whether a barrier of `members` lets every rank touch every slot of `memory`.
DEVCOMM_DEVICE inline bool spans_lsa_team(const team& members, const window& memory) {
  return members.size == memory.lsa_size && members.first == memory.lsa_first;
}

/// In checked mode, refuses `elements` elements that reach past the end of their window.
template <class T>
DEVCOMM_DEVICE void check_in_window([[maybe_unused]] const sym_ptr<T>& data, [[maybe_unused]] uint64_t elements) {
  DEVCOMM_ASSERT_OF(data.offset <= data.memory.bytes && elements <= (data.memory.bytes - data.offset) / sizeof(T),
                    "element", elements, (data.memory.bytes - data.offset) / sizeof(T),
                    "a collective's vector reaches past the end of its window: allocate more, or pass a smaller count");
}

/// Whether chunks of these numbers of elements fit into `capacity`, one behind the other.
DEVCOMM_DEVICE inline status outcome_of_pieces(const uint64_t* counts, int pieces, uint64_t capacity) {
  for (int i = 0; i < pieces; ++i) {
    if (counts[i] > capacity) return status::truncated;
    capacity -= counts[i];
  }
  return status::success;
}

// Members that a consumer may have beside its operator(). They are called as those of a constant.

template <class Consume, class T, class = void>
inline constexpr bool has_store = false;
template <class Consume, class T>
inline constexpr bool
    has_store<Consume, T, void_t<decltype(declval<Consume&>().store(0, uint64_t{}, declval<const pack<T>&>()))>> = true;

template <class Consume, class = void>
inline constexpr bool has_load = false;
template <class Consume>
inline constexpr bool has_load<Consume, void_t<decltype(declval<Consume&>().load(uint64_t{}))>> = true;

template <class Consume, class T, class = void>
inline constexpr bool has_map = false;
template <class Consume, class T>
inline constexpr bool
    has_map<Consume, T, void_t<decltype(declval<Consume&>().map(uint64_t{}, declval<const pack<T>&>()))>> = true;

template <class Consume, class = void>
inline constexpr bool has_complete = false;
template <class Consume>
inline constexpr bool
    has_complete<Consume, void_t<decltype(declval<Consume&>().complete(declval<collective::slice>()))>> = true;

/// Whether none of them is lost for want of a `const`.
template <class Consume, class T>
inline constexpr bool members_are_const =
    has_store<Consume, T> == has_store<const Consume, T>&& has_map<Consume, T> ==
    has_map<const Consume, T>&& has_complete<Consume> == has_complete<const Consume>;

/// Whether it has none of those that only chunks know.
template <class Consume, class T>
inline constexpr bool takes_packs_only = !has_map<Consume, T> && !has_complete<Consume>;

}  // namespace devcomm::detail

namespace devcomm::collective {

/// How successive calls that copy straight between ranks use the buffer that lies in a window: `exchange_zero_copy`,
/// `all_to_all_zero_copy` and `copy_engines`. The same on all ranks.
enum class copy_buffers : uint8_t {
  /// Each call may use the same buffer. Two barriers: before a rank writes to its peers, and after.
  reused,
  /// A call does not use the buffer of the call before, and has the same partners: alternate between two buffers. One
  /// barrier, at the end. Where outputs lie in a window a rank writes at once, without waiting for the receivers: what
  /// reads the output of a call is on the stream before the next call, and the first outputs are free on all ranks
  /// before any rank calls. Where inputs lie in a window, by `copy_engines`, the barrier is at the beginning instead,
  /// and nobody waits for the readers: what writes an input again is on the stream after the next call.
  alternating
};

/// Elements of a rank's shard when `ranks` ranks share `count` elements out. Where they do not come out even, the last
/// shards are shorter, or empty.
DEVCOMM_HOST_DEVICE constexpr uint64_t shard_length(uint64_t count, int ranks) {
  return (count + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks);
}

/// The elements of `rank`'s shard, `length` of them as long as there are any among `count`.
DEVCOMM_HOST_DEVICE constexpr slice shard_of_length(uint64_t count, uint64_t length, int rank) {
  const uint64_t before = static_cast<uint64_t>(rank) * length;
  const uint64_t begin = before < count ? before : count;
  return {begin, length < count - begin ? begin + length : count};
}
DEVCOMM_HOST_DEVICE constexpr slice shard_of(uint64_t count, int ranks, int rank) {
  return shard_of_length(count, shard_length(count, ranks), rank);
}

/// The calling block's share of the elements of `shard`, whole packs of it but for the last.
template <class T>
DEVCOMM_DEVICE slice part_of_block(slice shard) {
  const slice packs = slice_of_block(packs_of<T>(shard.size()));
  const auto element = [&](uint64_t p) {
    return shard.begin + (p * pack<T>::size < shard.size() ? p * pack<T>::size : shard.size());
  };
  return {element(packs.begin), element(packs.end)};
}

/// Calls `body(part)` with the calling block's parts of the elements of `shard`, one after the other: whole packs but
/// for the last. Where there are many, the blocks' parts lie in turn, so that all blocks work in one stretch of memory
/// that moves on; with one part a block, as `part_of_block`, large vectors are up to 6 % slower on H200s.
template <class T, class Body>
DEVCOMM_DEVICE void for_each_part_of_block(slice shard, const Body& body) {
  constexpr uint64_t most = 4096;  // packs of a part
  const uint64_t packs = packs_of<T>(shard.size());
  const uint64_t blocks = arch::grid_blocks();
  const uint64_t share = packs_per_block(packs, blocks);
  const uint64_t part = share <= most ? share : packs_per_block(share, packs_per_block(share, most));
  const auto element = [&](uint64_t p) {
    return shard.begin + (p * pack<T>::size < shard.size() ? p * pack<T>::size : shard.size());
  };
  for (uint64_t begin = arch::block_rank() * part; begin < packs; begin += blocks * part)
    body(slice{element(begin), element(begin + part)});
}

/// Produces pack `i` of each rank's shard of the `count` elements from `data` on; `length` is `shard_length`. Of any
/// alignment; what fills the last pack of a shard up, and what lies past it, is zero.
template <class T>
struct from_shards {
  const T* data;
  uint64_t count;
  uint64_t length;

  DEVCOMM_DEVICE pack<T> operator()(int rank, uint64_t i) const {
    const slice shard = shard_of_length(count, length, rank);
    return from_memory<T>{data + shard.begin, shard.size()}(i);
  }
};
template <class T>
from_shards(const T*, uint64_t, uint64_t) -> from_shards<T>;

/// Stores pack `i` of each rank's shard to the `count` elements from `data` on, and nothing past a shard.
template <class T>
struct to_shards {
  T* data;
  uint64_t count;
  uint64_t length;

  DEVCOMM_DEVICE void operator()(int rank, uint64_t i, const pack<T>& value) const {
    const slice shard = shard_of_length(count, length, rank);
    to_memory<T>{data + shard.begin, shard.size()}(i, value);
  }
};
template <class T>
to_shards(T*, uint64_t, uint64_t) -> to_shards<T>;

/// Produces pack `i` of each rank's piece, of `counts[rank]` elements from `data + offsets[rank]` on. `counts` and
/// `offsets` are in memory that the kernel reads.
template <class T>
struct from_pieces {
  const T* data;
  const uint64_t* counts;
  const uint64_t* offsets;

  DEVCOMM_DEVICE pack<T> operator()(int rank, uint64_t i) const {
    return from_memory<T>{data + offsets[rank], counts[rank]}(i);
  }
};
template <class T>
from_pieces(const T*, const uint64_t*, const uint64_t*) -> from_pieces<T>;

/// Stores pack `i` of each rank's piece, of `counts[rank]` elements, from `data + rank * stride` on; what of a piece is
/// past `stride` elements is left out.
template <class T>
struct to_pieces {
  T* data;
  const uint64_t* counts;
  uint64_t stride;

  DEVCOMM_DEVICE void operator()(int rank, uint64_t i, const pack<T>& value) const {
    const uint64_t count = counts[rank] < stride ? counts[rank] : stride;
    if (i * pack<T>::size < count) to_memory<T>{data + static_cast<uint64_t>(rank) * stride, count}(i, value);
  }
};
template <class T>
to_pieces(T*, const uint64_t*, uint64_t) -> to_pieces<T>;

/// Stores the pieces one behind the other, in the order of the ranks; what is past `capacity` elements is left out.
///
///     const collective::to_packed_pieces<T> pieces{output, received, capacity};
///     collective::all_to_all_v<T>(session, counts, received, input, pieces);
///     if (pieces.outcome(session.members().size) == status::truncated) // output was too small
template <class T>
struct to_packed_pieces {
  T* data;
  const uint64_t* counts;
  uint64_t capacity;

  DEVCOMM_DEVICE void operator()(int rank, uint64_t i, const pack<T>& value) const {
    uint64_t before = 0;
    for (int r = 0; r < rank; ++r) before += counts[r];
    const uint64_t left = before < capacity ? capacity - before : 0;
    const uint64_t count = counts[rank] < left ? counts[rank] : left;
    if (i * pack<T>::size < count) to_memory<T>{data + before, count}(i, value);
  }
  /// `status::truncated` if the chunks of all ranks together have more than `capacity` elements; valid once `counts`
  /// are there.
  [[nodiscard]] DEVCOMM_DEVICE status outcome(int ranks) const {
    return detail::outcome_of_pieces(counts, ranks, capacity);
  }
};
template <class T>
to_packed_pieces(T*, const uint64_t*, uint64_t) -> to_packed_pieces<T>;

}  // namespace devcomm::collective
