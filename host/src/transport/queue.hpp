/// \file queue.hpp
/// The proxy's end of a context's queue.
#pragma once

#include <devcomm/gin/queue.hpp>

#include "device/backend.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace devcomm::host::detail {

// Of a descriptor's words that hold two numbers.
inline std::uint32_t lower(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
inline std::uint32_t upper(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

/// An operation as it was read from a ring.
struct posted_operation {
  std::uint64_t number;
  gin::descriptor what;
  gin::descriptor_head head;
};

/// The ring and the words of one context, in host memory, and which of its operations are complete.
class network_queue {
 public:
  /// What kernels store and load goes through `words`.
  network_queue(memory_port& memory, network_port& words, int device, const network_request& asked);

  /// What kernels find at the start of the context's part of the resource window.
  [[nodiscard]] gin::context_record record() const;

  /// Whether `take` would return an operation.
  [[nodiscard]] bool has_next() const;
  /// The peer of the next operation, which there is.
  [[nodiscard]] std::uint32_t next_peer() const;
  /// The next operation; kernels may write its descriptor again.
  [[nodiscard]] posted_operation take();
  /// Number of the operation that `take` would return.
  [[nodiscard]] std::uint64_t next_number() const { return all_.next; }
  /// Operation `number`, which goes to `peer`, is complete on this rank.
  void complete(std::uint64_t number, std::uint32_t peer);

  /// Keeps ring, words and numbers. *Requires* that all that was posted is complete, then and when it is called.
  [[nodiscard]] restore_state keep();

  /// Kernels no longer write it, or never end: in the second case it is not to be freed.
  void abandon() noexcept { static_cast<void>(memory_.release()); }

  // Words of kernels, by their indices in `layout()`. Changed by one thread at a time.
  [[nodiscard]] const gin::queue_layout& layout() const { return layout_; }
  void add(std::uint32_t word, std::uint64_t value) { set(word, port_.load(words_ + word) + value); }
  void set(std::uint32_t word, std::uint64_t value) { port_.store(words_ + word, value); }

 private:
  /// Operations that have been read and are not complete, and the number after the latest that was read.
  struct outstanding {
    std::set<std::uint64_t> numbers;
    std::uint64_t next = 0;
    /// All below it are complete.
    [[nodiscard]] std::uint64_t done() const { return numbers.empty() ? next : *numbers.begin(); }
  };

  [[nodiscard]] std::size_t bytes() const {
    return depth_ * sizeof(gin::descriptor) + layout_.words() * sizeof(std::uint64_t);
  }

  network_port& port_;
  gin::queue_layout layout_;
  std::uint32_t depth_;
  std::unique_ptr<host_memory> memory_;
  gin::descriptor* ring_;
  std::uint64_t* words_;
  outstanding all_;
  std::vector<outstanding> of_peer_;
};

}  // namespace devcomm::host::detail
