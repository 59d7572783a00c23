#include "runtime/host_port.hpp"

#include "base/sanitizer.hpp"
#include "runtime/simulation.hpp"

namespace devcomm::simulator::detail::host_port {

int device_count() {
  const engine_guard hold;
  return the_engine().config.devices;
}

int multiprocessors() {
  const engine_guard hold;
  return the_engine().config.multiprocessors;
}

void name_rank_of_device(int device, int rank) {
  const engine_guard hold;
  the_engine().ranks_of_device[device].insert(rank);
  if (sanitizer::exact()) sanitizer::exact_port().name_rank(device, rank);
}

std::optional<allocation> find_allocation(const void* pointer) {
  const engine_guard hold;
  return detail::find_allocation(pointer);
}

void add_device_range(int device, void* base, std::size_t bytes) {
  const engine_guard hold;
  detail::add_device_range(device, base, bytes);
}

void remove_device_range(void* base) {
  const engine_guard hold;
  detail::remove_device_range(base);
}

void retire_range(void* range, std::size_t bytes) {
  const engine_guard hold;
  detail::retire_range(range, bytes);
}

bool take_device_memory(int device, std::size_t bytes) {
  const engine_guard hold;
  return detail::take_device_memory(device, bytes);
}

void return_device_memory(int device, std::size_t bytes) {
  const engine_guard hold;
  detail::return_device_memory(device, bytes);
}

void note_shared_memory() {
  const engine_guard hold;
  engine& e = the_engine();
  if (e.shared_with_processes) return;
  e.shared_with_processes = true;
  sanitizer::set_store_delay(0, 0, nullptr);  // other processes would see them come and go
  e.real_offset = e.now - real_time();        // wraps; the sum does again
}

void begin_looking_on() {
  const engine_guard hold;
  the_engine().observers.push_back(syscall(SYS_gettid));
}

void end_looking_on() {
  const engine_guard hold;
  std::erase(the_engine().observers, syscall(SYS_gettid));
}

bool kernels_run() { return __atomic_load_n(&the_engine().grid_count, __ATOMIC_RELAXED) != 0; }

}  // namespace devcomm::simulator::detail::host_port
