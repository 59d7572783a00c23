/// \file proxy.hpp
/// Does what kernels of one rank post to the contexts of a device communicator, where all ranks are in this process.
///
/// An operation goes through steps, and the steps of different operations in any order that the contract of
/// `gin::context` allows: the source is read, which completes it on this rank; the data arrives; the signal changes. A
/// weak signal follows its own data only, a strong one also the data and the strong signals of all earlier operations
/// of its context to that peer.
#pragma once

#include <devcomm/requirements.hpp>

#include "device/backend.hpp"
#include "rank/window_table.hpp"
#include "transport/network_proxy.hpp"
#include "transport/process_network.hpp"
#include "transport/queue.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

class proxy final : public network_proxy {
 public:
  /// `fail` is told of the first operation that cannot be done, and ends the rank's waits; none is done after it.
  proxy(backend& devices, int device, int rank, const network_request& asked, std::shared_ptr<process_network> network,
        std::shared_ptr<const window_table> windows, std::function<void(const std::string&)> fail);
  /// Ends when all that was posted is done.
  ~proxy() override;
  proxy(const proxy&) = delete;
  proxy& operator=(const proxy&) = delete;

  [[nodiscard]] gin::context_record record(std::uint32_t index) const override { return queues_[index]->record(); }
  void start() override;
  void abandon() noexcept override;

 private:
  enum class stage : std::uint8_t {
    begun,     ///< read from the ring
    captured,  ///< complete on this rank; its data has not arrived
    arrived,   ///< its signal has not changed
    over,
  };
  struct flight {
    std::uint32_t context;
    posted_operation operation;
    stage at = stage::begun;
    std::vector<std::byte> data;
  };

  /// One step of one operation, whether there was any. Fails, and throws nothing, when memory is short.
  [[nodiscard]] bool step(const choose_next& choose) noexcept;
  [[nodiscard]] bool try_step(const choose_next& choose);
  [[nodiscard]] bool can_advance(const flight& one) const;
  void advance(flight& one);
  void take(std::uint32_t context);
  void capture(flight& one);
  void arrive(flight& one);
  void change_signal(flight& one);
  void complete(flight& one);
  /// Calls `use` with the memory that an operation names, which is kept until it returns; fails where there is none.
  template <class Use>
  void with_memory(const flight& one, const window_table& windows, std::uint32_t window, std::uint64_t offset,
                   const std::string& whose, const Use& use);
  /// The same of the memory on the operation's peer.
  template <class Use>
  void with_remote_memory(const flight& one, const Use& use);
  void fail(const flight& one, const std::string& why);

  static constexpr std::size_t most_in_flight = 64;  ///< of all contexts; what is posted beyond stays in the rings

  backend& devices_;
  const int rank_;
  std::vector<std::unique_ptr<network_queue>> queues_;
  std::shared_ptr<process_network> network_;
  std::shared_ptr<const window_table> windows_;
  std::function<void(const std::string&)> fail_;
  std::atomic<bool> failed_ = false;  // or abandoned: does nothing more
  std::list<flight> flights_;         // of each context in the order in which they were posted
  std::unique_ptr<companion> running_;
};

}  // namespace devcomm::host::detail
