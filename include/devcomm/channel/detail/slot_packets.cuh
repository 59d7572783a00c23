/// \file slot_packets.cuh
/// How packs lie in the slots of FIFOs whose data carries its own flags: in the formats of the mailboxes of `lsa`.
#pragma once

#include <devcomm/channel/fifos.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/lsa/ll128_session.cuh>
#include <devcomm/lsa/ll_session.cuh>
#include <devcomm/lsa/pack_cursor.cuh>

namespace devcomm::detail {

/// `raw` is what one thread loads of a slot for one pack. Lanes that have gone separate ways call `join()` before they
/// load together. Threads that store and load flags have `has_flag()`: what one of them releases before its flag, the
/// one that loads the flag acquires. So of packets, these show what call a step belongs to (`shows_steps`).
template <channel::protocol Protocol>
struct slot_packets;

/// Bare packs, which carry no flag.
template <>
struct slot_packets<channel::protocol::simple> {
  using lane_group = one_thread;
  using cursor = lsa::thread_cursor;
  using raw = arch::vec16;
  DEVCOMM_DEVICE static constexpr bool shows_steps(uint64_t thread_rank) { return thread_rank == 0; }
};

/// Two packets of 8 bytes a pack.
template <>
struct slot_packets<channel::protocol::ll> {
  using lane_group = one_thread;
  using cursor = lsa::thread_cursor;
  struct raw {
    arch::halves packets[2];
  };
  DEVCOMM_DEVICE static void join() {}
  DEVCOMM_DEVICE static constexpr bool has_flag() { return true; }
  DEVCOMM_DEVICE static constexpr bool shows_steps(uint64_t) { return has_flag(); }

  template <class T>
  DEVCOMM_DEVICE static void store(char* slot, const cursor& at, const pack<T>& value, uint32_t flag) {
    uint64_t words[2];
    copy_bytes(words, &value, 16);
    char* packet = slot + uint64_t{at.index()} * 32;
    arch::store_halves(packet, ll_protocol::encode(words[0], flag));
    arch::store_halves(packet + 16, ll_protocol::encode(words[1], flag));
  }
  DEVCOMM_DEVICE static raw load(const char* slot, const cursor& at) {
    const char* packet = slot + uint64_t{at.index()} * 32;
    return {{arch::load_halves(packet), arch::load_halves(packet + 16)}};
  }
  DEVCOMM_DEVICE static bool is_missing(const raw& words, uint32_t flag) {
    const bool first = ll_protocol::has_flag(words.packets[0], flag);
    const bool second = ll_protocol::has_flag(words.packets[1], flag);
    return !(first & second);
  }
  template <class T>
  DEVCOMM_DEVICE static pack<T> decode(const raw& words) {
    const uint64_t data[2] = {ll_protocol::decode(words.packets[0]), ll_protocol::decode(words.packets[1])};
    pack<T> value;
    copy_bytes(&value, data, 16);
    return value;
  }
};

/// Units of 30 packs in four lines, which a warp moves together.
template <>
struct slot_packets<channel::protocol::ll128> {
  using lane_group = whole_warp;
  using cursor = lsa::warp_cursor;
  using raw = arch::vec16;
  /// Without it, a lane might load its part of a line before the line has arrived, and another one its flag after.
  DEVCOMM_DEVICE static void join() { arch::join_warp(); }
  DEVCOMM_DEVICE static bool has_flag() { return ll128_protocol::has_flag(); }
  DEVCOMM_DEVICE static bool shows_steps(uint64_t) { return ll128_protocol::has_flag(); }

  template <class T>
  DEVCOMM_DEVICE static void store(char* slot, const cursor& at, const pack<T>& value, uint32_t flag) {
    const arch::vec16 words = ll128_protocol::encode(to_vec16(value), flag);
    arch::join_warp();
    arch::store_lines(packet(slot, at), words);
  }
  DEVCOMM_DEVICE static raw load(const char* slot, const cursor& at) { return arch::load_lines(packet(slot, at)); }
  DEVCOMM_DEVICE static bool is_missing(const raw& words, uint32_t flag) {
    return ll128_protocol::is_missing(words, flag);
  }
  template <class T>
  DEVCOMM_DEVICE static pack<T> decode(const raw& words) {
    return to_pack<T>(ll128_protocol::decode(words));
  }

 private:
  template <class Bytes>
  DEVCOMM_DEVICE static Bytes* packet(Bytes* slot, const cursor& at) {
    return slot + (uint64_t{at.packet()} + arch::lane()) * 16;
  }
};

}  // namespace devcomm::detail
