/// \file device_communicator_state.hpp
/// What a `device_communicator` owns.
#pragma once

#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/host/communicator.hpp>

#include "diagnostics/watched_waits.hpp"
#include "memory/window_state.hpp"
#include "transport/network_proxy.hpp"
#include "util/process_stamp.hpp"
#include "util/unwinding.hpp"

#include <memory>
#include <string>
#include <vector>

namespace devcomm::host {

class device_communicator::state {
 public:
  /// *Collective*.
  state(detail::rank_context& context, const std::string& call, const devcomm::requirements& needs, code_place made);
  ~state();
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  [[nodiscard]] const device_comm& get() const noexcept { return comm_; }
  [[nodiscard]] const trace_rings& trace() const noexcept { return trace_; }
  [[nodiscard]] const window& network_memory() const noexcept { return network_memory_.window; }
  [[nodiscard]] const capability& network() const noexcept { return network_; }
  [[nodiscard]] std::vector<failure_record> failures() const {
    std::vector<failure_record> records = detail::read_failures(*comm_.failures);
    aborts_->note_seen(comm_.failures, records.size());
    return records;
  }
  void check() const { aborts_->check(comm_.failures); }
  [[nodiscard]] const detail::process_stamp& made_in() const noexcept { return made_in_; }

 private:
  /// *Collective*: makes the queues that `asked` describes.
  void open_network(detail::rank_context& context, const std::string& call, const requirements& needs);
  /// *Collective*. In device memory where payload goes `straight` from and to it on all ranks.
  void allocate_network_memory(detail::rank_context& context, const std::string& call, std::uint64_t bytes,
                               bool straight);
  /// Leaves a record of FIFO steps that were sent and not received.
  void note_unreceived_steps() noexcept;
  /// An exception destroys it while kernels may use it: ends their waits, on other ranks too, and waits for those of
  /// this device. What they may still use after that is never freed.
  void abandon() noexcept;

  detail::unwinding_watch watch_;
  detail::process_stamp made_in_;
  device_comm comm_{};
  trace_rings trace_{};
  detail::backend& devices_;
  int device_;
  std::vector<int> lsa_ranks_;
  std::uint64_t number_ = 0;  ///< among the communicator's
  std::weak_ptr<detail::process_ranks> process_;
  std::shared_ptr<detail::abort_state> aborts_;
  std::unique_ptr<detail::host_memory> log_;
  std::unique_ptr<detail::watched_waits> waits_;  // null where waits are not watched
  detail::window_state resources_;
  detail::window_state network_memory_;  // no bytes where none was asked for
  capability network_{false, "no contexts of the network were asked for"};
  std::unique_ptr<detail::network_proxy> proxy_;  // null where no context was asked for
  std::unique_ptr<detail::live_objects::entry> entry_;
};

}  // namespace devcomm::host
