/// \file packet_contracts.cuh
/// Whether all members of a mailbox made the same launch and the same call.
///
/// With the first round of a session, and of each call of a collective, every thread shows its contract to all members
/// before its first packet, so that a member that has a packet can also see the contract. A waiting thread compares the
/// contracts of those that it waits for, since a rank with other counts may never send what is waited for. No thread
/// waits for a contract: that would keep ranks in step and hide mistakes. Even and odd rounds have contracts of their
/// own, which are overwritten no sooner than their rounds' packets.
#pragma once

#include <devcomm/detail/contract.cuh>
#include <devcomm/detail/poll.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/lsa/detail/packet_members.cuh>
#include <devcomm/lsa/mailboxes.hpp>

namespace devcomm::detail {

/// Whom a call sends to, and receives from, where that is one member; -1: nobody.
struct call_partners {
  int to;
  int from;
};

#if DEVCOMM_CHECKED

/// One thread's part.
class packet_contracts {
 public:
  DEVCOMM_DEVICE packet_contracts(uint32_t group_threads, const device_comm& comm, const packet_memory& memory,
                                  const lsa::mailbox_layout& layout, uint64_t offset)
      : members_(memory.members) {
    const auto self = static_cast<uint32_t>(members_.rank);
    mine_ =
        reinterpret_cast<lsa::packet_contract*>(comm.resources.local + offset + layout.contract(memory.own(), 0, 0));
    theirs_ = memory.first + layout.contract(memory.index, 0, self);
    stride_ =
        memory.stride + memory.mailboxes * static_cast<int64_t>(layout.contract(1, 0, 0) - layout.contract(0, 0, 0));
    launch_ = {arch::grid_blocks(), group_threads, comm.launch_key};
    due_ = checked_ = (comm.flags & device_comm::check_launch) != 0;
  }

  DEVCOMM_DEVICE void begin_call(const call_contract& call) {
    call_ = call;
    has_partners_ = false;
    due_ = checked_;
  }
  /// A member is then shown as root whether it is sent to.
  DEVCOMM_DEVICE void begin_call(const call_contract& call, const call_partners& with) {
    begin_call(call);
    has_partners_ = true;
    with_ = with;
  }

  /// Starts the round of `epoch`.
  DEVCOMM_DEVICE void show(uint32_t epoch) {
    compares_ = due_;
    due_ = false;
    if (!compares_) return;
    for (int member = 0; member < members_.size; ++member) {
      auto* slot = reinterpret_cast<lsa::packet_contract*>(theirs_ + member * stride_) + half(epoch);
      store_contract(&slot->launch, launch_);
      store_contract(&slot->call, has_partners_ ? as_root(member == with_.to) : call_);
    }
    arch::check_fence<memory_order::release>();
    for (int member = 0; member < members_.size; ++member)
      arch::store_check(&(reinterpret_cast<lsa::packet_contract*>(theirs_ + member * stride_) + half(epoch))->epoch,
                        epoch);
    arch::check_fence<memory_order::release>();
  }

  /// Sets `other` to the first member in `[first, end)` that one of `LaneGroup` knows to differ, if there is one.
  /// `whole` says that all of them have sent.
  template <class LaneGroup>
  DEVCOMM_DEVICE void compare(int first, int end, uint32_t epoch, bool whole, int& other) const {
    if (!compares_) return;
    find_other(first, end, epoch, whole, other);
    other = LaneGroup::choose(other >= 0, other);
  }

  /// Leaves a record of member `other`, unless this rank's waits have ended already.
  DEVCOMM_DEVICE status report(resource_header* home, const wait_site& wait, int other) const {
    const uint32_t ended = arch::load<memory_order::relaxed, scope::device>(&home->abort);
    if (ended != 0) return status::aborted;
    const lsa::packet_contract* contracts = mine_ + half(static_cast<uint32_t>(wait.expected));
    const lsa::packet_contract& theirs = contracts[other];
    const call_contract expected = expected_of(other);
    const shown_contracts shown{&contracts[members_.rank].launch, &theirs.launch, &expected, &theirs.call};
    detail::report(home, status::mismatch, wait, wait.expected, shown);
    return status::mismatch;
  }

 private:
  DEVCOMM_DEVICE void find_other(int first, int end, uint32_t epoch, bool whole, int& other) const {
    if (whole) arch::check_fence<memory_order::acquire>();
    for (int member = first; member < end; ++member) {
      const lsa::packet_contract& theirs = mine_[half(epoch) + member];
      const uint64_t shown = whole ? arch::load_check(&theirs.epoch) : arch::poll_check(&theirs.epoch);
      if (shown != epoch) continue;
      arch::check_fence<memory_order::acquire>();
      if (same_contract(load_contract(&theirs.launch), launch_) &&
          same_contract(load_contract(&theirs.call), expected_of(member)))
        continue;
      other = member;
      return;
    }
  }

  DEVCOMM_DEVICE call_contract as_root(bool is_partner) const {
    call_contract call = call_;
    call.root = is_partner ? 1 : 0;
    return call;
  }
  /// What `member` is to have shown.
  DEVCOMM_DEVICE call_contract expected_of(int member) const {
    return has_partners_ ? as_root(member == with_.from) : call_;
  }

  /// From the contracts of even rounds to those of a round.
  DEVCOMM_DEVICE int half(uint32_t epoch) const { return epoch % 2 != 0 ? members_.size : 0; }

  packet_members members_;
  int64_t stride_;              // bytes from one member's memory to the next's
  lsa::packet_contract* mine_;  // shown to this rank in even rounds, member 0's first
  char* theirs_;                // this rank's on member 0, of even rounds
  launch_contract launch_;
  call_contract call_{};
  call_partners with_{-1, -1};
  bool has_partners_ = false;
  bool checked_;
  bool due_;               // with the next round
  bool compares_ = false;  // in this round
};

#else

/// Unless compiled with `DEVCOMM_CHECKED`, nothing is compared.
class packet_contracts {
 public:
  DEVCOMM_DEVICE packet_contracts(uint32_t, const device_comm&, const packet_memory&, const lsa::mailbox_layout&,
                                  uint64_t) {}
  DEVCOMM_DEVICE void begin_call(const call_contract&) const {}
  DEVCOMM_DEVICE void begin_call(const call_contract&, const call_partners&) const {}
  DEVCOMM_DEVICE void show(uint32_t) const {}
  template <class LaneGroup>
  DEVCOMM_DEVICE void compare(int, int, uint32_t, bool, int&) const {}
  DEVCOMM_DEVICE status report(resource_header*, const wait_site&, int) const { return status::success; }
};

#endif

}  // namespace devcomm::detail
