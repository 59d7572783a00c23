#include "base/stack.hpp"

#include "base/sanitizer.hpp"

#include <sys/mman.h>

#include <new>

namespace devcomm::simulator::detail {
namespace {

constexpr uint64_t pattern = 0x5ca1ab1e0ddba11du;

/// Tops lie at different offsets in their pages; at one offset, all would share a few cache sets.
constexpr size_t stagger(uint32_t i) { return (i % 16) * 64; }

}  // namespace

void stack_set::allocate(uint32_t stacks, size_t bytes) {
  stacks_ = stacks;
  bytes_ = bytes;
  const size_t total = guard + bytes * stacks;
  void* memory = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<char*>(memory);
  mprotect(base_, guard, PROT_NONE);
  for (uint32_t i = 0; i < stacks; ++i) {
    canary(i)[0] = pattern;
    canary(i)[1] = pattern ^ i;
  }
}

void stack_set::release() {
  if (base_ == nullptr) return;
  // Abandoned fibers leave frames that AddressSanitizer takes to be alive.
  sanitizer::unpoison(base_ + guard, bytes_ * stacks_);
  munmap(base_, guard + bytes_ * stacks_);
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
