#include "gpu/memory_names.hpp"

#include "base/sanitizer.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>

namespace devcomm::simulator::detail {
namespace {

using host::detail::window_part;

struct named {
  window_part part;
  std::string name;
  int holders = 0;  ///< local ranks

  [[nodiscard]] std::string owner() const { return name + " of rank " + std::to_string(part.rank); }
};

/// By address; all ranks of a process reach a window's part at one.
std::map<const char*, named>& live() {
  static auto& only = *new std::map<const char*, named>;
  return only;
}

/// The latest that were freed.
std::deque<named>& freed() {
  static auto& only = *new std::deque<named>;
  return only;
}
constexpr size_t freed_kept = 64;
constexpr ptrdiff_t near = 4096;  // bytes that still seem to be meant for a window

constexpr ptrdiff_t far = ptrdiff_t{2} << 30;
constexpr std::size_t page_bytes = 4096;

/// Where `at` is in the part, or up to `around` before or behind it; empty when it is not.
std::string describe_within(const named& n, const char* at, const char* fate, ptrdiff_t around = near) {
  const window_part& part = n.part;
  const ptrdiff_t offset = at - part.base;
  const auto bytes = static_cast<ptrdiff_t>(part.bytes);
  const std::string size = std::to_string(part.bytes);
  if (offset >= 0 && offset < bytes) {
    return "byte " + std::to_string(offset) + " of the " + size + " of " + n.owner() + fate;
  }
  if (offset < 0 && offset >= -around) {
    return std::to_string(-offset) + " bytes before " + n.owner() + fate + ", which has " + size + " bytes";
  }
  if (offset >= bytes && offset < static_cast<ptrdiff_t>(part.capacity) + around) {
    return std::to_string(offset - bytes) + " bytes past the end of " + n.owner() + fate + ", which has " + size +
           " bytes";
  }
  return {};
}

}  // namespace

void name_memory(const std::string& name, const window_part& part) {
  named& entry = live()[part.base];
  if (entry.holders++ > 0) return;
  entry.part = part;
  entry.name = name;
  sanitizer::poison(part.base + part.bytes, part.capacity - part.bytes);
  sanitizer::name(part.base, part.bytes, entry.owner().c_str());
}

void forget_memory_name(const char* base) {
  const auto found = live().find(base);
  named& entry = found->second;
  if (--entry.holders > 0) return;
  sanitizer::unpoison(base, entry.part.capacity);
  sanitizer::name(base, entry.part.bytes, nullptr);
  freed().push_back(entry);
  if (freed().size() > freed_kept) freed().pop_front();
  live().erase(found);
}

std::string describe_in_window(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  const auto next = live().upper_bound(at);
  // What lies between two parts belongs to the first.
  if (next != live().begin()) {
    std::string text = describe_within(std::prev(next)->second, at, "");
    if (!text.empty()) return text;
  }
  if (next != live().end()) {
    std::string text = describe_within(next->second, at, "");
    if (!text.empty()) return text;
  }
  for (auto old = freed().rbegin(); old != freed().rend(); ++old) {
    std::string text = describe_within(*old, at, ", freed");
    if (!text.empty()) return text;
  }
  return {};
}

std::size_t empty_after_part(int parts) {
  // Of all parts together; ThreadSanitizer leaves programs little address space.
  const std::size_t all = sanitizer::thread() ? std::size_t{1} << 30 : std::size_t{32} << 30;
  return std::min<std::size_t>(all / static_cast<std::size_t>(parts), far) / page_bytes * page_bytes;
}

std::size_t empty_before_parts() { return sanitizer::thread() ? page_bytes : static_cast<std::size_t>(far); }

std::string describe_far_from_window(const void* address) {
  std::string text = describe_in_window(address);
  if (!text.empty()) return text;
  const auto* const at = static_cast<const char*>(address);
  const auto next = live().upper_bound(at);
  const named* const before = next == live().begin() ? nullptr : &std::prev(next)->second;
  const named* const after = next == live().end() ? nullptr : &next->second;
  // Between two parts it is the nearer one that was meant.
  const bool nearer_to_next =
      before == nullptr || (after != nullptr && after->part.base - at < at - (before->part.base + before->part.bytes));
  for (const named* const each : {nearer_to_next ? after : before, nearer_to_next ? before : after}) {
    if (each != nullptr && text.empty()) text = describe_within(*each, at, "", far);
  }
  return text;
}

}  // namespace devcomm::simulator::detail
