/// \file packet_session.cuh
/// Packets of a mailbox that go to all ranks by one multimem store.
///
///     needs.with(multimem::resources{});  // the mailboxes get a multicast address, or software
///     const auto mailboxes = needs.add(lsa::mailboxes_for<lsa::lamport_session<block>>(needs.lsa(), blocks, packs));
///
///     multimem::packet_session<lsa::lamport_session<block>> session{block{}, comm, mailboxes, blockIdx.x};
///     collective::all_reduce_one_shot<float>(session, packs, produce, consume, sum{});
#pragma once

#include <devcomm/any_order.hpp>
#include <devcomm/assert.hpp>
#include <devcomm/device_comm.hpp>
#include <devcomm/multimem/forms.cuh>
#include <devcomm/multimem/ptr.cuh>
#include <devcomm/operation.hpp>

namespace devcomm::multimem {

/// A packet session, `lsa::ll_session` or `lsa::lamport_session`, of which `send_pack_to_all` stores each packet once,
/// by the multicast address of the row that this rank has on every member, instead of once for each. Packets, rows,
/// rounds and receiving are those of the session; so ranks that send by a switch and ranks that send by stores
/// understand each other. Packs for one member are sent by ordinary stores.
///
/// *Why packets are still whole*. LL: each word of 8 bytes, half of the data and the flag, is an access of its own,
/// which reaches a member whole. Lamport: each 4 bytes are their own flag. LL128 needs lines that arrive whole, which
/// nobody promises of a switch.
///
/// *Why rows are not written too early*. As without a switch; what comes by the other address of a row, loads of an
/// earlier round and a Lamport receiver's zeros, is ordered before the stores by `fence_alias` in `begin_round`.
///
/// In software, where the resource window has no multicast address, all is as without it.
///
/// *Requires* the whole LSA team, and multimem on the resource window: `multimem::resources`.
template <class Session>
class packet_session : public Session {
  static_assert(Session::handle::protocol != packet_protocol::ll128,
                "nothing promises that a switch brings lines whole: send by multimem over LL or Lamport mailboxes");

 public:
  template <class Group>
  DEVCOMM_DEVICE packet_session(Group group, const device_comm& comm, typename Session::handle mailboxes,
                                uint32_t index)
      : Session(group, comm, mailboxes, index), all_(comm.resources) {
    DEVCOMM_ASSERT(
        this->members().size == comm.lsa_size && this->members().rank == comm.lsa_rank(),
        "packets by multimem reach the whole LSA team: ask for mailboxes of requirements::lsa(), and make the "
        "session of that team");
  }

  /// Whether packets for all go by a multicast address; the same on all ranks.
  [[nodiscard]] DEVCOMM_DEVICE bool is_hardware() const { return all_.is_hardware(); }

  DEVCOMM_DEVICE void begin_round() {
    Session::begin_round();
    if (all_.is_hardware()) fence_alias();
  }

  /// Sends to every member, this rank included. `Ranks` is the team's size, or 0 where it is not known.
  template <int Ranks = 0, class T>
  DEVCOMM_DEVICE void send_pack_to_all(uint32_t i, const pack<T>& value) const {
    static_assert(Session::template can_carry<T>, "this session cannot carry this type; use an ll_session");
    if (!all_.is_hardware()) return Session::template send_pack_to_all<Ranks>(i, value);
    const uint32_t packet = Session::first_packet(i);
    this->check(0, packet, Session::packets_of_pack);
    if (!this->is_alive()) return;
    typename Session::whole_word words[Session::words_of_pack];
    this->encode_pack(value, words);
    // The row of this rank is at the same offset of every member's window.
    const char* const first = reinterpret_cast<const char*>(all_.symmetric().lsa(0));
    ptr<element> to = all_ + (this->outgoing(0, packet) - first) / static_cast<int64_t>(sizeof(element));
    DEVCOMM_UNROLL
    for (const auto& word : words) {
      to.store(word, memory_order::relaxed, scope::system);
      to += static_cast<int64_t>(sizeof word / sizeof(element));
    }
  }

 private:
  using element = detail::conditional_t<sizeof(typename Session::whole_word) == 8, uint64_t, uint32_t>;

  ptr<element> all_;  // of the resource window
};

}  // namespace devcomm::multimem
