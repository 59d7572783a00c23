#include "gpu/host_accesses.hpp"

#include "base/race_port.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace devcomm::simulator::detail {
namespace {

struct range {
  uintptr_t begin;
  uintptr_t end;
};
using ranges = std::vector<range>;  // ascending

std::atomic<const ranges*> current{nullptr};
std::atomic<uint64_t> accesses{0};

constinit std::mutex mutex;  // of those who change the list

/// Publishes another list. Kernels may still be reading the one before, so all are kept; there are as many as host
/// allocations were made and freed.
void publish(ranges next) {
  static auto& all = *new std::deque<ranges>;
  all.push_back(std::move(next));
  current.store(&all.back(), std::memory_order_release);
}

ranges copy_of_current() {
  const ranges* now = current.load(std::memory_order_relaxed);
  return now == nullptr ? ranges{} : *now;
}

}  // namespace

void add_host_range(const void* base, size_t bytes) {
  const std::lock_guard hold(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(base);
  ranges next = copy_of_current();
  const auto after =
      std::upper_bound(next.begin(), next.end(), begin, [](uintptr_t at, const range& r) { return at < r.begin; });
  next.insert(after, {begin, begin + bytes});
  publish(std::move(next));
}

void remove_host_range(const void* base) {
  const std::lock_guard hold(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(base);
  ranges next = copy_of_current();
  std::erase_if(next, [&](const range& r) { return r.begin == begin; });
  publish(std::move(next));
}

bool is_host_range(const void* address) {
  const ranges* all = current.load(std::memory_order_acquire);
  if (all == nullptr) return false;
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto after =
      std::upper_bound(all->begin(), all->end(), at, [](uintptr_t a, const range& r) { return a < r.begin; });
  return after != all->begin() && at < std::prev(after)->end;
}

void count_access(const void* address) {
  if (is_host_range(address)) accesses.fetch_add(1, std::memory_order_relaxed);
}

uint64_t host_accesses() { return accesses.load(std::memory_order_relaxed); }

}  // namespace devcomm::simulator::detail
