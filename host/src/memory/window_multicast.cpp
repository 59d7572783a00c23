#include "memory/window_multicast.hpp"

#include <cstdint>
#include <utility>

namespace devcomm::host::detail {

void once::run(const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (done_) return;
  try {
    work();
    done_ = true;
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void window_multicast::open(const std::function<std::unique_ptr<multicast_object>()>& make) {
  opening_.run([&] { object_ = make(); });
}

void window_multicast::add_device(int device) {
  const std::lock_guard lock(mutex_);
  object_->add_device(device);
}

void window_multicast::bind(int device, physical_memory& memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  object_->bind(device, 0, memory, bytes);
}

char* window_multicast::map(memory_port& port, std::size_t bytes, std::size_t granularity,
                            std::span<const int> devices) {
  mapping_.run([&] {
    // A reservation may start at a multiple of memory's granularity only.
    std::unique_ptr<address_range> range = port.reserve(bytes + granularity);
    const std::size_t past = reinterpret_cast<std::uintptr_t>(range->base()) % granularity;
    const std::size_t offset = past == 0 ? 0 : granularity - past;
    range->map(offset, *object_, bytes, devices);
    address_ = range->base() + offset;
    range_ = std::move(range);
  });
  return address_;
}

}  // namespace devcomm::host::detail
