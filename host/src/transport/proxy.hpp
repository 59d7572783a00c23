/// \file proxy.hpp
/// Does what kernels of one rank post to the contexts of a device communicator, where all ranks are in this process.
///
/// An operation goes through steps, and the steps of different operations in any order that the contract of
/// `gin::context` allows: the source is read, which completes it on this rank; the data arrives; the signal changes. A
/// weak signal follows its own data only, a strong one also the data and the strong signals of all earlier operations
/// of its context to that peer. A fence is read and complete in one step, once all these are over.
///
/// Payload goes from window to window through bounce buffers in pinned host memory: a copy of the source's device
/// brings it there, one of the destination's takes it from there. The fragments of an operation go their ways
/// independently, many at a time, and windows are kept while a copy reaches them.
#pragma once

#include <devcomm/requirements.hpp>

#include "device/backend.hpp"
#include "rank/window_table.hpp"
#include "transport/network_proxy.hpp"
#include "transport/process_network.hpp"
#include "transport/queue.hpp"
#include "transport/staging.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

class proxy final : public network_proxy {
 public:
  /// `fail` receives the first operation that cannot be executed, and ends the rank's waits; none is done after it. All
  /// ranks of the process have a proxy before one of them starts. `resources`: the
  /// resource window.
  proxy(backend& devices, int device, int rank, const network_request& asked, std::shared_ptr<process_network> network,
        std::shared_ptr<const window_table> windows, std::vector<int> cpus, std::span<char> resources,
        std::function<void(const std::string&)> fail);
  /// Ends when all that was posted is done, or when no copy has ended for 5 s.
  ~proxy() override;
  proxy(const proxy&) = delete;
  proxy& operator=(const proxy&) = delete;

  [[nodiscard]] gin::context_record record(std::uint32_t index) const override { return queues_[index]->record(); }
  void start() override;
  void abandon() noexcept override;

 private:
  enum class stage : std::uint8_t {
    begun,     ///< read from the ring; parts of its source may have been read
    captured,  ///< its source has been read, which completes a put here; its data has not arrived
    arrived,   ///< its signal has not changed
    over,
  };
  /// A fragment of an operation's data, in a bounce buffer or on the way to or from there.
  struct part {
    enum class place : std::uint8_t { coming, there, going, gone };
    std::size_t buffer;
    std::uint64_t offset;
    std::uint64_t bytes;
    place at = place::there;
    copy_engine* copies = nullptr;  // under way
    std::uint64_t copy = 0;
    window_table::hold memory{};
  };
  struct operation {
    std::uint32_t context;
    posted_operation posted;
    stage at = stage::begun;
    std::uint64_t begun = 0;  // bytes whose way has begun
    std::uint64_t read = 0;   // bytes that were in host memory
    std::uint64_t written = 0;
    std::list<part> parts{};
  };
  /// What could be done next: the way of a part to its destination, or, where `of` is null, what the operation is at.
  struct action {
    std::list<operation>::iterator one;
    part* of;
  };

  /// One step of one operation, whether there was any or a copy is under way. Fails, and throws nothing, when memory is
  /// short.
  [[nodiscard]] bool step(const choose_next& choose) noexcept;
  [[nodiscard]] bool try_step(const choose_next& choose);
  [[nodiscard]] network_step describe(const action& next) const;
  [[nodiscard]] restore_state keep();
  /// Looks which copies are done; whether any are under way.
  [[nodiscard]] bool look_at_copies();
  /// Of copies that this rank's end waits for: whether none of them has ended for so long that none will.
  [[nodiscard]] bool gave_up_waiting();
  void list_actions(std::list<operation>::iterator one, std::vector<action>& actions);
  [[nodiscard]] bool may_follow(const operation& one) const;
  /// Of which nothing is left or, where `failed_`, begins: the operation's parts that are gone, and itself if it is
  /// over.
  void forget(std::list<operation>::iterator one);
  void advance(operation& one);
  void take(std::uint32_t context);
  /// A further part of the source on its way to host memory.
  void begin_to_read(operation& one);
  void begin_to_write(operation& one, part& what);
  /// Of a part whose copy is under way: finishes it if it is done. Whether it was.
  bool settle(operation& one, part& what);
  void change_signal(operation& one);
  void complete(operation& one);
  /// Calls `use` with the memory that an operation names, a hold on it and whether it is `on_device`; fails where there
  /// is none.
  template <class Use>
  void with_memory(const operation& one, const window_table& windows, std::uint32_t window, std::uint64_t offset,
                   const std::string& whose, const Use& use);
  /// The same of the window on this rank, or on the operation's peer, with the copies that reach it.
  template <class Use>
  void with_memory(const operation& one, bool on_peer, const Use& use);
  void fail(const operation& one, const std::string& why);

  static constexpr std::size_t max_in_flight = 64;  ///< of all contexts; what is posted beyond stays in the rings

  backend& devices_;
  const int device_;
  const int rank_;
  std::vector<std::unique_ptr<network_queue>> queues_;
  std::shared_ptr<process_network> network_;
  std::shared_ptr<const window_table> windows_;
  const std::vector<int> cpus_;
  const std::span<char> resources_;
  std::function<void(const std::string&)> fail_;
  std::atomic<bool> failed_ = false;                                    // or abandoned: does nothing more
  std::atomic<bool> closing_ = false;                                   // nothing more is posted
  std::optional<std::chrono::steady_clock::time_point> waiting_since_;  // for copies, none of which ended since
  staging bounce_buffers_;
  std::map<int, std::unique_ptr<copy_engine>> copies_;  // by device
  std::unique_ptr<copy_engine> direct_;                 // for windows that are not `on_device`
  std::list<operation> operations_;                     // of each context in the order in which they were posted
  std::unique_ptr<background_task> running_;
};

}  // namespace devcomm::host::detail
