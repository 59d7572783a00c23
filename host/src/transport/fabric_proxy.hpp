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
#include <utility>
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
    std::vector<int> cpus;                         ///< of the thread; none: any
    std::uint32_t first_context;                   ///< what the first of `asked` is called in texts
    std::function<bool()> ended;               ///< whether the kernels' waits have ended: nobody waits for what is left
    std::function<void(int rank)> departed{};  ///< as that of `fabric_engine`
  };

  fabric_proxy(backend& devices, settings given, std::shared_ptr<window_table> windows,
               std::unique_ptr<fabric> reached);
  /// Returns although the fabric may not: then the thread is left to itself, with all that it uses.
  ~fabric_proxy() override;
  fabric_proxy(const fabric_proxy&) = delete;
  fabric_proxy& operator=(const fabric_proxy&) = delete;

  /// Nothing is posted any more: the destructor, called later, waits for less.
  void finish() noexcept;
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

/// Several of one rank, each with contexts, an endpoint and a thread of its own. The nth of a rank reaches the nth of
/// the others.
class fabric_proxies final : public network_proxy {
 public:
  /// Contexts of number `index` of `count` proxies: from which on, and how many.
  struct share {
    std::uint32_t first;
    std::uint32_t count;
  };
  [[nodiscard]] static constexpr share share_of(std::uint32_t contexts, std::uint32_t index, std::uint32_t count) {
    const std::uint32_t first = contexts * index / count;
    return {first, contexts * (index + 1) / count - first};
  }

  fabric_proxies(std::uint32_t contexts, std::vector<std::unique_ptr<fabric_proxy>> all)
      : contexts_(contexts), all_(std::move(all)) {}
  ~fabric_proxies() override {
    for (const auto& each : all_) each->finish();
  }
  fabric_proxies(const fabric_proxies&) = delete;
  fabric_proxies& operator=(const fabric_proxies&) = delete;

  [[nodiscard]] gin::context_record record(std::uint32_t index) const override {
    const auto count = static_cast<std::uint32_t>(all_.size());
    std::uint32_t which = 0;
    while (index >= share_of(contexts_, which + 1, count).first) ++which;
    return all_[which]->record(index - share_of(contexts_, which, count).first);
  }
  void start() override {
    for (const auto& each : all_) each->start();
  }
  void abandon() noexcept override {
    for (const auto& each : all_) each->abandon();
  }

 private:
  std::uint32_t contexts_;
  std::vector<std::unique_ptr<fabric_proxy>> all_;
};

}  // namespace devcomm::host::detail
