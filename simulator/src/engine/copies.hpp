/// \file copies.hpp
/// Asynchronous copies that are under way, and the mbarriers that some report to.
#pragma once

#include "base/random.hpp"
#include "base/sanitizer.hpp"

#include <devcomm/simulator/detail/copies.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

class block;
class engine;
struct fiber;

/// One in shared memory. The word there changes with every phase, so that threads can poll it.
struct mbarrier {
  block* home = nullptr;
  uint32_t expected = 0;
  int64_t pending = 0;  ///< arrivals that are missing
  int64_t bytes = 0;    ///< of copies that are missing
  uint64_t phase = 0;
  sanitizer::cell cells[2];  ///< of even and odd phases
};

/// An arrival at an mbarrier, once so many groups of copies are done.
struct late_arrival {
  void* at;
  uint32_t groups;
};

/// Copies that a thread waits for together.
struct copy_group {
  void* identity = nullptr;
  uint32_t unread = 0;     ///< copies that have not read their source
  uint32_t unwritten = 0;  ///< copies that are not done
  bool used = false;       ///< has copies
  bool waited = false;     ///< the thread has waited at least until the sources were read
  sanitizer::cell read;
  sanitizer::cell written;
  std::vector<std::shared_ptr<late_arrival>> arrivals;
  ~copy_group() { sanitizer::drop_identity(identity); }
};

/// The groups of one thread that it may still wait for, oldest first; the last one is not committed yet.
struct thread_copies {
  using groups = std::deque<std::unique_ptr<copy_group>>;
  groups elements;
  groups bulk;
};

class copy_engine {
 public:
  explicit copy_engine(engine& e) : engine_(e) {}

  /// The running thread issues a copy.
  void begin(const char* instruction, const copy_chunk* chunks, std::size_t count, copy_reduction reduces,
             copy_group* group, void* barrier);
  /// Does what is due; with `one`, at least one part of a copy.
  void run(bool one);
  [[nodiscard]] bool any() const { return !under_way_.empty(); }
  [[nodiscard]] bool due(uint64_t step) const { return step >= next_due_; }
  void restart(uint64_t seed) { random_ = random_choice(seed); }

  /// All threads of the block have ended, and its shared memory goes: its copies are finished. Returns what is wrong
  /// with that, or nothing.
  [[nodiscard]] std::string end_block(block& b);
  /// Drops its copies and mbarriers.
  void forget(const block& b);

  [[nodiscard]] mbarrier& make_mbarrier(void* at, block& home);
  void drop_mbarrier(void* at);
  /// Throws `misuse` where there is none.
  [[nodiscard]] mbarrier& mbarrier_at(const void* at);
  /// "mbarrier at byte 8 of ...: phase 3 lacks 1 of 2 arrivals and 128 bytes"; empty for other memory.
  [[nodiscard]] std::string describe_mbarrier(const void* at) const;
  /// Ends the phase if nothing is missing.
  static void complete(mbarrier& b, void* at);

 private:
  struct copy {
    std::vector<copy_chunk> chunks;
    copy_reduction reduces;
    std::vector<char> data;  ///< once it was read
    block* home;
    void* identity;     ///< the group's, where it has one
    copy_group* group;  ///< null: it reports to an mbarrier
    void* barrier;
    uint64_t due;
    bool was_read = false;
  };

  [[nodiscard]] uint64_t delay();
  void advance(copy& c);
  void read(copy& c);
  void write(copy& c);
  void finish(copy& c);
  void arrive(const copy& c);
  void update_due();

  engine& engine_;
  random_choice random_{0};
  std::vector<std::unique_ptr<copy>> under_way_;
  uint64_t next_due_ = ~uint64_t{0};
  std::map<const void*, mbarrier> mbarriers_;
};

}  // namespace devcomm::simulator::detail
