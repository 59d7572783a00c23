/// \file message_buffers.hpp
/// Buffers of messages that the fabric sends.
#pragma once

#include "transport/fabric.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace devcomm::host::detail {

/// `Sent` is what is known of the message in a buffer.
template <class Sent>
class message_buffers {
 public:
  /// `bytes` of each: a message, and room for what it carries.
  message_buffers(std::size_t count, std::size_t bytes) : sent_(count), bytes_each_(bytes), bytes_(count * bytes) {
    for (std::size_t i = count; i > 0; --i) free_.push_back(i - 1);
  }

  void attach(fabric& reached) { region_ = reached.add_buffers(bytes_); }
  void detach() { region_.reset(); }
  [[nodiscard]] const fabric_region& region() const { return *region_; }

  [[nodiscard]] std::size_t free() const { return free_.size(); }
  [[nodiscard]] bool all_free() const { return free_.size() == sent_.size(); }
  /// The one that `take` takes next.
  [[nodiscard]] std::size_t next() const { return free_.back(); }
  void take() { free_.pop_back(); }
  void give_back(std::size_t slot) { free_.push_back(slot); }

  [[nodiscard]] Sent& operator[](std::size_t slot) { return sent_[slot]; }
  [[nodiscard]] std::span<std::byte> bytes(std::size_t slot) {
    return std::span(bytes_).subspan(slot * bytes_each_, bytes_each_);
  }

 private:
  std::vector<Sent> sent_;
  std::vector<std::size_t> free_;
  std::size_t bytes_each_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<fabric_region> region_;
};

}  // namespace devcomm::host::detail
