#include "memory/window_mapping.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace devcomm::host::detail {

window_mapping::window_mapping(int lsa_size) : members_(static_cast<std::size_t>(lsa_size)) {}

void window_mapping::place(int member, std::shared_ptr<physical_memory> memory, int device) {
  const std::lock_guard lock(mutex_);
  members_[static_cast<std::size_t>(member)] = std::move(memory);
  if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) devices_.push_back(device);
}

void window_mapping::map(memory_port& devices, memory_place place, std::size_t stride, const import_function& import) {
  const std::lock_guard lock(mutex_);
  if (range_) return;
  if (failure_) std::rethrow_exception(failure_);
  try {
    const std::size_t bytes = stride * members_.size();
    std::unique_ptr<address_range> range =
        place == memory_place::device ? devices.reserve(bytes) : devices.reserve_pinned(bytes);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (!members_[i]) members_[i] = import(static_cast<int>(i));
      range->map(i * stride, *members_[i], devices_);
    }
    range_ = std::move(range);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void window_mapping::bind_multicast(int member, int device, std::size_t bytes) {
  physical_memory* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    memory = members_[static_cast<std::size_t>(member)].get();
  }
  multicast_.bind(device, *memory, bytes);
}

char* window_mapping::map_multicast(memory_port& devices, std::size_t bytes, std::size_t granularity) {
  const std::lock_guard lock(mutex_);
  return multicast_.map(devices, bytes, granularity, devices_);
}

}  // namespace devcomm::host::detail
