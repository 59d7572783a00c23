/// \file fifo_deadline.cuh
/// Waits of a channel's session that have a deadline of the caller's own. They poll and change nothing; the next call
/// finds what has arrived meanwhile.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/detail/fifo_end.cuh>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/poll.cuh>

namespace devcomm::detail {

struct fifo_deadline {
  template <class Session>
  DEVCOMM_DEVICE static status receive(Session& session, uint32_t packs, nanoseconds limit) {
    DEVCOMM_ASSERT(packs <= session.slot_packs_, "a step has at most capacity() packs");
    const uint64_t start = arch::global_time();
    status mine = begin(session);
    for (const auto& end : session.from_) {
      if (!end.is_connected()) continue;
      if constexpr (Session::has_tail) {
        if (mine == status::success && session.group_.thread_rank() == 0)
          mine = wait(session, operation::fifo_receive, end, end.tail, end.step + 1, left(start, limit));
      } else {
        for (auto at = typename Session::cursor(session.group_); at.first() < packs; at.next())
          if (mine == status::success) mine = wait_for_packet(session, end, at, left(start, limit));
      }
    }
    return finish(session, mine);
  }

  template <class Session>
  DEVCOMM_DEVICE static status send(Session& session, nanoseconds limit) {
    const uint64_t start = arch::global_time();
    status mine = begin(session);
    for (const auto& end : session.to_) {
      if (!end.is_connected() || end.has_credit(session.slots_) || session.group_.thread_rank() != 0) continue;
      if (mine == status::success)
        mine = wait(session, operation::fifo_send, end, end.head, end.step - session.slots_ + 1, left(start, limit));
    }
    return finish(session, mine);
  }

 private:
  template <class Session>
  DEVCOMM_DEVICE static status begin(const Session& session) {
    return session.failure_ == status::timeout ? status::aborted : session.failure_;  // repeating would not help
  }
  template <class Session>
  DEVCOMM_DEVICE static status finish(Session& session, status mine) {
    const status outcome = agree(session.group_, mine, status::aborted, session.outcome_word());
    if (outcome == status::aborted || outcome == status::mismatch) {
      if (session.failure_ == status::success) session.failure_ = outcome;  // else it keeps why it failed first
      session.dead_ = true;
    }
    return outcome;
  }
  DEVCOMM_DEVICE static deadline left(uint64_t start, nanoseconds limit) {
    const uint64_t passed = arch::global_time() - start;
    return {true, passed < limit.count ? limit.count - passed : 0};
  }

  template <class Session, class End>
  DEVCOMM_DEVICE static status wait(const Session& session, operation what, const End& end, const uint32_t* word,
                                    uint32_t step, deadline limit) {
    return Session::transport::wait_within(session.home_, session.wait_of(what, end), word, step, limit);
  }

  /// By the lanes that move the packet, together.
  template <class Session, class Cursor>
  DEVCOMM_DEVICE static status wait_for_packet(const Session& session, const receiving_end& end, const Cursor& at,
                                               deadline limit) {
    using packets = typename Session::packets;
    using lane_group = typename packets::lane_group;
    const char* slot = session.slot_of(end);
    const wait_site wait = session.wait_of(operation::fifo_receive, end).until(end.step + 1);
    status outcome = status::success;
    packets::join();
    poll<1, lane_group>(
        session.home_, limit, [&] { return label_of(session.home_, wait, limit, end.step); },
        [&] { return !lane_group::any(packets::is_missing(packets::load(slot, at), end.flag())); },
        [&](status failure) {
          outcome = failure;
          if (failure != status::timeout) report(session.home_, failure, wait, end.step);
        });
    return outcome;
  }
};

}  // namespace devcomm::detail
