/// \file plain_words.hpp
/// The words and descriptors of queues as a thread of the host reaches them.
#pragma once

#include "device/backend.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace devcomm::host::detail {

/// For a proxy with a thread of its own. Host memory that kernels use is reached by ordinary atomic accesses.
class plain_words final : public network_port {
 public:
  void fetch(void* own, const void* shared, std::size_t bytes) override { std::memcpy(own, shared, bytes); }
  void deliver(void* shared, const void* own, std::size_t bytes) override { std::memcpy(shared, own, bytes); }
  [[nodiscard]] std::uint64_t load(const std::uint64_t* word) override {
    return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
  }
  void store(std::uint64_t* word, std::uint64_t value) override {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
};

}  // namespace devcomm::host::detail
