/// \file detector.hpp
/// The detector's state, and what an access, an atomic operation and a fence do to it.
#pragma once

#include "base/symbol.hpp"
#include "race/actor.hpp"
#include "race/pages.hpp"
#include "race/store_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace devcomm::simulator::race {

/// A launch, a copy, a fill, or a thread of the host.
struct task_facts {
  int device = -1;               ///< -1: the host
  const void* kernel = nullptr;  ///< null: a copy or a fill
  const char* copy = nullptr;    ///< what an asynchronous copy is called; null: something else
  uint32_t chain = 0;            ///< its group
  uint32_t epoch = running;      ///< who knows its chain so far knows that it is done

  static constexpr uint32_t running = ~uint32_t{0};
  [[nodiscard]] bool done() const { return epoch != running; }
};

/// What the network does for a kernel, or an asynchronous copy.
struct network_operation {
  uint32_t epoch;  ///< of its group when it was taken
  uint32_t context;
  uint64_t number;
  record posted;              ///< the store that handed it over; empty if that is not known
  detail::call_stack poster;  ///< the calls that led there
  int peer = -1;              ///< -1: not known yet
  bool puts = false;
};

struct group_facts {
  uint32_t task = 0;   ///< of a block: its launch
  uint32_t block = 0;  ///< linear index
  uint32_t width = 0;  ///< 0: a chain
  uint64_t key = 0;    ///< of a block: the same in every run of a seed
  // Of a chain: tasks, each after the one before.
  bool open = false;
  uint32_t last_epoch = 0;
  std::vector<std::pair<uint32_t, uint32_t>> tasks;  ///< first epoch, task
};

/// Memory that is watched, for reports.
struct span {
  size_t bytes;
  const char* kind;
  int device;  ///< -1: shared memory
  const char* name;
};

/// Held around all use of the state. Accesses of the detector itself meanwhile are ignored.
class guard {
 public:
  guard();
  ~guard();
  guard(const guard&) = delete;
  guard& operator=(const guard&) = delete;
  /// Whether the calling thread holds it.
  [[nodiscard]] static bool held();
  /// A child process of a fork finds it free.
  static void survive_forks();
};

class detector {
 public:
  detector();

  /// Memory is watched in spans, so what begins and ends outside is outside.
  [[nodiscard]] bool watches(uintptr_t address, size_t bytes) const {
    return memory.find(address) != nullptr || memory.find(address + bytes - 1) != nullptr;
  }
  /// An access of watched memory by the running code itself. *Requires* that the guard is not held. `shows`: what is
  /// read is not written by the same call.
  void plain_access(uintptr_t address, size_t bytes, uint64_t kind, const void* code, bool shows);

  /// Reports an access by code of the host to device memory, or by a kernel's to the host's heap: both fault on GPUs.
  void check_side(uintptr_t address, size_t bytes, uint64_t kind, const void* code);

  // --- all of these with the guard ---

  void access(actor& a, uintptr_t address, size_t bytes, uint64_t kind, uint64_t code);
  /// A load that is not coherent: reports the writes since its kernel began, whatever orders them.
  void read_only(const actor& a, uintptr_t address, size_t bytes, uint64_t code, bool restricted);
  /// The variable behind atomic operations of `device`.
  [[nodiscard]] variable& variable_at(uintptr_t address, int device);

  /// Makes `a` the next part of a chain whose end it knows, or of a new one.
  void join_chain(actor& a, const task_facts& facts);
  void leave_chain(actor& a);
  [[nodiscard]] uint32_t new_block(const actor& launch, uint64_t block, uint32_t threads, uint64_t key);
  /// A group without threads, whose one epoch counts something.
  [[nodiscard]] uint32_t new_counter();
  void take_operation(const actor& a, uint32_t context, uint64_t number, uintptr_t word);
  void describe_operation(const actor& a, uint32_t context, uint64_t number, int peer, bool puts);
  /// `copy` is an asynchronous copy that `by` issues.
  void begin_copy(actor& copy, actor& by, const char* what, bool async_proxy);
  /// The launch or copy `a` is complete: `known` gets that as a single entry.
  void finish_task(const actor& a, clock_reference& known);
  /// Forgets of each block what follows from its launch's end.
  void prune(clock_reference& c) const;

  [[nodiscard]] bool ordered(const record& r, const actor& after) const;
  [[nodiscard]] bool known_done(const record& r, const clock_reference& known) const;
  /// Whether an alias fence, or the end of a launch, is between `r` and what `after` does next.
  [[nodiscard]] bool fenced(const record& r, const actor& after) const;
  /// Whether `after`, a bulk copy, need not see `r`, which is ordered before it.
  [[nodiscard]] bool lacks_async_fence(const record& r, const record& now, const actor& after) const;
  void report(const record& earlier, const record& now, const actor& by, uintptr_t address);
  /// Accesses by a multicast address and by another, ordered, but without a fence between them.
  void report_alias(const record& earlier, const record& now, uintptr_t address);
  /// A bulk copy after a write that it need not see.
  void report_async(const record& earlier, const record& now, uintptr_t address);
  void report_not_coherent(const record& earlier, const record& now, uintptr_t address, bool restricted);
  /// Reports an access of `bytes` by a kernel, if `address`, its first in a word that is not watched, is behind an end.
  void check_end(const actor& a, const record& now, uintptr_t address, size_t bytes);
  /// Where the poisoned memory begins that has the address; 0 if none has.
  [[nodiscard]] uintptr_t end_before(uintptr_t address) const;
  [[nodiscard]] bool is_behind_host_array(uintptr_t address) const;
  void report_end(const record& now, uintptr_t address);
  void report_side(const record& now, uintptr_t address, const char* what, const char* advice);
  /// `by` frees memory. One of the accesses that it does not know to be over is reported, and those that come later.
  void end_memory(actor& by, uintptr_t base, size_t bytes);
  void report_ended(const record& use, const record& end, uintptr_t address);
  [[nodiscard]] bool races(const record& earlier, const record& now) const;
  [[nodiscard]] place place_of(const record& r) const;
  [[nodiscard]] const task_facts& task_of(const record& r) const;
  /// Of an access by the network or an asynchronous copy; null for others, and where it is long ago.
  [[nodiscard]] const network_operation* operation_of(const record& r) const;
  /// Lines that say where in the program it is: of what the network does, where that was posted.
  [[nodiscard]] std::string where(const record& r) const;
  /// "rank 1, block 0, thread 3, kernel void k<int>(int*)".
  [[nodiscard]] std::string describe(const record& r) const;

  void watch(uintptr_t base, const span& s);
  void forget(uintptr_t base, size_t bytes);
  void poison(uintptr_t base, size_t bytes);
  void unpoison(uintptr_t base, size_t bytes);
  /// "byte 12 of the 64 of device memory of rank 1 at 0x7f..".
  [[nodiscard]] std::string describe(uintptr_t address) const;
  [[nodiscard]] std::string name_of(int device) const;

  page_table memory;
  store_buffer buffer{*this};
  std::map<uintptr_t, span> spans;
  std::map<uintptr_t, size_t> poisoned;                       ///< behind the ends of spans and windows; bytes
  std::map<uintptr_t, std::pair<size_t, std::string>> names;  ///< of windows: bytes, "window 'x' of rank 1"
  std::unordered_map<uintptr_t, variable> elsewhere;          ///< atomic variables in memory that is not watched
  std::vector<group_facts> groups{1};                         ///< group 0 is none
  std::vector<task_facts> tasks;
  std::map<int, int> ranks;                                       ///< by device
  std::unordered_map<uintptr_t, detail::call_stack> posts;        ///< by the word that hands over
  std::map<uint32_t, std::vector<network_operation>> operations;  ///< by group, the latest ones

  using code_pairs = std::set<std::pair<uint64_t, uint64_t>>;
  code_pairs reported;          ///< pairs of code addresses
  code_pairs reported_aliases;  ///< of accesses that lack a fence only
  uint64_t reports = 0;
  std::string last_report;
  int exit_status = 66;
  bool checks_sides = false;  ///< set once

 private:
  void say_access(const record& now, uintptr_t address, const char* what, const char* advice);
  void keep_operation(const actor& a, const network_operation& one);
  [[nodiscard]] bool of_ended_launch(const record& r, const actor& after) const;

  struct access_size {
    uint64_t code;
    uint64_t bytes;
  };
  [[nodiscard]] access_size& size_of(uint64_t code) { return sizes_[(code ^ code >> 14) % std::size(sizes_)]; }
  /// Whether this pair of places is reported for the first time.
  [[nodiscard]] static bool is_news(code_pairs& known, const record& earlier, const record& now);
  void say(const std::string& text);
  [[nodiscard]] std::string what_did(const record& r);
  /// "data race (seed 1) at byte 0 of window 'a'", and who did what where.
  [[nodiscard]] std::string text_of(const record& earlier, const record& now, uintptr_t address, const char* what,
                                    const char* between);
  [[nodiscard]] std::string scope_advice(const record& earlier, const record& now, const actor& by) const;

  access_size sizes_[1 << 14] = {};  ///< of the accesses at each code address; the latest of those that share a slot
};

[[nodiscard]] detector& the_detector();
/// Who the calling OS thread is at the moment.
[[nodiscard]] actor& self();
void become(actor* a);

inline void detector::plain_access(uintptr_t address, size_t bytes, uint64_t kind, const void* code, bool shows) {
  actor& a = self();
  if (!a.host) buffer.restore();
  const guard hold;
  access(a, address, bytes, kind, reinterpret_cast<uint64_t>(code));
  if (!buffer.on() || a.ignored > 0) return;
  if ((kind & record::write) != 0) {
    buffer.store(a, address, bytes, nullptr, nullptr);
  } else if (shows) {
    buffer.show_previous(a, address, bytes);
  } else {
    buffer.observe(a, address, bytes);
  }
}

}  // namespace devcomm::simulator::race
