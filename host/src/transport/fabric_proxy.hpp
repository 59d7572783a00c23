/// \file fabric_proxy.hpp
/// The proxy of ranks that are processes: a thread that carries operations over a fabric.
#pragma once

#include <devcomm/requirements.hpp>

#include "device/backend.hpp"
#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_engine.hpp"
#include "transport/network_proxy.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace devcomm::host::detail {

class fabric_proxy final : public network_proxy {
 public:
  struct settings {
    int rank;
    int device;
    network_request asked;
    std::chrono::milliseconds limit;               ///< for an operation, from its latest progress on
    std::function<void(const std::string&)> fail;  ///< as that of `fabric_engine`
    bool on_device;                                ///< whether there are windows that threads of the host do not reach
    bool fabric_reaches;                           ///< them
    std::function<bool()> ended;  ///< whether the kernels' waits have ended: nobody waits for what is left
  };

  fabric_proxy(backend& devices, settings given, std::shared_ptr<window_table> windows,
               std::unique_ptr<fabric> reached);
  /// Returns although the fabric may not: then the thread is left to itself, with all that it uses.
  ~fabric_proxy() override;
  fabric_proxy(const fabric_proxy&) = delete;
  fabric_proxy& operator=(const fabric_proxy&) = delete;

  /// For the other ranks, before they `connect`.
  [[nodiscard]] fabric_engine::card own_card() const;
  void connect(const std::vector<fabric_engine::card>& cards);

  [[nodiscard]] gin::context_record record(std::uint32_t index) const override;
  void start() override;
  void abandon() noexcept override;

 private:
  class worker;

  void join() noexcept;

  std::shared_ptr<worker> worker_;  // the thread's, too
  std::thread thread_;
};

}  // namespace devcomm::host::detail
