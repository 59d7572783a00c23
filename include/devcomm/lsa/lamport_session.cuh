/// \file lamport_session.cuh
/// Lamport mailboxes: messages of floating-point data that are their own flags, at half the bytes of LL.
///
/// Protocol (after Lamport's "Concurrent reading and writing of clocks", 1990, and the one-shot kernels of
/// TensorRT-LLM, which mark empty slots by a value that no data has). A packet is 16 bytes. Each of its
/// 4-byte words travels inverted, and 0 means that it has not arrived; so memory that starts as zeros is empty.
/// The one word that would travel as 0, all ones, travels as one of 32 bits: all ones is a NaN in the types that may be
/// sent, and so is what comes out, the lowest bit less, or the highest of elements of 1 byte. The receiver polls until
/// no word is 0, takes the data, and overwrites it with zeros.
///
/// *Why no fence is needed in a round*. Every word is its own flag, and words are not seen torn. Zeros that a
/// receiver wrote in round `r` must be there before the sender's data of round `r + 2`. The sender writes those
/// after it heard, in `r + 1`, from the receiver, who sent that after the zeros: after the end of the
/// launch that wrote them or, in a session of several rounds, after the fence of `begin_round`.
/// lsa/detail/packet_session.cuh has the rest of the argument.
#pragma once

#include <devcomm/arch/language.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/small_float.cuh>
#include <devcomm/lsa/detail/packet_session.cuh>
#include <devcomm/lsa/mailboxes.hpp>
#include <devcomm/lsa/pack_cursor.cuh>

namespace devcomm::detail {

struct lamport_protocol {
  static constexpr packet_protocol id = packet_protocol::lamport;
  using lane_group = one_thread;
  static constexpr int packets_a_flag = 1;
  static constexpr bool once_a_launch = true;

  DEVCOMM_DEVICE static bool is_whole(const arch::vec16& packet) {
    return (packet.x != 0) & (packet.y != 0) & (packet.z != 0) & (packet.w != 0);
  }
  DEVCOMM_DEVICE static bool has_arrived(const char* packet, uint32_t) { return is_whole(arch::load_words(packet)); }
  DEVCOMM_DEVICE static void end_round() { arch::fence<memory_order::acq_rel, scope::system>(); }

  template <int ElementBytes>
  DEVCOMM_DEVICE static uint32_t encode(uint32_t word) {
    if constexpr (ElementBytes == 1) {
      return word != ~0u ? ~word : 0x80000000u;
    } else {
      return ~word > 1 ? ~word : 1;
    }
  }
  template <class T>
  DEVCOMM_DEVICE static arch::vec16 encode(const pack<T>& value) {
    constexpr int bytes = sizeof(T);
    const arch::vec16 data = to_vec16(value);
    return {encode<bytes>(data.x), encode<bytes>(data.y), encode<bytes>(data.z), encode<bytes>(data.w)};
  }
  DEVCOMM_DEVICE static arch::vec16 decode(const arch::vec16& packet) {
    return {~packet.x, ~packet.y, ~packet.z, ~packet.w};
  }
};

}  // namespace devcomm::detail

namespace devcomm::lsa {

/// Whether Lamport mailboxes carry `T`: `float`, and where `is_small_float<T>`. Of other types, all bits can be ones in
/// a number; `ll_session` carries those.
template <class T>
inline constexpr bool is_lamport_type = detail::is_same<T, float> || is_small_float<T>;

/// A group's use of one Lamport mailbox; usually a block's, with the block's index.
///
/// *Collective*, *Requires*, *Failure*: as for `ll_session`; also every packet that is sent is received, once, and a
/// launch has one session of a mailbox at most, which may do several rounds; the simulator names a second.
/// Further rounds of one session cost a system-wide fence each, so give a mailbox the capacity for one.
template <class Group>
class lamport_session : public detail::packet_session<detail::lamport_protocol, Group> {
  using base = detail::packet_session<detail::lamport_protocol, Group>;
  using protocol = detail::lamport_protocol;

 public:
  DEVCOMM_DEVICE lamport_session(Group group, const device_comm& comm, lamport_handle mailboxes, uint32_t index)
      : base(group, comm, comm.lsa(), mailboxes, index) {}

  /// *Requires* that `members` is part of the LSA team.
  DEVCOMM_DEVICE lamport_session(Group group, const device_comm& comm, team members, lamport_handle mailboxes,
                                 uint32_t index)
      : base(group, comm, members, mailboxes, index) {}

  template <class T>
  static constexpr bool can_carry = is_lamport_type<T>;
  /// Packets that make room for `packs` packs from each member to each in a round.
  DEVCOMM_HOST_DEVICE static constexpr uint32_t packets_for(uint32_t packs) { return packs; }

  DEVCOMM_DEVICE uint32_t pack_capacity() const { return this->capacity(); }
  /// Iterates over this thread's packs of a round.
  DEVCOMM_DEVICE thread_cursor cursor() const { return thread_cursor(this->group()); }

  /// Sends a pack to `member` as packet `i` of this round. *Ordering*: none for anything else.
  template <class T>
  DEVCOMM_DEVICE void send_pack(int member, uint32_t i, const pack<T>& value) const {
    static_assert(can_carry<T>, "Lamport mailboxes carry float and smaller floating-point types; use an LL mailbox");
    this->check(member, i, 1);
    if (this->is_alive()) arch::store_words(this->outgoing(member, i), protocol::encode(value));
  }

  /// Sends to every member, this rank included. `Ranks` is the team's size, or 0 where it is not known.
  template <int Ranks = 0, class T>
  DEVCOMM_DEVICE void send_pack_to_all(uint32_t i, const pack<T>& value) const {
    static_assert(can_carry<T>, "Lamport mailboxes carry float and smaller floating-point types; use an LL mailbox");
    this->check(0, i, 1);
    if (!this->is_alive()) return;
    const arch::vec16 words = protocol::encode(value);
    this->template for_each_outgoing<Ranks>(i, [&](char* packet) { arch::store_words(packet, words); });
  }

  /// What the members in `[first, first + Members)` sent as packet `i` of this round; waits until all of it has
  /// arrived. For members from `end` on it repeats that of member `end - 1`. *Ordering*: none
  /// for anything else. *Requires* `first < end`.
  template <int Members, class T>
  DEVCOMM_DEVICE void receive_packs(int first, int end, uint32_t i, pack<T> (&values)[Members]) {
    this->check(first, i, 1);
    this->check(end - 1, i, 1);
    arch::vec16 raw[Members] = {};
    const auto ready = [&] {
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m)  // issue all loads before the first is used
        raw[m] = arch::load_words(this->incoming(first + m < end ? first + m : end - 1, i));
      bool all = true;
      DEVCOMM_UNROLL
      for (int m = 0; m < Members; ++m) all = all & protocol::is_whole(raw[m]);
      return all;
    };
    const bool arrived =
        this->is_alive() && this->wait(first, first + Members < end ? first + Members : end, i, 1, ready);
    if (!arrived) {
      for (pack<T>& value : values) value = {};
      return;
    }
    DEVCOMM_UNROLL
    for (int m = 0; m < Members; ++m) values[m] = detail::to_pack<T>(protocol::decode(raw[m]));
    [[maybe_unused]] constexpr int unroll = Members <= 4 ? Members : 1;
    char* packet = this->incoming(first, i);
    DEVCOMM_UNROLL_BY(unroll)
    for (int m = 0; m < Members; ++m) {
      if (first + m < end) arch::store_words(packet, {0, 0, 0, 0});
      packet += this->row_bytes();
    }
  }

 protected:
  // As `multimem::packet_session` sends packs: each 4 bytes of a word are whole.
  using whole_word = pack<uint32_t>;
  static constexpr int words_of_pack = 1;
  static constexpr uint32_t packets_of_pack = 1;
  DEVCOMM_DEVICE static uint32_t first_packet(uint32_t i) { return i; }
  template <class T>
  DEVCOMM_DEVICE void encode_pack(const pack<T>& value, whole_word (&words)[words_of_pack]) const {
    words[0] = detail::to_pack<uint32_t>(protocol::encode(value));
  }
};

}  // namespace devcomm::lsa
