/// \file message_table.hpp
/// Lists of messages in memory that kernels read. Host code; needs the CUDA runtime's headers or the simulator's.
#pragma once

#include <devcomm/channel/detail/table_memory.hpp>
#include <devcomm/channel/messages.hpp>
#include <devcomm/launch.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace devcomm::channel {

/// A list of messages, and the windows that it names, in device memory. Assigned to between launches. Made once, before
/// kernels wait for this rank, as an allocation may wait for them. Destruction waits for none: the memory is freed in
/// the order of the thread's `cudaStreamPerThread`, so no kernel of another stream may read it any more.
class message_table {
 public:
  /// With room for this many messages and windows.
  message_table(uint32_t messages, uint32_t windows) : messages_(messages), windows_(windows), memory_(bytes()) {
    // Before the first `assign` the list is empty.
    memory_.put(0, &list_, sizeof list_, cudaStreamPerThread);
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "message_table");
  }
  message_table(const message_table&) = delete;
  message_table& operator=(const message_table&) = delete;

  /// Copies the list there, in the order of the stream, and waits until it is there; kernels that come later in the
  /// stream see it. Graphs that were captured with `on_device()` move what was assigned last, however long it is; those
  /// that were captured with `list()` keep its two counts. Throws `std::length_error` where it is too long.
  void assign(const std::vector<message>& messages, const std::vector<window>& windows, cudaStream_t stream) {
    if (messages.size() > messages_ || windows.size() > windows_)
      throw std::length_error("message_table::assign: " + std::to_string(messages.size()) + " messages and " +
                              std::to_string(windows.size()) + " windows, where there is room for " +
                              std::to_string(messages_) + " and " + std::to_string(windows_) + ": make a larger table");
    list_ = {reinterpret_cast<const message*>(memory_.data() + messages_at()), static_cast<uint32_t>(messages.size()),
             static_cast<uint32_t>(windows.size()), reinterpret_cast<const window*>(memory_.data() + windows_at())};
    memory_.put(0, &list_, sizeof list_, stream);
    memory_.put(messages_at(), messages.data(), messages.size() * sizeof(message), stream);
    memory_.put(windows_at(), windows.data(), windows.size() * sizeof(window), stream);
    check_cuda(cudaStreamSynchronize(stream), "message_table::assign");
  }

  /// For the kernel.
  [[nodiscard]] const message_list& list() const& { return list_; }
  const message_list& list() && = delete;
  /// The same in memory of the device.
  [[nodiscard]] const message_list* on_device() const& { return reinterpret_cast<const message_list*>(memory_.data()); }
  const message_list* on_device() && = delete;

 private:
  // The list itself, its messages, its windows.
  [[nodiscard]] static std::size_t messages_at() { return sizeof(message_list); }
  [[nodiscard]] std::size_t windows_at() const { return messages_at() + messages_ * sizeof(message); }
  [[nodiscard]] std::size_t bytes() const { return windows_at() + windows_ * sizeof(window); }

  std::size_t messages_;
  std::size_t windows_;
  detail::table_memory memory_;
  message_list list_{};
};

}  // namespace devcomm::channel
