#include "runtime/host_port.hpp"

#include "base/sanitizer.hpp"
#include "runtime/simulation.hpp"

#include <cuda_runtime_api.h>

namespace devcomm::simulator::detail::host_port {
namespace {

class device_idle final : public condition {
 public:
  explicit device_idle(int device) : device_(device) {}
  bool holds() override { return the_engine().unfinished_of_device[device_] == 0; }

 private:
  int device_;
};

}  // namespace

int device_count() {
  const engine_guard hold;
  return the_engine().config.devices;
}

bool devices_are_named() {
  const engine_guard hold;
  return the_engine().config.named_devices;
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

void add_pinned_range(int device, void* base, std::size_t bytes) {
  const engine_guard hold;
  detail::add_pinned_range(device, base, bytes);
}

void remove_range(void* base) {
  const engine_guard hold;
  detail::remove_range(base);
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

bool has_multicast() {
  const engine_guard hold;
  return the_engine().config.multicast != multicast_kind::none;
}

bool reach_each_other(int a, int b) {
  const engine_guard hold;
  return the_engine().config.peers.joins(a, b);
}

void add_physical_mapping(std::uint64_t memory, char* base, std::size_t bytes) {
  const engine_guard hold;
  detail::add_physical_mapping(memory, base, bytes);
}

void remove_physical_mapping(char* base) {
  const engine_guard hold;
  detail::remove_physical_mapping(base);
}

void add_multicast_range(char* base, std::size_t bytes, multicast_state* state) {
  const engine_guard hold;
  detail::add_multicast_range(base, bytes, state);
}

void remove_multicast_range(char* base) {
  const engine_guard hold;
  detail::remove_multicast_range(base);
}

void note_shared_memory() {
  const engine_guard hold;
  engine& e = the_engine();
  if (e.shared_with_processes) return;
  e.shared_with_processes = true;
  sanitizer::set_store_delay(0, 0, nullptr);  // other processes would see them come and go
  e.real_offset = e.now - real_time();        // wraps; the sum does again
}

void begin_observing() {
  const engine_guard hold;
  the_engine().observers.push_back(syscall(SYS_gettid));
}

void end_observing() {
  const engine_guard hold;
  std::erase(the_engine().observers, syscall(SYS_gettid));
}

void begin_waiting_for_ranks() {
  const engine_guard hold;
  the_engine().awaiting_ranks.push_back(syscall(SYS_gettid));
}

void end_waiting_for_ranks() {
  const engine_guard hold;
  std::erase(the_engine().awaiting_ranks, syscall(SYS_gettid));
}

bool wait_until_idle(int device, std::chrono::milliseconds limit) {
  constexpr uint64_t steps_at_once = 1000;
  device_idle idle(device);
  const auto end = std::chrono::steady_clock::now() + limit;
  const engine_guard hold;
  while (!idle.holds() && std::chrono::steady_clock::now() < end) the_engine().host_wait_steps(idle, steps_at_once);
  return idle.holds();
}

std::string kernel_failure(int device) {
  const engine_guard hold;
  const auto broken = the_engine().faults.find(device);
  if (broken == the_engine().faults.end()) return {};
  broken->second.returned = true;
  return std::string(cudaGetErrorName(static_cast<cudaError_t>(broken->second.error))) + ": " + broken->second.text;
}

bool kernels_run() { return __atomic_load_n(&the_engine().grid_count, __ATOMIC_RELAXED) != 0; }

}  // namespace devcomm::simulator::detail::host_port
