/// \file window_multicast.hpp
/// A window's multicast object in one process, shared by the process's ranks.
#pragma once

#include "device/backend.hpp"

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

namespace devcomm::host::detail {

/// Work that local ranks share: the first to ask does it, the others wait for it and get its error, if any.
class once {
 public:
  void run(const std::function<void()>& work);

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool done_ = false;
};

/// The multicast object of one window, and its address in this process. Between `add_device` and `bind`, and between
/// `bind` and `map`, all ranks of the LSA team synchronize: the driver blocks where a device is missing, and an access
/// would miss a member that has not bound. Destroyed before the memory that is bound to it: unmapped, unbound,
/// released.
class window_multicast {
 public:
  /// Gets the object once; `make` creates or imports it.
  void open(const std::function<std::unique_ptr<multicast_object>()>& make);
  void add_device(int device);
  void bind(int device, physical_memory& memory, std::size_t bytes);
  /// Its address for all of `devices`, mapped once.
  [[nodiscard]] char* map(memory_port& port, std::size_t bytes, std::size_t granularity, std::span<const int> devices);

  /// *Requires* `open`.
  [[nodiscard]] multicast_object& object() noexcept { return *object_; }

 private:
  once opening_;
  once mapping_;
  std::mutex mutex_;  // one call for the object at a time
  std::unique_ptr<multicast_object> object_;
  std::unique_ptr<address_range> range_;  // destroyed first
  char* address_ = nullptr;
};

}  // namespace devcomm::host::detail
