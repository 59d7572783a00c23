#include "gpu/static_shared.hpp"

#include "gpu/code_module.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace devcomm::simulator::detail {

__thread memory_range shared_of_block{};
__thread memory_range stacks_of_block{};

std::vector<memory_span> static_shared_memory() {
  std::vector<memory_span> spans;
  spans.reserve(this_module->shared_variables.size());
  char* const anchor = this_module->parts.anchor();
  for (const shared_variable& p : this_module->shared_variables)
    spans.push_back({anchor + p.from_anchor, p.bytes, p.name.c_str()});
  return spans;
}

void note_shared_range(const char* dynamic_start, size_t dynamic_bytes) {
  std::uintptr_t first = ~std::uintptr_t{0};
  std::uintptr_t end = 0;
  const auto include = [&](const char* base, size_t bytes) {
    if (base == nullptr || bytes == 0) return;  // a launch may ask for more than its kernel has
    first = std::min(first, reinterpret_cast<std::uintptr_t>(base));
    end = std::max(end, reinterpret_cast<std::uintptr_t>(base) + bytes);
  };
  for (const memory_span& p : static_shared_memory()) include(p.base, p.bytes);
  include(dynamic_start, dynamic_bytes);
  shared_of_block = end == 0 ? memory_range{} : memory_range{first, end - first};
}

void poison_static_shared() {
  for (const memory_span& p : static_shared_memory()) {
    // A plain loop: memset would be ThreadSanitizer's.
    auto* bytes = reinterpret_cast<volatile unsigned char*>(const_cast<char*>(p.base));
    for (size_t i = 0; i < p.bytes; ++i) bytes[i] = 0xff;
  }
}

}  // namespace devcomm::simulator::detail
