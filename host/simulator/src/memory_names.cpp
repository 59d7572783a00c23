#include "memory_names.hpp"

#include "block.hpp"
#include "engine.hpp"
#include "failure.hpp"
#include "memory.hpp"
#include "shared_memory.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <vector>

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

class label final : public host::detail::memory_label {
 public:
  label(const std::string& name, std::span<const window_part> parts) {
    const engine_guard hold;
    for (const window_part& part : parts) {
      named& entry = live()[part.base];
      bases_.push_back(part.base);
      if (entry.holders++ > 0) continue;
      entry.part = part;
      entry.name = name;
      sanitizer::poison(part.base + part.bytes, part.capacity - part.bytes);
      sanitizer::name(part.base, part.bytes, entry.owner().c_str());
    }
  }
  ~label() override {
    const engine_guard hold;
    for (const char* base : bases_) {
      const auto found = live().find(base);
      named& entry = found->second;
      if (--entry.holders > 0) continue;
      sanitizer::unpoison(base, entry.part.capacity);
      sanitizer::name(base, entry.part.bytes, nullptr);
      freed().push_back(entry);
      if (freed().size() > freed_kept) freed().pop_front();
      live().erase(found);
    }
  }
  label(const label&) = delete;
  label& operator=(const label&) = delete;

 private:
  std::vector<const char*> bases_;
};

/// Where `at` is in or near the part; empty when it is not.
std::string describe_within(const named& n, const char* at, const char* fate) {
  const window_part& part = n.part;
  const ptrdiff_t place = at - part.base;
  const auto bytes = static_cast<ptrdiff_t>(part.bytes);
  const std::string size = std::to_string(part.bytes);
  if (place >= 0 && place < bytes) {
    return "byte " + std::to_string(place) + " of the " + size + " of " + n.owner() + fate;
  }
  if (place < 0 && place >= -near) {
    return std::to_string(-place) + " bytes before " + n.owner() + fate + ", which has " + size + " bytes";
  }
  if (place >= bytes && place < static_cast<ptrdiff_t>(part.capacity) + near) {
    return std::to_string(place - bytes) + " bytes past the end of " + n.owner() + fate + ", which has " + size +
           " bytes";
  }
  return {};
}

/// The address that a report of AddressSanitizer is about.
const void* address_in(const char* report) {
  const char* const at = std::strstr(report, "address 0x");
  return at == nullptr ? nullptr : reinterpret_cast<const void*>(std::strtoull(at + 8, nullptr, 16));
}

/// Follows each report; on the thread that made the access, so that in a kernel the baton is here.
void explain(const char* report) {
  const void* const address = address_in(report);
  if (address == nullptr) return;
  std::string where = describe_in_window(address);
  if (where.empty()) where = describe_allocation(address);
  if (where.empty() && this_block != nullptr) where = shared_memory::describe(address);
  if (where.empty()) return;
  const std::string who = this_fiber != nullptr ? describe_thread(*this_fiber) : "a thread of the host";
  std::fprintf(stderr, "devcomm simulator: %p is %s; accessed by %s (seed %" PRIu64 ")\n", address, where.c_str(),
               who.c_str(), the_engine().config.seed);
}

}  // namespace

std::unique_ptr<host::detail::memory_label> label_memory(const std::string& name, std::span<const window_part> parts) {
  return std::make_unique<label>(name, parts);
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

void explain_address_reports() {
  if (sanitizer::address()) __asan_set_error_report_callback(&explain);
}

}  // namespace devcomm::simulator::detail
