/// \file posted_note.cuh
/// How RTS, CTS and inline messages travel: in packets of 8 bytes of data, each with its flag, as in
/// `lsa::ll_session`. They are seen whole or not at all, in any order, and order nothing else.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/channel/messages.hpp>
#include <devcomm/lsa/ll_session.cuh>
#include <devcomm/memory_order.hpp>

namespace devcomm::detail {

/// Stores a note at a peer. What `Order` releases goes with the number, before the packets, so that it does not wait
/// for them to arrive.
template <memory_order Order, class Note>
DEVCOMM_DEVICE void post_note(char* at, uint32_t number, const Note& note) {
  uint64_t words[Note::words];
  static_assert(sizeof words == sizeof note, "see Note::words");
  copy_bytes(words, &note, sizeof words);
  auto* const to = reinterpret_cast<channel::posted_note<Note>*>(at);
  arch::store<Order, scope::system>(&to->number, number);
  DEVCOMM_UNROLL
  for (uint32_t i = 0; i < Note::words; ++i)
    arch::store_halves(to->packets + i * 16, ll_protocol::encode(words[i], number));
}

/// Whether the note with that number has come.
template <class Note>
DEVCOMM_DEVICE bool read_note(const channel::posted_note<Note>* at, uint32_t number, Note& note) {
  arch::halves raw[Note::words];
  DEVCOMM_UNROLL
  for (uint32_t i = 0; i < Note::words; ++i) raw[i] = arch::load_halves(at->packets + i * 16);
  uint64_t words[Note::words];
  bool all = true;
  DEVCOMM_UNROLL
  for (uint32_t i = 0; i < Note::words; ++i) {
    all = all & ll_protocol::has_flag(raw[i], number);
    words[i] = ll_protocol::decode(raw[i]);
  }
  copy_bytes(&note, words, sizeof words);
  return all;
}

/// The same, and acquires what was released before it was posted.
template <class Note>
DEVCOMM_DEVICE bool acquire_note(const channel::posted_note<Note>* at, uint32_t number, Note& note) {
  const bool has_come = read_note(at, number, note);
  return arch::load<memory_order::acquire, scope::system>(&at->number) == number && has_come;
}

/// Up to 8 bytes of any alignment as a word. Out of line: most messages have none, or one at their end.
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline uint64_t load_part_of_word(const char* from, uint32_t bytes) {
  uint64_t word = 0;
  for (uint32_t i = 0; i < 8 && i < bytes; ++i) word |= uint64_t{static_cast<unsigned char>(from[i])} << 8 * i;
  return word;
}
DEVCOMM_DEVICE DEVCOMM_NOINLINE inline void store_part_of_word(char* to, uint32_t bytes, uint64_t word) {
  for (uint32_t i = 0; i < 8 && i < bytes; ++i) to[i] = static_cast<char>(word >> 8 * i);
}
DEVCOMM_DEVICE inline uint64_t load_word(const char* from, uint32_t bytes) {
  if (bytes >= 8 && reinterpret_cast<uintptr_t>(from) % 8 == 0) return arch::load_bytes<8>(from);
  return load_part_of_word(from, bytes);
}
DEVCOMM_DEVICE inline void store_word(char* to, uint32_t bytes, uint64_t word) {
  if (bytes >= 8 && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
    *reinterpret_cast<uint64_t*>(to) = word;
  } else {
    store_part_of_word(to, bytes, word);
  }
}

/// This thread's part of an inline message, of less than 4 GiB, to its slot at the peer, `Batch` packets at a time.
/// *Collective*; does not synchronize.
template <uint32_t Batch, class Group>
DEVCOMM_DEVICE void send_inline(const Group& group, const channel::connection_piece& piece) {
  const uint32_t stride = group.size() * 8;
  const auto bytes = static_cast<uint32_t>(piece.bytes);
  for (uint32_t first = group.thread_rank() * 8; first < bytes; first += stride * Batch) {
    uint64_t words[Batch] = {};
    DEVCOMM_UNROLL
    for (uint32_t b = 0; b < Batch; ++b)
      if (const uint32_t at = first + stride * b; at < bytes) words[b] = load_word(piece.from + at, bytes - at);
    DEVCOMM_UNROLL
    for (uint32_t b = 0; b < Batch; ++b)
      if (const uint32_t at = first + stride * b; at < bytes)
        arch::store_halves(piece.to + uint64_t{at} * 2, ll_protocol::encode(words[b], piece.flag));
  }
}

/// The same, from its slot on this rank, which is zeroed. `wait(awaited, ready)` calls `ready` until it returns true,
/// or returns false, which is what this returns then.
template <uint32_t Batch, class Group, class Wait>
DEVCOMM_DEVICE bool receive_inline(const Group& group, const channel::connection_piece& piece, const wait_site& awaited,
                                   const Wait& wait) {
  const uint32_t stride = group.size() * 8;
  const auto bytes = static_cast<uint32_t>(piece.bytes);
  for (uint32_t first = group.thread_rank() * 8; first < bytes; first += stride * Batch) {
    char* const packets = const_cast<char*>(piece.from) + uint64_t{first} * 2;
    arch::halves raw[Batch];
    const auto ready = [&] {
      bool all = true;
      DEVCOMM_UNROLL
      for (uint32_t b = 0; b < Batch; ++b)
        if (first + stride * b < bytes) raw[b] = arch::load_halves(packets + uint64_t{stride} * b * 2);
      DEVCOMM_UNROLL
      for (uint32_t b = 0; b < Batch; ++b)
        if (first + stride * b < bytes) all = all & ll_protocol::has_flag(raw[b], piece.flag);
      return all;
    };
    if (!wait(awaited, ready)) return false;
    DEVCOMM_UNROLL
    for (uint32_t b = 0; b < Batch; ++b)
      if (const uint32_t at = first + stride * b; at < bytes) {
        arch::store_halves(packets + uint64_t{stride} * b * 2, {0, 0});
        store_word(piece.to + at, bytes - at, ll_protocol::decode(raw[b]));
      }
  }
  return true;
}

}  // namespace devcomm::detail
