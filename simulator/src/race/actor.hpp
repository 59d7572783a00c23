/// \file actor.hpp
/// Who accesses memory: a simulated thread, a copy or fill of a stream, or a thread of the host.
#pragma once

#include "race/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace devcomm::simulator::race {

struct actor {
  clock_reference known;  ///< what others did that is ordered before what this one does next
  uint32_t group = 0;     ///< 0: none yet
  uint32_t width = 1;     ///< threads of the group
  uint32_t lane = 0;      ///< index in the group
  uint32_t epoch = 1;     ///< grows when it publishes what it did
  bool dirty = false;     ///< something was recorded with this epoch
  bool host = true;       ///< runs without the baton
  int ignored = 0;        ///< depth of requests to leave its accesses alone
  uint64_t stamps = 0;
  uint64_t stores = 0;  ///< that may have been delayed
  uint64_t met = 0;     ///< the latest meeting that it took part in, if its clock has not changed since

  bool at_once = false;    ///< its stores are seen at one time
  uint64_t one_store = 0;  ///< the number of these stores, once there is one
  uint64_t one_delay = 0;  ///< steps

  stamp fence;                 ///< published by each strong store after a release fence
  std::vector<stamp> pending;  ///< found by relaxed loads; joined by an acquire fence

  void begin_one(bool on) {
    at_once = on;
    one_store = 0;
  }
  /// Its clock with its own epoch; what it does from now on is not covered by it.
  [[nodiscard]] stamp publish();
  void acquire(const stamp& s);
  void acquire(const clock_reference& c) {
    met = 0;
    join(known, c);
  }
  /// A relaxed load found what `s` was published with.
  void note(const stamp& s);
  void acquire_fence();
  void release_fence();
};

/// What is published at one atomic variable.
class variable {
 public:
  void load(actor& a, bool acquires);
  /// Starts a release sequence, continues the storing thread's own, or ends all.
  void store(actor& a, bool releases);
  /// Loads, and continues the release sequence.
  void change(actor& a, bool acquires, bool releases) {
    load(a, acquires);
    go_on(a, acquires, releases);
  }
  /// The second half of a change.
  void go_on(actor& a, bool acquires, bool releases);

 private:
  stamp published_;
  stamp released_;  ///< by the latest releasing store or change, whose thread `releaser_` is
  uint64_t releaser_ = 0;
};

/// A barrier or similar: what the threads that have arrived published.
class meeting {
 public:
  void release(actor& a);
  void acquire(actor& a);
  [[nodiscard]] clock_reference& known() { return known_; }

 private:
  static uint64_t meetings;

  uint64_t number_ = ++meetings;
  clock_reference known_;
  // Most threads that meet have the same clock: what was joined already, and the result.
  static constexpr size_t kept = 16;
  std::vector<clock_reference> released_;
  std::vector<std::pair<clock_reference, clock_reference>> acquired_;
};

}  // namespace devcomm::simulator::race
