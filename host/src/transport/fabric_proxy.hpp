/// \file fabric_proxy.hpp
/// The proxy of ranks that are processes: a thread that carries operations over a fabric.
#pragma once

#include <devcomm/requirements.hpp>

#include "device/backend.hpp"
#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_engine.hpp"
#include "transport/network_proxy.hpp"
#include "transport/plain_words.hpp"
#include "transport/queue.hpp"
#include "util/process_stamp.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace devcomm::host::detail {

class fabric_proxy final : public network_proxy, private window_table::watcher {
 public:
  struct settings {
    int rank;
    int device;
    network_request asked;
    std::chrono::milliseconds limit;               ///< for an operation, from its latest progress on
    std::function<void(const std::string&)> fail;  ///< as that of `fabric_engine`
    std::function<bool()> ended;  ///< whether the kernels' waits have ended: nobody waits for what is left
  };

  fabric_proxy(memory_port& memory, settings given, std::shared_ptr<window_table> windows,
               std::unique_ptr<fabric> reached);
  ~fabric_proxy() override;
  fabric_proxy(const fabric_proxy&) = delete;
  fabric_proxy& operator=(const fabric_proxy&) = delete;

  /// For the other ranks, before they `connect`.
  [[nodiscard]] fabric_engine::card own_card() const { return engine_.own_card(); }
  void connect(const std::vector<fabric_engine::card>& cards) { engine_.connect(cards); }

  [[nodiscard]] gin::context_record record(std::uint32_t index) const override { return queues_[index]->record(); }
  void start() override;
  void abandon() noexcept override;

 private:
  enum class order : std::uint8_t { run, finish, stop };

  void run() noexcept;
  /// Does what there is to do now; whether there was anything. Sets `over` when nothing will come any more.
  [[nodiscard]] bool step(bool& over);
  void join() noexcept;
  void removed(std::uint32_t window) noexcept override;

  const settings given_;
  std::shared_ptr<window_table> windows_;
  plain_words words_;
  std::vector<std::unique_ptr<network_queue>> queues_;
  std::mutex mutex_;  // guards the engine once the thread runs
  fabric_engine engine_;
  std::atomic<int> visitors_ = 0;  // who want the engine, which the thread lets go for them
  std::atomic<order> order_ = order::run;
  std::chrono::steady_clock::time_point leaving_{};  // of the thread: since when nobody waits
  bool said_farewell_ = false;                       // likewise
  std::thread thread_;
  process_stamp made_in_;
};

}  // namespace devcomm::host::detail
