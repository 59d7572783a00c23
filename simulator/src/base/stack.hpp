/// \file stack.hpp
/// The stacks of one block's fibers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {

/// One mapping without reserved memory: a stack takes the pages it touches. A guard page for each would
/// soon exceed the kernel's limit of mappings; instead a pattern above each stack shows when the next
/// stack has grown into it.
class stack_set {
 public:
  stack_set() = default;
  ~stack_set() { release(); }
  stack_set(const stack_set&) = delete;
  stack_set& operator=(const stack_set&) = delete;

  void allocate(uint32_t stacks, size_t bytes);
  void release();

  /// Where stack `i` starts; aligned to 16.
  [[nodiscard]] char* top(uint32_t i) const;
  [[nodiscard]] char* bottom(uint32_t i) const { return base_ + guard + bytes_ * i; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Whether stack `i` has stayed out of the memory below it.
  [[nodiscard]] bool intact(uint32_t i) const;

 private:
  static constexpr size_t guard = 65536;  // below stack 0: never accessible
  [[nodiscard]] uint64_t* canary(uint32_t i) const;

  char* base_ = nullptr;
  size_t bytes_ = 0;
  uint32_t stacks_ = 0;
};

}  // namespace devcomm::simulator::detail
