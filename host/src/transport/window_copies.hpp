/// \file window_copies.hpp
/// Copies between this rank's windows and pinned memory, and that memory: bounce buffers of this rank, bounce buffers
/// of its peers, and places for what peers' messages carry.
#pragma once

#include "device/backend.hpp"
#include "rank/window_table.hpp"
#include "transport/fabric.hpp"
#include "transport/fabric_endpoint.hpp"
#include "transport/own_memory.hpp"
#include "transport/staging.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace devcomm::host::detail {

/// A copy between a window and pinned memory.
struct window_copy {
  own_memory found;
  std::optional<std::uint64_t> number;  ///< none: it is done
  window_table::hold memory;
};

/// Where the host reaches all windows there is no copy engine, and no pinned memory: copies are done at once.
class window_copies {
 public:
  struct settings {
    memory_port* memory = nullptr;
    int device = 0;
    backend_traits shape{};
    std::unique_ptr<copy_engine> engine{};
  };
  static constexpr std::uint32_t min_inbound_bytes = 1024;  ///< of a bounce buffer, however many ranks share the memory

  /// Allocates what it needs.
  window_copies(settings given, const fabric_endpoint& at);

  /// Registers the memory.
  void attach(fabric& reached);
  /// Peers reach it no longer, and no copy is under way.
  void end();
  /// After `end`: the fabric reaches none of it.
  void detach() { own_region_.reset(); }

  [[nodiscard]] bool has_engine() const { return engine_ != nullptr; }
  [[nodiscard]] window_copy begin(std::uint32_t window, std::uint64_t offset, std::uint64_t bytes, char* pinned,
                                  bool to_window);
  [[nodiscard]] bool is_done(const window_copy& copy) const;
  // *Require* an engine, as those of `copy_engine`.
  void poll() { engine_->poll(); }
  void watch() { engine_->watch(); }

  /// This rank's bounce buffers. *Requires* an engine, once.
  [[nodiscard]] staging& own() { return *own_; }
  [[nodiscard]] const staging& own() const { return *own_; }
  [[nodiscard]] const fabric_region& own_region() const { return *own_region_; }

  // Those of peers, into which the fabric writes; none where it reaches all windows.

  [[nodiscard]] std::uint32_t inbound_count() const { return inbound_count_; }  ///< of each peer
  [[nodiscard]] std::uint32_t inbound_bytes() const { return inbound_bytes_; }  ///< of each
  [[nodiscard]] bool has_inbound(std::uint32_t slot, std::uint64_t bytes) const {
    return slot < inbound_count_ && bytes <= inbound_bytes_;
  }
  [[nodiscard]] char* inbound_at(std::size_t rank, std::uint32_t slot) const {
    return static_cast<char*>(inbound_->data()) + inbound_offset(rank, slot);
  }
  /// Where the peer finds its first.
  [[nodiscard]] remote_address inbound_of(std::size_t rank) const {
    return {inbound_region_->key(), inbound_region_->base() + inbound_offset(rank, 0)};
  }

  /// Pinned memory for what message `sequence` of `rank` carries, until it is acknowledged; null where none is needed.
  [[nodiscard]] std::byte* value_at(std::size_t rank, std::uint64_t sequence) const;

 private:
  [[nodiscard]] std::size_t inbound_offset(std::size_t rank, std::uint32_t slot) const {
    return (rank * inbound_count_ + slot) * inbound_bytes_;
  }
  [[nodiscard]] std::size_t value_bytes() const;

  const fabric_endpoint& at_;
  // Copies come to an end before the memory that they use.
  std::unique_ptr<staging> own_;
  std::unique_ptr<host_memory> inbound_;
  std::unique_ptr<host_memory> values_;
  std::unique_ptr<fabric_region> own_region_;
  std::unique_ptr<fabric_region> inbound_region_;
  std::size_t inbound_total_ = 0;  // bytes
  std::uint32_t inbound_count_ = 0;
  std::uint32_t inbound_bytes_ = 0;
  std::unique_ptr<copy_engine> engine_;
};

}  // namespace devcomm::host::detail
