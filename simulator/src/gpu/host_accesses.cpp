#include "gpu/host_accesses.hpp"

#include "base/race_port.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace devcomm::simulator::detail {
namespace {

/// Room for ranges, which ascend. Kernels read it while it is changed, and read it again then: see `version`.
struct room {
  explicit room(size_t ranges) : begins(ranges), ends(ranges) {}
  std::vector<std::atomic<uintptr_t>> begins;
  std::vector<std::atomic<uintptr_t>> ends;
  std::atomic<size_t> count{0};
};

std::atomic<room*> current{nullptr};
/// Odd while the ranges are changed. Whoever reads any word of a change, by acquire, finds another version afterwards
/// than before, as each word is stored by release after the version.
std::atomic<uint64_t> version{0};
std::atomic<uint64_t> accesses{0};

constinit std::mutex mutex;  // of those who change the ranges

class change {
 public:
  change() { version.fetch_add(1, std::memory_order_relaxed); }
  ~change() { version.fetch_add(1, std::memory_order_release); }
  change(const change&) = delete;
  change& operator=(const change&) = delete;
};

uintptr_t load(const std::atomic<uintptr_t>& word) { return word.load(std::memory_order_acquire); }
void store(room& all, size_t at, uintptr_t begin, uintptr_t end) {
  all.begins[at].store(begin, std::memory_order_release);
  all.ends[at].store(end, std::memory_order_release);
}

/// How many of the first `count` ranges begin at `address` or before it.
size_t begun(const room& all, size_t count, uintptr_t address) {
  const auto first = all.begins.begin();
  return static_cast<size_t>(
      std::upper_bound(first, first + static_cast<std::ptrdiff_t>(count), address,
                       [](uintptr_t at, const std::atomic<uintptr_t>& begin) { return at < load(begin); }) -
      first);
}

/// A room for one range more than there are. Kernels may still be reading a smaller one, so all are kept: each has
/// twice the size of the one before.
room& with_space() {
  static auto& all = *new std::vector<std::unique_ptr<room>>;
  room* const now = current.load(std::memory_order_relaxed);
  const size_t count = now == nullptr ? 0 : now->count.load(std::memory_order_relaxed);
  if (now != nullptr && count < now->begins.size()) return *now;
  constexpr size_t least = 64;
  all.push_back(std::make_unique<room>(std::max(least, 2 * count)));
  room& larger = *all.back();
  for (size_t i = 0; i < count; ++i) store(larger, i, load(now->begins[i]), load(now->ends[i]));
  larger.count.store(count, std::memory_order_relaxed);
  current.store(&larger, std::memory_order_release);
  return larger;
}

}  // namespace

void add_host_range(const void* base, size_t bytes) {
  const std::lock_guard hold(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(base);
  room& all = with_space();
  const size_t count = all.count.load(std::memory_order_relaxed);
  const size_t at = begun(all, count, begin);
  const change now;
  for (size_t i = count; i > at; --i) store(all, i, load(all.begins[i - 1]), load(all.ends[i - 1]));
  store(all, at, begin, begin + bytes);
  all.count.store(count + 1, std::memory_order_release);
}

void remove_host_range(const void* base) {
  const std::lock_guard hold(mutex);
  room* const all = current.load(std::memory_order_relaxed);
  if (all == nullptr) return;
  const auto begin = reinterpret_cast<uintptr_t>(base);
  const size_t count = all->count.load(std::memory_order_relaxed);
  const size_t after = begun(*all, count, begin);
  if (after == 0 || load(all->begins[after - 1]) != begin) return;
  const change now;
  for (size_t i = after; i < count; ++i) store(*all, i - 1, load(all->begins[i]), load(all->ends[i]));
  all->count.store(count - 1, std::memory_order_release);
}

bool is_host_range(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (;; std::this_thread::yield()) {
    const uint64_t before = version.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    const room* const all = current.load(std::memory_order_acquire);
    if (all == nullptr) return false;
    const size_t after = begun(*all, all->count.load(std::memory_order_acquire), at);
    const bool is_inside = after != 0 && at < load(all->ends[after - 1]);
    if (version.load(std::memory_order_relaxed) == before) return is_inside;
  }
}

void count_access(const void* address) {
  if (is_host_range(address)) accesses.fetch_add(1, std::memory_order_relaxed);
}

uint64_t host_accesses() { return accesses.load(std::memory_order_relaxed); }

}  // namespace devcomm::simulator::detail
