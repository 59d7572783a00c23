/// \file fabric_thread.hpp
/// The thread that carries the operations of a rank's device communicators over an endpoint that they share.
#pragma once

#include <devcomm/requirements.hpp>

#include "device/backend.hpp"
#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_endpoint.hpp"
#include "transport/queue.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace devcomm::host::detail {

/// Any thread may call it.
class fabric_thread {
 public:
  struct settings {
    int rank;
    int device;
    std::vector<int> cpus;  ///< of the thread; none: any
    std::uint32_t ranks;
    bool fabric_reaches;  ///< windows that threads of the host do not reach
  };
  /// What a device communicator asks for.
  struct service_settings {
    std::uint32_t number;  ///< of the device communicator, the same on all ranks
    network_request asked;
    std::uint32_t first_context;                   ///< what the first of `asked` is called in texts
    std::chrono::milliseconds limit;               ///< for an operation, from its latest progress on
    std::function<void(const std::string&)> fail;  ///< as that of `fabric_engine`
    bool on_device;                                ///< whether there are windows that threads of the host do not reach
    std::function<bool()> ended;               ///< whether the kernels' waits have ended: nobody waits for what is left
    std::function<void(int rank)> departed{};  ///< as that of `fabric_engine`
  };
  /// Contexts of one device communicator, which the thread serves.
  class service;

  fabric_thread(backend& devices, settings given, std::shared_ptr<window_table> windows,
                std::unique_ptr<fabric> reached);
  /// *Requires* that no service is left. Returns although the fabric may not: then the thread is left to itself, with
  /// all that it uses.
  ~fabric_thread();
  fabric_thread(const fabric_thread&) = delete;
  fabric_thread& operator=(const fabric_thread&) = delete;

  /// For the other ranks, before they `connect`.
  [[nodiscard]] fabric_endpoint::card own_card() const;
  // As those of `peer_table`, before the thread runs.
  [[nodiscard]] remote_address offer_table(std::size_t bytes);
  void fill_table(std::vector<std::byte> bytes);
  /// From here on the thread runs, and reaches those peers whose `cards` have addresses. Called again with the others';
  /// then the thread has to let the endpoint go within `limit`.
  void connect(const std::vector<fabric_endpoint::card>& cards, std::chrono::milliseconds limit);
  /// The table of `peer`, which has offered it at `from`, and has it. Throws `timeout_error`, and `system_error` where
  /// the peer cannot be reached.
  [[nodiscard]] std::vector<std::byte> read_table(int peer, remote_address from, std::chrono::milliseconds limit);

  /// Kernels may post from here on.
  [[nodiscard]] std::shared_ptr<service> serve(service_settings asked);
  [[nodiscard]] static const std::vector<std::unique_ptr<network_queue>>& queues_of(const service& one);
  /// Nothing is posted any more: `end`, called later, waits for less.
  static void finish(service& one) noexcept;
  /// Returns when all that was posted is done, or can no longer be done.
  void end(const std::shared_ptr<service>& one) noexcept;
  /// Kernels may use the queues for ever: ends at once, without freeing them.
  void abandon(const std::shared_ptr<service>& one) noexcept;

 private:
  class core;

  void remove(const std::shared_ptr<service>& one) noexcept;

  std::shared_ptr<core> core_;  // the thread's, too
  std::thread thread_;
};

}  // namespace devcomm::host::detail
