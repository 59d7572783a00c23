#include "gpu/multicast.hpp"

#include "gpu/memory_names.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <map>
#include <string_view>

namespace devcomm::simulator::detail {
namespace {

struct mapping {
  uint64_t memory;
  size_t bytes;
};

/// What is bound there, as this process reaches it, as of so many changes.
struct range {
  size_t bytes;
  multicast_state* state;
  uint64_t changes = ~uint64_t{0};
  uint64_t mappings = 0;
  std::vector<multicast_binding> bindings;
  std::vector<char*> bases;  ///< of the memory of each; null where this process has none
};

std::map<char*, mapping>& physical() {
  static auto& only = *new std::map<char*, mapping>;
  return only;
}
std::map<char*, range>& ranges() {
  static auto& only = *new std::map<char*, range>;
  return only;
}
uint64_t mapping_changes = 0;

std::pair<char* const, range>* range_of(const void* address) {
  auto* const at = static_cast<char*>(const_cast<void*>(address));
  const auto next = ranges().upper_bound(at);
  if (next == ranges().begin()) return nullptr;
  auto& found = *std::prev(next);
  return at < found.first + found.second.bytes ? &found : nullptr;
}

char* base_of(uint64_t memory) {
  const auto same = [memory](const auto& each) { return each.second.memory == memory; };
  const auto found = std::find_if(physical().begin(), physical().end(), same);
  return found == physical().end() ? nullptr : found->first;
}

/// Whether a process has ended, also where its parent has not waited for it yet. Its number may be in use again: then
/// whoever asks waits for that process as well.
bool has_ended(uint32_t process) {
  if (::kill(static_cast<pid_t>(process), 0) != 0) return errno == ESRCH;
  const std::string name = "/proc/" + std::to_string(process) + "/stat";
  const int file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT;
  char text[512];
  const ssize_t length = ::read(file, text, sizeof text);
  ::close(file);
  if (length <= 0) return true;
  const std::string_view stat(text, static_cast<size_t>(length));
  const size_t state = stat.rfind(')') + 2;  // after the program's name
  return state < stat.size() && (stat[state] == 'Z' || stat[state] == 'X');
}

void renew(range& r) {
  const multicast_lock hold(*r.state);
  if (r.changes == r.state->changes && r.mappings == mapping_changes) return;
  r.changes = r.state->changes;
  r.mappings = mapping_changes;
  r.bindings.assign(r.state->bindings, r.state->bindings + r.state->bound);
  r.bases.clear();
  for (const multicast_binding& b : r.bindings) r.bases.push_back(base_of(b.memory));
}

}  // namespace

multicast_lock::multicast_lock(multicast_state& state) : state_(state) {
  constexpr unsigned polls_between_checks = 1000;
  const auto self = static_cast<uint32_t>(::getpid());
  for (unsigned polls = 1;; ++polls) {
    uint32_t holder = 0;
    if (__atomic_compare_exchange_n(&state_.lock, &holder, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    if (polls % polls_between_checks == 0 && holder != self && has_ended(holder) &&
        __atomic_compare_exchange_n(&state_.lock, &holder, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return;
    sched_yield();
  }
}
multicast_lock::~multicast_lock() { __atomic_store_n(&state_.lock, 0, __ATOMIC_RELEASE); }

void add_physical_mapping(uint64_t memory, char* base, size_t bytes) {
  physical()[base] = {memory, bytes};
  ++mapping_changes;
}
void remove_physical_mapping(char* base) {
  physical().erase(base);
  ++mapping_changes;
}

void add_multicast_range(char* base, size_t bytes, multicast_state* state) {
  range r;
  r.bytes = bytes;
  r.state = state;
  ranges()[base] = std::move(r);
}
void remove_multicast_range(char* base) { ranges().erase(base); }

multicast_place find_multicast(const void* address, size_t bytes) {
  multicast_place place;
  auto* const found = range_of(address);
  if (found == nullptr) return place;
  range& r = found->second;
  renew(r);
  place.found = true;
  place.members = r.state->members;
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(address) - found->first);
  std::vector<uint64_t> bound;
  for (size_t i = 0; i < r.bindings.size(); ++i) {
    const multicast_binding& b = r.bindings[i];
    if (offset < b.offset || offset + bytes > b.offset + b.bytes) continue;
    ++place.bound;
    if (r.bases[i] != nullptr) place.at.push_back(r.bases[i] + (offset - b.offset));
  }
  // A window's slots ascend with the ranks.
  std::sort(place.at.begin(), place.at.end());
  return place;
}

std::string describe_multicast(const void* address) {
  const multicast_place place = find_multicast(address, 1);
  if (!place.found) return {};
  const std::string member = place.at.empty() ? std::string() : describe_in_window(place.at.front());
  if (!member.empty()) return "the multicast address of " + member;
  return "a multicast address of " + std::to_string(place.members) + " members";
}

}  // namespace devcomm::simulator::detail
