#include "base/stack.hpp"

#include "base/sanitizer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <vector>

namespace devcomm::simulator::detail {
namespace {

constexpr uint64_t pattern = 0x5ca1ab1e0ddba11du;

/// Stacks that blocks have left, for the next ones: fresh memory costs a fault for each page. Guarded by the engine's
/// lock.
struct free_set {
  char* base;
  uint32_t stacks;
  size_t bytes;
};
constexpr size_t max_bytes_kept = size_t{1} << 30;  // of address space; stacks use few of their pages
std::vector<free_set>& free_sets() {
  static auto& only = *new std::vector<free_set>;
  return only;
}
constinit size_t bytes_kept = 0;

char* take_free(uint32_t stacks, size_t bytes) {
  auto& sets = free_sets();
  const auto same = [&](const free_set& s) { return s.stacks == stacks && s.bytes == bytes; };
  const auto found = std::find_if(sets.rbegin(), sets.rend(), same);
  if (found == sets.rend()) return nullptr;
  char* const base = found->base;
  sets.erase(std::next(found).base());
  bytes_kept -= bytes * stacks;
  return base;
}

/// Tops lie at different offsets in their pages; at one offset, all would share a few cache sets.
constexpr size_t stagger(uint32_t i) { return (i % 16) * 64; }

char* map_stacks(size_t guard, size_t bytes) {
  void* const memory =
      mmap(nullptr, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard, PROT_NONE);
  return static_cast<char*>(memory);
}

}  // namespace

void stack_set::allocate(uint32_t stacks, size_t bytes) {
  stacks_ = stacks;
  bytes_ = bytes;
  base_ = take_free(stacks, bytes);
  if (base_ == nullptr) base_ = map_stacks(guard, bytes * stacks);
  for (uint32_t i = 0; i < stacks; ++i) {
    canary(i)[0] = pattern;
    canary(i)[1] = pattern ^ i;
  }
}

void stack_set::release() {
  if (base_ == nullptr) return;
  // Abandoned fibers leave frames that AddressSanitizer takes to be alive.
  sanitizer::unpoison(base_ + guard, bytes_ * stacks_);
  // To ThreadSanitizer, only memory that is unmapped and mapped again is new.
  if (!sanitizer::thread() && bytes_kept + bytes_ * stacks_ <= max_bytes_kept) {
    free_sets().push_back({base_, stacks_, bytes_});
    bytes_kept += bytes_ * stacks_;
  } else {
    munmap(base_, guard + bytes_ * stacks_);
  }
  base_ = nullptr;
}

uint64_t* stack_set::canary(uint32_t i) const {
  return reinterpret_cast<uint64_t*>(bottom(i) + bytes_ - 16 - stagger(i));
}

char* stack_set::top(uint32_t i) const { return reinterpret_cast<char*>(canary(i)); }

bool stack_set::intact(uint32_t i) const {
  if (i == 0) return true;
  const uint64_t* below = canary(i - 1);
  return below[0] == pattern && below[1] == (pattern ^ (i - 1));
}

}  // namespace devcomm::simulator::detail
