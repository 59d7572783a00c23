/// \file shared_window.hpp
/// One window as the ranks of one process see it: a single reservation of address space.
#pragma once

#include "device/backend.hpp"

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace devcomm::host::detail {

/// A slot for each LSA member at a constant stride, each mapped once for all devices of this process,
/// so that a byte has exactly one address here whichever rank looks. Lives as long as a local rank
/// holds it, and keeps the memory of all members till then.
class shared_window {
 public:
  explicit shared_window(int lsa_size);

  /// Gives the memory of a local member, and the device that must reach the window with it.
  void place(int member, std::unique_ptr<physical_memory> memory, int device);

  /// Gets the memory of member `member`, which lives in another process.
  using import_function = std::function<std::unique_ptr<physical_memory>(int member)>;

  /// Maps all slots, once: the first local rank to call does it, the others wait and get its result
  /// or its error. *Requires* that every local member was placed.
  void map(memory_port& devices, std::size_t stride, const import_function& import);

  /// Slot of LSA member 0. *Requires* `map`.
  [[nodiscard]] char* base() const noexcept { return range_->base(); }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<physical_memory>> members_;
  std::vector<int> devices_;
  std::exception_ptr failure_;
  std::unique_ptr<address_range> range_;  // destroyed first: the memory must outlive its mapping
};

}  // namespace devcomm::host::detail
