#include "gpu/device_memory.hpp"

#include "base/sanitizer.hpp"
#include "gpu/host_accesses.hpp"
#include "gpu/memory_names.hpp"
#include "gpu/multicast.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

extern "C" __attribute__((weak)) const char* __asan_locate_address(void* address, char* name, size_t name_bytes,
                                                                   void** region, size_t* region_bytes);

namespace devcomm::simulator::detail {
namespace {

constexpr size_t page = 4096;

struct record {
  memory_kind kind;
  int device;
  size_t bytes;
  int descriptor;
  size_t mapped;  ///< with the guards; 0: noted only, not ours to count or unmap
  uint64_t number = 0;
};

std::map<char*, record>& table() {
  static auto& only = *new std::map<char*, record>;
  return only;
}

/// By device: what was taken of its memory without an address.
std::map<int, size_t>& taken() {
  static auto& only = *new std::map<int, size_t>;
  return only;
}

/// Where what an exploration's body allocates lies: the same in each execution.
struct execution_memory {
  bool on = false;
  uint64_t older = 0;  ///< the last allocation that is not the body's
  size_t next = 0;
  std::vector<std::pair<void*, size_t>> ranges;
};
execution_memory& of_execution() {
  static auto& only = *new execution_memory;
  return only;
}
uint64_t allocations = 0;

/// Addresses without access.
void* new_range(size_t mapped) {
  execution_memory& e = of_execution();
  if (e.on && e.next < e.ranges.size()) {
    if (e.ranges[e.next].second == mapped) return e.ranges[e.next++].first;
    for (size_t i = e.next; i < e.ranges.size(); ++i) munmap(e.ranges[i].first, e.ranges[i].second);
    e.ranges.resize(e.next);
  }
  void* const range = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (e.on && range != MAP_FAILED) {
    e.ranges.emplace_back(range, mapped);
    ++e.next;
  }
  return range;
}
bool is_of_execution(const record& r) { return of_execution().on && r.number > of_execution().older; }

size_t whole_pages(size_t bytes) { return (bytes + page - 1) / page * page; }

/// Programs with many allocations need many descriptors.
int make_memory_file() {
  int file = memfd_create("devcomm-device", MFD_CLOEXEC);
  if (file >= 0) return file;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return -1;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  return memfd_create("devcomm-device", MFD_CLOEXEC);
}

const std::pair<char* const, record>* find(const void* pointer) {
  auto& all = table();
  auto* const at = static_cast<char*>(const_cast<void*>(pointer));
  auto next = all.upper_bound(at);
  if (next == all.begin()) return nullptr;
  --next;
  return at < next->first + next->second.bytes ? &*next : nullptr;
}

std::string host_memory_by_sanitizer(const void* address) {
  char name[2];
  void* region = nullptr;
  size_t bytes = 0;
  const std::string_view kind = __asan_locate_address(const_cast<void*>(address), name, sizeof name, &region, &bytes);
  if (kind == "stack") return "a stack";
  // "heap-invalid" is any address that AddressSanitizer does not know, and "heap" also one close to a block.
  const auto offset =
      static_cast<uintptr_t>(reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(region));
  return kind == "heap" && offset < bytes ? "the heap" : "";
}

/// By the system's list of mappings. It names the heap of the process and the first thread's stack.
std::string host_memory_by_mapping(const void* address) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"), &std::fclose);
  char line[4352];
  while (maps != nullptr && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at < begin || at >= end) continue;
    if (std::strstr(line, "[heap]") != nullptr) return "the heap";
    return std::strstr(line, "[stack]") != nullptr ? "a stack" : "";
  }
  return "";
}

}  // namespace

void retire_range(void* range, size_t bytes) {
  constexpr size_t kept = 256;
  static auto& retired = *new std::deque<std::pair<void*, size_t>>;
  if (mmap(range, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    munmap(range, bytes);
    return;
  }
  retired.emplace_back(range, bytes);
  if (retired.size() <= kept) return;
  munmap(retired.front().first, retired.front().second);
  retired.pop_front();
}

void* allocate(memory_kind kind, int device, size_t bytes) {
  if (kind == memory_kind::device && bytes > device_memory_bytes - allocated_bytes(device)) return nullptr;
  const size_t data = whole_pages(bytes);
  const int file = make_memory_file();
  if (file < 0) return nullptr;
  if (ftruncate(file, static_cast<off_t>(data)) != 0) {
    close(file);
    return nullptr;
  }
  // Guard pages on both sides, so that accesses out of bounds fault.
  const size_t mapped = data + 2 * page;
  void* const range = new_range(mapped);
  if (range == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  auto* const base = static_cast<char*>(range) + page;
  if (mmap(base, data, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    if (!of_execution().on) munmap(range, mapped);
    close(file);
    return nullptr;
  }
  for (size_t i = 0; i < data; i += 8) *reinterpret_cast<volatile uint64_t*>(base + i) = ~uint64_t{0};
  sanitizer::poison(base + bytes, data - bytes);
  table()[base] = {kind, device, bytes, file, mapped, ++allocations};
  if (kind == memory_kind::pinned) add_host_range(base, bytes);
  sanitizer::watch(base, bytes, kind == memory_kind::pinned ? "pinned memory" : "device memory", device);
  return base;
}

bool release(memory_kind kind, void* pointer) {
  auto& all = table();
  const auto found = all.find(static_cast<char*>(pointer));
  if (found == all.end() || found->second.kind != kind || found->second.mapped == 0) return false;
  const record r = found->second;
  all.erase(found);
  if (kind == memory_kind::pinned) remove_host_range(pointer);
  remove_physical_mapping(static_cast<char*>(pointer));
  sanitizer::unpoison(pointer, whole_pages(r.bytes));
  sanitizer::forget(pointer, r.bytes);
  char* const range = static_cast<char*>(pointer) - page;
  if (is_of_execution(r)) {  // the next execution wants it
    constexpr int kept = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    static_cast<void>(mmap(range, r.mapped, PROT_NONE, kept, -1, 0));  // where it cannot, it stays as it is
  } else {
    retire_range(range, r.mapped);
  }
  close(r.descriptor);
  return true;
}

void begin_executions() {
  of_execution().on = true;
  of_execution().older = allocations;
}
void restart_execution() {
  std::vector<std::pair<char*, memory_kind>> left;
  for (const auto& [base, r] : table()) {
    if (r.mapped != 0 && is_of_execution(r)) left.emplace_back(base, r.kind);
  }
  for (const auto& [base, kind] : left) release(kind, base);
  of_execution().older = allocations;
  of_execution().next = 0;
}
void end_executions() {
  execution_memory& e = of_execution();
  for (const auto& [range, mapped] : e.ranges) {
    if (kind_of(static_cast<char*>(range) + page) == memory_kind::unknown) munmap(range, mapped);
  }
  e = {};
}

memory_kind kind_of(const void* pointer, int* device) {
  const auto* found = find(pointer);
  if (found == nullptr) return memory_kind::unknown;
  if (device != nullptr) *device = found->second.device;
  return found->second.kind;
}

std::string describe_host_memory(const void* address) {
  if (address == nullptr || kind_of(address) != memory_kind::unknown) return "";
  return sanitizer::address() && __asan_locate_address != nullptr ? host_memory_by_sanitizer(address)
                                                                  : host_memory_by_mapping(address);
}

size_t allocated_bytes(int device) {
  size_t total = taken()[device];
  for (const auto& [base, r] : table()) {
    if (r.kind == memory_kind::device && r.device == device && r.mapped != 0) total += r.bytes;
  }
  return total;
}

std::string describe_allocation(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  const auto position_in = [at](const std::pair<char* const, record>& each) -> std::string {
    const auto& [base, r] = each;
    if (r.mapped == 0) return {};
    const ptrdiff_t offset = at - base;
    const auto bytes = static_cast<ptrdiff_t>(r.bytes);
    const std::string what = std::to_string(r.bytes) + " bytes of " +
                             (r.kind == memory_kind::pinned ? "pinned memory of device " : "device ") +
                             std::to_string(r.device);
    if (offset >= 0 && offset < bytes) return "byte " + std::to_string(offset) + " of " + what;
    if (offset < 0 && offset >= -static_cast<ptrdiff_t>(page)) {
      return std::to_string(-offset) + " bytes before " + what;
    }
    const bool behind = offset >= bytes && offset < static_cast<ptrdiff_t>(whole_pages(r.bytes) + page);
    return behind ? std::to_string(offset - bytes) + " bytes past the end of " + what : std::string();
  };
  const auto next = table().upper_bound(const_cast<char*>(at));
  std::string text;
  if (next != table().begin()) text = position_in(*std::prev(next));
  if (text.empty() && next != table().end()) text = position_in(*next);
  return text;
}

std::string describe_address(const void* address) {
  std::string in_window = describe_in_window(address);
  if (!in_window.empty()) return in_window;
  char text[160];
  const auto* found = find(address);
  if (found == nullptr) {
    std::snprintf(text, sizeof text, "address %p", address);
  } else {
    std::snprintf(
        text, sizeof text, "byte %td of the %zu at %p (%s %d)", static_cast<const char*>(address) - found->first,
        found->second.bytes, static_cast<void*>(found->first),
        found->second.kind == memory_kind::pinned ? "pinned memory of device" : "device", found->second.device);
  }
  return text;
}

std::optional<allocation> find_allocation(const void* pointer) {
  const auto* found = find(pointer);
  if (found == nullptr || found->second.kind != memory_kind::device || found->second.mapped == 0) return std::nullopt;
  return allocation{found->second.device, found->first, found->second.bytes, found->second.descriptor,
                    found->second.number};
}

void add_device_range(int device, void* base, size_t bytes, const char* kind) {
  table()[static_cast<char*>(base)] = {memory_kind::device, device, bytes, -1, 0};
  sanitizer::watch(base, bytes, kind, device);
}

void add_pinned_range(int device, void* base, size_t bytes) {
  table()[static_cast<char*>(base)] = {memory_kind::pinned, device, bytes, -1, 0};
  add_host_range(base, bytes);
  sanitizer::watch(base, bytes, "pinned memory", device);
}

void remove_range(void* base) {
  const auto found = table().find(static_cast<char*>(base));
  if (found == table().end()) return;
  if (found->second.kind == memory_kind::pinned) remove_host_range(base);
  sanitizer::forget(base, found->second.bytes);
  table().erase(found);
}

bool take_device_memory(int device, size_t bytes) {
  if (bytes > device_memory_bytes - allocated_bytes(device)) return false;
  taken()[device] += bytes;
  return true;
}

void return_device_memory(int device, size_t bytes) { taken()[device] -= bytes; }

}  // namespace devcomm::simulator::detail
