/// The text of a report.
#include "race/detector.hpp"

#include "base/environment.hpp"
#include "base/race_port.hpp"
#include "base/symbol.hpp"

#include <cxxabi.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace devcomm::simulator::race {
namespace {

using detail::function_at;
using detail::lines_of;
using detail::source_line;

std::string readable(const char* mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : mangled;
  std::free(text);
  return result;
}

/// One line for each call; the outermost, usually the kernel, last. Without the simulator's own: of a copy nothing is
/// left.
std::string lines(const record& r) {
  std::string text;
  // The address is where the call of the hook returns to.
  for (const source_line& line : lines_of(r.code() - 1)) {
    if (line.function.starts_with("devcomm::simulator::detail::")) continue;
    text += "      at " + line.location + (line.function.empty() ? "" : " in " + line.function) + "\n";
  }
  return text;
}

/// Where the user's code called what the running thread does, unless `r`, which it has done, names a user's line.
std::string caller_of(const record& r) {
  for (const source_line& line : lines_of(r.code() - 1)) {
    if (!detail::is_inside(line.location)) return {};
  }
  detail::call_stack calls;
  calls.take();
  const std::string outside = calls.outside();
  return outside.empty() ? outside : "      called at " + outside + "\n";
}

/// Whether the code is the simulator's own, or the standard library's, by which a launch's arguments are handed over.
bool is_of_runtime(uint64_t code) {
  const std::vector<source_line> lines = lines_of(code - 1);
  if (lines.empty()) return false;
  const auto is_in = [](const source_line& line, const char* file) {
    return line.location.find(file) != std::string::npos;
  };
  for (const char* own :
       {"/devcomm/simulator/detail/", "/devcomm/simulator/arch_lines.cuh", "/devcomm/simulator/arch_multimem.cuh"}) {
    if (is_in(lines.front(), own) || is_in(lines.back(), own)) return true;
  }
  return is_in(lines.back(), "/c++/");
}

const char* scope_name(reach scope) {
  return scope == reach::block ? "block" : scope == reach::device ? "device" : "system";
}

}  // namespace

std::string detector::where(const record& r) const {
  const network_operation* const operation = operation_of(r);
  if (operation == nullptr) return lines(r);
  if (operation->posted.empty()) return {};
  const std::string outside = operation->poster.outside();
  return (task_of(r).copy != nullptr ? "    issued by " : "    posted by ") + describe(operation->posted) + "\n" +
         (outside.empty() ? lines(operation->posted) : "      at " + outside + "\n");
}

const network_operation* detector::operation_of(const record& r) const {
  const auto found = operations.find(r.group);
  if (found == operations.end()) return nullptr;
  const task_facts& t = task_of(r);
  if (t.device != detail::network_device && t.copy == nullptr) return nullptr;
  const network_operation* latest = nullptr;
  for (const network_operation& each : found->second) {
    if (each.epoch <= r.epoch) latest = &each;
  }
  return latest;
}

std::string detector::what_did(const record& r) {
  const access_size& size = size_of(r.code());
  const uint64_t bytes = size.code == r.code() ? size.bytes : static_cast<uint64_t>(__builtin_popcountll(r.bytes()));
  const char* kind = r.is_atomic() ? (r.writes() ? "atomic change" : "atomic read") : (r.writes() ? "write" : "read");
  std::string text = std::string(kind) + " of " + std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  if (r.by_multicast()) text += " by a multicast address";
  if (r.is_atomic() && r.scope() < 3) text += std::string(" at scope ") + scope_name(static_cast<reach>(r.scope()));
  return text;
}

/// Which scope would have ordered the two, or made them atomic with respect to each other; empty if scopes have no
/// part in it.
std::string detector::scope_advice(const record& earlier, const record& now, const actor& by) const {
  if (overlap_in_part(earlier, now)) {
    return "  atomic accesses of different sizes are not atomic toward each other: use one size for these bytes, or order "
           "them\n";
  }
  if (earlier.is_atomic() && now.is_atomic()) {
    return std::string("  atomic accesses by these two threads need scope ") +
           scope_name(needed(place_of(earlier), place_of(now))) + ", both of them\n";
  }
  for (const missed_edge& m : missed().all()) {
    const stamp& s = m.of.what;
    const bool covers = (s.group == earlier.group && s.lane == earlier.lane() && s.epoch >= earlier.epoch) ||
                        epoch_of(s.base, earlier.group, earlier.lane()) >= earlier.epoch;
    const bool observed = (m.group == by.group && m.lane == by.lane) || epoch_of(by.known, m.group, m.lane) >= m.epoch;
    if (!covers || !observed) continue;
    const place reader{m.group, m.device};
    const record release = record::make(s.group, s.lane, s.epoch, m.of.code, 0, 0);
    const record acquire = record::make(m.group, m.lane, m.epoch, m.code, 0, 0);
    const bool too_narrow = !m.of.reaches(reader, m.scope);
    const reach need = too_narrow ? needed(m.of.by, reader) : needed(m.carrier, reader);
    const reach theirs = too_narrow ? m.of.within : m.carrier_scope;
    const char* const of = m.of.of_fence && too_narrow ? "fence" : too_narrow ? "release" : "store";
    std::string text = std::string("  scope ") + scope_name(need) +
                       " is needed where one hands over to the other: the " + of + " has scope " + scope_name(theirs) +
                       ", the " + (m.by_fence ? "fence after the load" : "load") + " scope " + scope_name(m.scope) +
                       "\n";
    if (s.group != 0) text += "    handed over by " + describe(release) + "\n" + where(release);
    text += "    to " + describe(acquire) + "\n" + where(acquire);
    return text;
  }
  return "";
}

std::string detector::name_of(int device) const {
  const auto rank = ranks.find(device);
  return rank == ranks.end() ? "device " + std::to_string(device) : "rank " + std::to_string(rank->second);
}

std::string detector::describe(uintptr_t address) const {
  char at[32];
  std::snprintf(at, sizeof at, "0x%llx", static_cast<unsigned long long>(address));
  const uintptr_t poison = end_before(address);
  const bool past_end = poison != 0 || is_behind_host_array(address);
  const auto place = [&](uintptr_t base, size_t bytes) {
    const uintptr_t offset = address - base;
    return (past_end ? std::to_string(offset - bytes) + " bytes past the end of the "
                     : "byte " + std::to_string(offset) + " of the ") +
           std::to_string(bytes) + " of ";
  };
  const auto after = names.upper_bound(address);
  if (after != names.begin()) {
    const auto& [start, window] = *std::prev(after);
    const uintptr_t end = start + window.first;
    if (address < end || (poison >= end && poison < end + 4))
      return place(start, window.first) + window.second + " (" + at + ")";
  }
  auto next = spans.upper_bound(address);
  if (next == spans.begin()) return at;
  const auto& [base, s] = *--next;
  if (address >= base + s.bytes && !past_end) return at;
  std::string text = place(base, s.bytes) + s.kind;
  if (s.device >= 0) text += " of " + name_of(s.device);
  if (*s.name != '\0') text += ", variable " + readable(s.name);
  return text + " (" + at + ")";
}

std::string detector::describe(const record& r) const {
  const group_facts& g = groups[r.group];
  const task_facts& t = task_of(r);
  if (t.copy != nullptr) return t.copy;
  if (t.device == detail::network_device) {
    const network_operation* const operation = operation_of(r);
    if (operation == nullptr) return "the network";
    const std::string peer = operation->peer < 0 ? "" : " rank " + std::to_string(operation->peer);
    return "the network, for operation " + std::to_string(operation->number) + " of context " +
           std::to_string(operation->context) +
           (peer.empty()      ? ""
            : operation->puts ? ", to" + peer
                              : ", from" + peer);
  }
  if (t.device < 0) return "a thread of the host";
  const std::string who = name_of(t.device);
  if (g.width == 0) return who + ", a copy, fill or host function of a stream";
  return who + ", block " + std::to_string(g.block) + ", thread " + std::to_string(r.lane()) + ", kernel " +
         function_at(t.kernel);
}

bool detector::is_news(code_pairs& known, const record& earlier, const record& now) {
  const uint64_t a = earlier.code();
  const uint64_t b = now.code();
  return known.insert({std::min(a, b), std::max(a, b)}).second;
}

void detector::say(const std::string& text) {
  ++reports;
  std::fputs(text.c_str(), stderr);
  last_report = text;
}

std::string detector::text_of(const record& earlier, const record& now, uintptr_t address, const char* what,
                              const char* between) {
  const uintptr_t shared_bytes = earlier.bytes() & now.bytes();
  const auto first = address / 4 * 4 + static_cast<unsigned>(__builtin_ctzll(shared_bytes));
  return std::string("devcomm simulator: ") + what + " (" + detail::how_to_repeat() + ") at " + describe(first) +
         "\n  " + what_did(now) + " by " + describe(now) + "\n" + where(now) +
         (operation_of(now) == nullptr ? caller_of(now) : "") + "  " + between + what_did(earlier) + " by " +
         describe(earlier) + "\n" + where(earlier);
}

void detector::report(const record& earlier, const record& now, const actor& by, uintptr_t address) {
  if (!is_news(reported, earlier, now)) return;
  std::string text = text_of(earlier, now, address, "data race", "not ordered with the earlier ");
  if (earlier.by_multicast() != now.by_multicast())
    text +=
        "  one of them is by a multicast address: order the two, and call multimem::fence_alias() in one of the "
        "threads; a multimem::barrier_session does both\n";
  say(text + scope_advice(earlier, now, by));
}

void detector::report_alias(const record& earlier, const record& now, uintptr_t address) {
  if (!is_news(reported_aliases, earlier, now)) return;
  say(text_of(earlier, now, address, "missing fence between two addresses of one memory", "after the earlier ") +
      "  one of them is by a multicast address: the later need not see the earlier; call "
      "multimem::fence_alias() between the two, in one of the threads, or synchronize by a multimem::barrier_session\n");
}

void detector::report_async(const record& earlier, const record& now, uintptr_t address) {
  if (!is_news(reported_aliases, earlier, now)) return;
  say(text_of(earlier, now, address, "missing fence before a bulk copy", "after the earlier ") +
      "  bulk copies use the async proxy, and need not see what threads wrote before: execute fence.proxy.async "
      "between the two, in the thread that wrote, before it tells others\n");
}

void detector::report_not_coherent(const record& earlier, const record& now, uintptr_t address, bool restricted) {
  if (!is_news(reported, earlier, now)) return;
  std::string text = "devcomm simulator: data race (" + detail::how_to_repeat() + ") at " + describe(address) + "\n";
  text += "  read of " + std::to_string(size_of(now.code()).bytes) + " bytes by " +
          (restricted ? "a const __restrict__ pointer" : "__ldg") + ", by " + describe(now) + "\n" + where(now);
  text +=
      "  written since that kernel began: " + what_did(earlier) + " by " + describe(earlier) + "\n" + where(earlier);
  say(text + (restricted
                  ? "  compilers load it by a cache that may have what was there before, whatever orders the two: "
                    "leave __restrict__ out, or read what changes by another pointer\n"
                  : "  __ldg may return what its cache has from before, whatever orders the two: use a plain load\n"));
}

void detector::end_memory(actor& by, uintptr_t base, size_t bytes) {
  if (by.group == 0) join_chain(by, task_facts());
  const record end = record::make(by.group, by.lane, by.epoch, 0, record::write, record::all_bytes);
  by.dirty = true;
  record late;
  uintptr_t of_late = 0;
  const auto look_at = [&](page& p, uintptr_t at, uintptr_t past) {
    for (; at < past && late.empty(); at += 4) {
      p.at(at).for_each([&](const record& r) {
        // What the network does in a window ends with that.
        if (late.empty() && place_of(r).device != detail::network_device && !ordered(r, by)) late = r;
      });
      of_late = at;
    }
  };
  uintptr_t past = 0;
  for (uintptr_t at = base; at < base + bytes; at = past) {
    past = std::min(base + bytes, at / page::bytes * page::bytes + page::bytes);
    page* const p = memory.find(at);
    if (p == nullptr) continue;
    if (p->is_used() && late.empty()) look_at(*p, at, past);
    if (past - at == page::bytes) p->end(end);
  }
  if (!late.empty()) report_ended(late, end, of_late);
}

void detector::report_ended(const record& use, const record& end, uintptr_t address) {
  if (!reported.insert({0, use.code()}).second) return;
  say("devcomm simulator: window freed while other ranks still use it (" + detail::how_to_repeat() + ") at " +
      describe(address) + "\n  " + what_did(use) + " by " + describe(use) + "\n" + where(use) +
      "  not ordered with its destruction by " + describe(end) +
      "\n  every rank must be done with its peers' memory before any rank destroys its own: call "
      "communicator::barrier() before that\n");
}

void detector::report_side(const record& now, uintptr_t address, const char* what, const char* advice) {
  if (reported.insert({now.code(), 0}).second && !is_of_runtime(now.code())) say_access(now, address, what, advice);
}

void detector::report_end(const record& now, uintptr_t address) {
  if (!reported.insert({now.code(), 1}).second) return;
  say_access(now, address, "access past the end of memory",
             "a GPU has other data there, or none: compare the index with the length");
}

void detector::say_access(const record& now, uintptr_t address, const char* what, const char* advice) {
  say(std::string("devcomm simulator: ") + what + " (" + detail::how_to_repeat() + ") at " + describe(address) +
      "\n  " + what_did(now) + " by " + describe(now) + "\n" + where(now) + "  " + advice + "\n");
}

namespace {

void at_end() {
  const detector& d = the_detector();
  if (d.reports == 0) return;
  std::fflush(nullptr);
  std::fprintf(stderr, "devcomm simulator: %llu data race%s reported (%s)\n",
               static_cast<unsigned long long>(d.reports), d.reports == 1 ? "" : "s", detail::how_to_repeat().c_str());
  if (d.exit_status != 0) std::_Exit(d.exit_status);
}

}  // namespace

detector::detector() {
  exit_status =
      static_cast<int>(detail::number_variable("DEVCOMM_SIM_RACE_EXIT", static_cast<uint64_t>(exit_status), 0, 255));
  checks_sides = detail::number_variable("DEVCOMM_SIM_CHECK_SIDES", 0, 0, 1) != 0;
  std::atexit(&at_end);
  guard::survive_forks();
  // Each block's thread would get an arena of its own for what all of them share. With one, and without mappings for
  // large pieces, the system's list of mappings tells what is the heap.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
}

}  // namespace devcomm::simulator::race
