/// \file staging.hpp
/// Pinned host memory through which payload passes between device memory and the network.
#pragma once

#include "device/backend.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace devcomm::host::detail {

/// Bounce buffers of one size, each free or taken.
class staging {
 public:
  /// `shape` has their number and size.
  staging(memory_port& memory, int device, const backend_traits& shape)
      : bytes_(shape.bounce_buffer_bytes),
        count_(shape.bounce_buffer_count),
        memory_(memory.allocate_host(device, count_ * bytes_)) {
    for (std::size_t i = count_; i > 0; --i) free_.push_back(i - 1);
  }

  [[nodiscard]] std::size_t buffer_bytes() const { return bytes_; }
  [[nodiscard]] bool has_free() const { return !free_.empty(); }
  [[nodiscard]] std::size_t free() const { return free_.size(); }
  /// *Requires* a free buffer.
  [[nodiscard]] std::size_t take() {
    const std::size_t taken = free_.back();
    free_.pop_back();
    return taken;
  }
  void give_back(std::size_t buffer) { free_.push_back(buffer); }
  [[nodiscard]] std::span<std::byte> memory() const {
    return {static_cast<std::byte*>(memory_->data()), count_ * bytes_};
  }
  [[nodiscard]] char* at(std::size_t buffer) const { return static_cast<char*>(memory_->data()) + buffer * bytes_; }

 private:
  std::size_t bytes_;
  std::size_t count_;
  std::unique_ptr<host_memory> memory_;
  std::vector<std::size_t> free_;
};

}  // namespace devcomm::host::detail
