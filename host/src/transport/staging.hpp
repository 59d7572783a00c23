/// \file staging.hpp
/// Pinned host memory through which payload passes between device memory and the network.
#pragma once

#include "device/backend.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace devcomm::host::detail {

/// Pieces of one size, each of which is free or taken.
class staging {
 public:
  /// `shape` has the number and the size of pieces.
  staging(memory_port& memory, int device, const backend_traits& shape)
      : bytes_(shape.staged_bytes), memory_(memory.allocate_host(device, shape.staged_pieces * bytes_)) {
    for (std::size_t i = shape.staged_pieces; i > 0; --i) free_.push_back(i - 1);
  }

  [[nodiscard]] std::size_t piece_bytes() const { return bytes_; }
  [[nodiscard]] bool has_free() const { return !free_.empty(); }
  [[nodiscard]] std::size_t free() const { return free_.size(); }
  /// *Requires* a free piece.
  [[nodiscard]] std::size_t take() {
    const std::size_t taken = free_.back();
    free_.pop_back();
    return taken;
  }
  void give_back(std::size_t piece) { free_.push_back(piece); }
  [[nodiscard]] char* at(std::size_t piece) const { return static_cast<char*>(memory_->data()) + piece * bytes_; }

 private:
  std::size_t bytes_;
  std::unique_ptr<host_memory> memory_;
  std::vector<std::size_t> free_;
};

}  // namespace devcomm::host::detail
