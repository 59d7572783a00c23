/// \file window_mapping.hpp
/// A window's address space in one process, shared by the process's ranks.
#pragma once

#include "device/backend.hpp"
#include "memory/window_multicast.hpp"

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace devcomm::host::detail {

/// A reservation with one slot per LSA member at a constant stride. Each slot is mapped once, for all devices of this
/// process, so a byte has the same address for every local rank. Shared by the local ranks; keeps the memory of all
/// members until the last of them releases it.
class window_mapping {
 public:
  explicit window_mapping(int lsa_size);

  /// Hands over the memory of a local member. `device` gets access to all slots.
  void place(int member, std::shared_ptr<physical_memory> memory, int device);

  /// Gets the memory of member `member`, which lives in another process.
  using import_function = std::function<std::shared_ptr<physical_memory>(int member)>;

  /// Maps all slots once: the first local rank to call does it, the others wait for it and get its error, if any.
  /// *Requires* `place` of every local member.
  void map(memory_port& devices, memory_place place, std::size_t stride, const import_function& import);

  /// Binds the memory of a local member to the window's multicast object.
  void bind_multicast(int member, int device, std::size_t bytes);
  /// The multicast address, for all devices of this process.
  [[nodiscard]] char* map_multicast(memory_port& devices, std::size_t bytes, std::size_t granularity);
  /// The window's multicast object, where it has one.
  [[nodiscard]] window_multicast& multicast() noexcept { return multicast_; }

  /// Slot of LSA member 0. *Requires* `map`.
  [[nodiscard]] char* base() const noexcept { return range_->base(); }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<physical_memory>> members_;
  std::vector<int> devices_;
  std::exception_ptr failure_;
  std::unique_ptr<address_range> range_;  // destroyed before the memory, which must outlive its mapping
  window_multicast multicast_;            // destroyed first: the memory must outlive its bindings
};

}  // namespace devcomm::host::detail
