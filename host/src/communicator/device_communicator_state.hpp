/// \file device_communicator_state.hpp
/// What a `device_communicator` owns.
#pragma once

#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/host/communicator.hpp>

#include "diagnostics/watched_waits.hpp"
#include "memory/window_state.hpp"

#include <memory>
#include <string>

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
  [[nodiscard]] failure_log& log() const noexcept { return *comm_.failures; }

 private:
  device_comm comm_{};
  trace_rings trace_{};
  std::shared_ptr<detail::abort_state> aborts_;
  std::unique_ptr<detail::host_memory> log_;
  std::unique_ptr<detail::watched_waits> waits_;  // null where waits are not watched
  detail::window_state resources_;
  std::unique_ptr<detail::live_objects::entry> entry_;
};

}  // namespace devcomm::host
