/// \file fifo_transport.cuh
/// How the two ends of a FIFO reach each other: what of a session depends on it.
#pragma once

#include <devcomm/channel/detail/fifo_end.cuh>
#include <devcomm/channel/fifos.hpp>
#include <devcomm/detail/poll.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/lsa/detail/members.cuh>
#include <devcomm/memory_order.hpp>
#include <devcomm/status.hpp>

namespace devcomm::detail {

/// By load and store. `network_end.cuh` has that of `protocol::network`.
template <channel::protocol Protocol>
struct fifo_transport {
  static_assert(Protocol != channel::protocol::network,
                "include <devcomm/channel/network.cuh> for channels between ranks of several hosts");
  using ends = fifo_ends<Protocol>;
  using sending = sending_end;
  using receiving = receiving_end;
  using wait_type = wait_site;
  /// Whether a count says that a step has been sent, and not its packets.
  static constexpr bool has_tail = Protocol == channel::protocol::simple;

  DEVCOMM_DEVICE static team everyone(const device_comm& comm) { return comm.lsa(); }
  DEVCOMM_DEVICE static void check_members(const team& members, const device_comm& comm) { check_team(members, comm); }

  DEVCOMM_DEVICE static wait_site wait_of(const wait_site& wait, const fifo_end&, uint32_t) { return wait; }
  template <class Other>
  DEVCOMM_DEVICE static seen_count wait_for_count(resource_header* home, const wait_site& wait, const uint32_t* word,
                                                  uint32_t step, const Other& other) {
    return detail::wait_for_count(home, wait, word, step, other);
  }
  DEVCOMM_DEVICE static status wait_within(resource_header* home, const wait_site& wait, const uint32_t* word,
                                           uint32_t step, deadline limit) {
    return wait_for_count_within(home, wait, word, step, limit);
  }

  /// Signals to the other ends that this step has been taken from `Receives` FIFOs and sent into `Sends`.
  template <int Receives, int Sends, class Session>
  DEVCOMM_DEVICE static void tell(Session& session, uint32_t) {
    session.group_.sync();
    const auto threads = static_cast<int>(session.group_.size());
    for (auto i = static_cast<int>(session.group_.thread_rank()); i < Receives + Sends; i += threads) {
      uint32_t* word = nullptr;
      uint32_t count = 0;
      if constexpr (Receives > 0) {
        DEVCOMM_UNROLL
        for (int r = 0; r < Receives; ++r) {
          if (r != i || !session.receives_from(r)) continue;
          word = session.from_[r].head;
          count = session.from_[r].step + 1;
        }
      }
      if constexpr (Sends > 0) {
        DEVCOMM_UNROLL
        for (int s = 0; s < Sends; ++s) {
          if (Receives + s != i || !session.sends_to(s)) continue;
          word = session.to_[s].tail;
          count = session.to_[s].step + 1;
        }
      }
      if (word != nullptr) arch::store<memory_order::release, scope::system>(word, count);
    }
  }

  /// What one thread does at a session's end, beside keeping `channel::fifo_counts`.
  template <class Session>
  DEVCOMM_DEVICE static void end(Session&) {}
};

}  // namespace devcomm::detail
