/// \file packet_session.cuh
/// What the packet protocols of `lsa` have in common: rows, rounds, epochs and waits.
///
/// Every member of the team has, on each member, a row of packets for even and one for odd rounds. Nothing is
/// reset between launches: the epoch, which counts rounds, outlives the kernel.
///
/// *Why a row can be written again two rounds later*. A group sends in round `r + 2` after its `sync` at the end
/// of `r + 1`. In `r + 1` it heard from each peer, or from one who had heard from that peer; and the peer sent in
/// `r + 1` after its own `sync` at the end of `r`, with all of its loads of that round complete, as their values
/// decided how it went on. Within a launch the syncs are those of `begin_round`, between launches the end of
/// the kernel is one.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/group.cuh>
#include <devcomm/lsa/detail/packet_contracts.cuh>
#include <devcomm/lsa/detail/packet_members.cuh>
#include <devcomm/lsa/mailboxes.hpp>

namespace devcomm::detail {

/// The first member in `[first, end)` of which one of the `packets` packets has not arrived, or `first`.
/// `row` is the address of the first of them from sender 0, `row_bytes` the distance from one sender's to the next's.
template <class Protocol>
DEVCOMM_DEVICE DEVCOMM_NOINLINE int first_missing(const char* row, uint64_t row_bytes, int first, int end, int packets,
                                                  uint32_t epoch) {
  for (int member = first; member < end; ++member) {
    for (int p = 0; p < packets; p += Protocol::packets_a_flag) {
      const char* packet =
          row + static_cast<uint64_t>(member) * row_bytes + p * static_cast<int64_t>(lsa::mailbox_layout::packet_bytes);
      if (!Protocol::has_arrived(packet, epoch)) return member;
    }
  }
  return first;
}

/// One group's part in one mailbox. `Protocol` has its `packet_protocol` as `id`, the lanes that move a packet as
/// `lane_group`, how many packets one flag speaks for as `packets_a_flag`, `has_arrived(packet, epoch)`, and
/// `end_round()`, which orders a round's stores before the next's; `once_a_launch` where the end of a session does not.
template <class Protocol, class Group>
class packet_session {
  static_assert(is_group<Group>, "a group needs thread_rank(), size() and sync()");

 public:
  using handle = lsa::mailbox_handle<Protocol::id>;
  using lane_group = typename Protocol::lane_group;
  /// The number of threads of a group must be a multiple of this.
  static constexpr uint32_t group_multiple = lane_group::threads;
  /// As failure records call its waits.
  static constexpr operation what = mailbox_wait(Protocol::id);

  /// Between ranks. *Requires* that `members` is part of the LSA team.
  DEVCOMM_DEVICE packet_session(Group group, const device_comm& comm, team members, handle mailboxes, uint32_t index)
      : packet_session(group, comm, packet_memory::of_ranks(comm, members, mailboxes.offset, index), mailboxes) {}

  DEVCOMM_DEVICE packet_session(Group group, const device_comm& comm, const packet_memory& memory, handle mailboxes)
      : group_(group),
        home_(reinterpret_cast<resource_header*>(comm.resources.local)),
        members_(memory.members),
        packets_(mailboxes.packets),
        index_(memory.own()),
        contracts_(static_cast<uint32_t>(group.size()), comm, memory,
                   {mailboxes.count, mailboxes.members, mailboxes.packets}, mailboxes.offset) {
    comm.check_owner(mailboxes);
    DEVCOMM_ASSERT_OF(
        index_ < mailboxes.count, "mailbox", index_, mailboxes.count,
        "mailbox index is past the mailboxes that requirements asked for; ask for a larger count of mailboxes");
    DEVCOMM_ASSERT(static_cast<uint32_t>(members_.size) == mailboxes.members,
                   "the mailboxes were made for a team of another size");
    lane_group::check(group);
    const lsa::mailbox_layout layout{mailboxes.count, mailboxes.members, mailboxes.packets};
    char* own = comm.resources.local + mailboxes.offset;
    own_ = reinterpret_cast<uint32_t*>(own + layout.epoch(index_));
    epoch_ = arch::load<memory_order::relaxed, scope::device>(own_);
    mine_ = own + layout.row(index_, 0, 0);
    theirs_ = memory.first + layout.row(memory.index, 0, static_cast<uint32_t>(members_.rank));
    stride_ = memory.stride + memory.mailboxes * static_cast<int64_t>(layout.row(1, 0, 0) - layout.row(0, 0, 0));
    ended_ = lane_group::any_of(arch::load<memory_order::relaxed, scope::device>(&home_->abort));
    if constexpr (lane_group::threads > 1) {
      if (group.size() % lane_group::threads != 0) {  // packets of the last part of a warp would never be whole
        ended_ = 1;
        if (group.thread_rank() == 0) report_part_of_warp(home_, what, index_, static_cast<uint32_t>(group.size()));
      }
    }
    arch::begin_session(id());
  }

  packet_session(const packet_session&) = delete;
  packet_session& operator=(const packet_session&) = delete;

  /// Keeps the epoch for the next session.
  DEVCOMM_DEVICE ~packet_session() noexcept(false) {
    if (arch::unwinding()) return;
    arch::call_session(id(), session_call::end);
    sync_at_end(group_);  // all have read it
    if (group_.thread_rank() == 0) arch::store<memory_order::relaxed, scope::device>(own_, epoch_);
    sync_at_end(group_);
    arch::leave_session(id());
  }

  DEVCOMM_DEVICE const Group& group() const { return group_; }
  /// This member's `rank` among the members, and their number, `size`.
  DEVCOMM_DEVICE const packet_members& members() const { return members_; }
  /// Packets that each member can send to each in one round.
  DEVCOMM_DEVICE uint32_t capacity() const { return packets_; }

  /// Starts a round, the first or the next: all packets may be sent. Synchronizes the group but for the first
  /// round of a session.
  DEVCOMM_DEVICE void begin_round() {
    arch::call_session(id(), session_call::begin_round);
    if (began_) {
      const bool dead = any(group_, !is_alive(), own_ + 1);
      if (dead && failure_ == status::success) failure_ = status::aborted;
      Protocol::end_round();
    }
    began_ = true;
    epoch_ += epoch_ == ~0u ? 3 : 1;  // never 0, which memory starts with, and odd after even
    if (is_alive()) contracts_.show(epoch_);
  }

  /// The next round is the first of that call of a collective: in a checked launch, ranks that make another one, or
  /// with other arguments, are named. Empty unless compiled with `DEVCOMM_CHECKED`.
  DEVCOMM_DEVICE void begin_call([[maybe_unused]] const call_contract& call) { contracts_.begin_call(call); }
  /// The same of a call that has partners, which must match.
  DEVCOMM_DEVICE void begin_call([[maybe_unused]] const call_contract& call, const call_partners& with) {
    contracts_.begin_call(call, with);
  }

  /// Whether this thread has seen no failure: if so, it has received what was sent; otherwise the latest may be zeros.
  DEVCOMM_DEVICE bool is_alive() const { return failure_ == status::success && ended_ == 0; }

  /// A span of this thread's group, in a trace, such as a call of a collective or a part of one.
  DEVCOMM_DEVICE trace_span trace(span_name name) const { return {group_, home_, name}; }
  /// The span of a call of a collective over this mailbox.
  DEVCOMM_DEVICE trace_span trace_call(collective_call which, uint64_t packs) const {
    return trace(call_span{which, static_cast<uint32_t>(what), packs}.pack());
  }

  /// `status::success`, or why the session is dead; the same for all threads of the group. *Collective*:
  /// synchronizes the group.
  [[nodiscard]] DEVCOMM_DEVICE status agree() {
    arch::call_session(id(), session_call::agree);
    const status mine = failure_ == status::success && ended_ != 0 ? status::aborted : failure_;
    failure_ = detail::agree(group_, mine, status::timeout, own_ + 1);
    return failure_;
  }

 protected:
  DEVCOMM_DEVICE uint32_t epoch() const { return epoch_; }
  /// Checks the arguments of a call that sends or receives.
  DEVCOMM_DEVICE void check(int member, uint32_t packet, uint32_t packets) const {
    static_cast<void>(member), static_cast<void>(packet), static_cast<void>(packets);
    DEVCOMM_ASSERT(began_, "packets are sent and received in rounds: call begin_round first");
    DEVCOMM_ASSERT_OF(member >= 0 && member < members_.size, "member", member, members_.size,
                      "the peer is outside the mailbox's team; peers are its members, from 0 on");
    DEVCOMM_ASSERT_OF(packet < packets_ && packets <= packets_ - packet, "packet", packet + packets - 1, packets_,
                      "the packet is past the mailbox's capacity; ask for mailboxes of more packets");
  }

  /// This rank's packet on `member`.
  DEVCOMM_DEVICE char* outgoing(int member, uint32_t packet) const {
    return theirs_ + half() + packet_offset(packet) + member * stride_;
  }
  /// The packet that `member` sends here.
  DEVCOMM_DEVICE char* incoming(int member, uint32_t packet) const {
    return mine_ + half() + packet_offset(packet) + static_cast<uint64_t>(member) * row_bytes();
  }
  DEVCOMM_DEVICE uint64_t row_bytes() const { return uint64_t{packets_} * lsa::mailbox_layout::packet_bytes; }
  DEVCOMM_DEVICE static uint64_t packet_offset(uint32_t packet) { return packet * lsa::mailbox_layout::packet_bytes; }

  /// Calls `store(packet)` with the first of this rank's packets from `packet` on, on every member in turn: this
  /// rank last, and not all ranks at one member first. `Ranks` is the team's size, or 0 where it is not known.
  template <int Ranks, class Store>
  DEVCOMM_DEVICE void for_each_outgoing(uint32_t packet, Store store) const {
    [[maybe_unused]] constexpr int unroll = Ranks != 0 ? Ranks : 1;
    const int size = Ranks != 0 ? Ranks : members_.size;
    char* first = outgoing(0, packet);
    int member = members_.rank;
    DEVCOMM_UNROLL_BY(unroll)
    for (int sent = 0; sent < size; ++sent) {
      member = member + 1 < size ? member + 1 : 0;
      store(first + member * stride_);
    }
  }

  /// Polls until `ready` returns true, for the `packets` packets from `packet` on of the members in
  /// `[first, end)`. Whether it did before the wait was ended.
  template <class Ready>
  DEVCOMM_DEVICE bool wait(int first, int end, uint32_t packet, int packets, Ready ready) {
    const trace_span traced(group_, home_, trace_name());
    const auto missing = [&] {
      return first_missing<Protocol>(incoming(0, packet), row_bytes(), first, end, packets, epoch_);
    };
    const auto label = [&] {
      wait_site wait = wait_for(missing());
      wait.offset = offset();
      wait.groups = groups();
      return label_of(home_, wait, communicator_timeout(), epoch_ - 1);
    };
    bool arrived = true;
    const auto fail = [&](status failure) {
      arrived = false;
      failure_ = failure;
      report(home_, failure, wait_for(missing()), epoch_ - 1);
    };
    int other = -1;  // a member whose launch or call is another one
    detail::poll<1, lane_group>(
        home_, communicator_timeout(), label,
        [&] {
          const bool whole = ready();
          contracts_.template compare<lane_group>(first, end, epoch_, whole, other);
          return whole || other >= 0;
        },
        fail);
    if (other >= 0) {
      arrived = false;
      failure_ = contracts_.report(home_, wait_for(other), other);
    }
    return arrived;
  }

 private:
  /// Without what only the simulator and the watchdog use, as it would cost kernels registers.
  DEVCOMM_DEVICE wait_site wait_for(int member) const {
    return {what,
            index_,
            members_.number(member),
            epoch_,
            wait_condition::epoch,
            0,
            members_.mailbox(index_, member),
            0,
            members_.is_local ? 1u : 0u};
  }
  /// As `wait_record::groups`.
  DEVCOMM_DEVICE uint32_t groups() const {
    if (!members_.is_local) return 0;
    return static_cast<uint32_t>((offset() - lsa::mailbox_layout{}.epoch(index_)) / 128) + 1;
  }
  /// As `session_id::offset`.
  DEVCOMM_DEVICE uint64_t offset() const {
    return static_cast<uint64_t>(reinterpret_cast<const char*>(own_) - home_->comm.resources.local);
  }
  /// Identifies this session to the simulator.
  DEVCOMM_DEVICE auto id() const {
    return [this]() -> session_id {
      const device_comm& comm = home_->comm;
      const auto thread = static_cast<uint32_t>(group_.thread_rank());
      const auto threads = static_cast<uint32_t>(group_.size());
      return {what, index_, comm.rank, thread, threads, comm.resources.base, offset(), Protocol::once_a_launch};
    };
  }
  /// Of a wait in this round.
  DEVCOMM_DEVICE span_name trace_name() const {
    return awaited_span{
        static_cast<uint32_t>(what), index_, 0, epoch_, static_cast<uint32_t>(members_.ranks.first), span_kind::wait}
        .pack();
  }
  /// From the rows of even rounds to those of this one.
  DEVCOMM_DEVICE uint64_t half() const { return epoch_ % 2 * static_cast<uint64_t>(members_.size) * row_bytes(); }

  Group group_;
  resource_header* home_;
  packet_members members_;
  uint32_t packets_;
  uint32_t index_;
  packet_contracts contracts_;
  int64_t stride_;  // bytes from one member's memory to the next's
  uint32_t* own_;   // epoch, and the word for votes
  char* mine_;      // packets sent to this rank in even rounds, sender 0's first
  char* theirs_;    // this rank's row of even rounds on member 0
  uint32_t epoch_;
  bool began_ = false;                // a round of this session
  status failure_ = status::success;  // of this thread
  uint32_t ended_;  // not 0 where waits had ended before; as it was read, so that nothing waits for it
};

}  // namespace devcomm::detail
