/// \file actor.hpp
/// Who accesses memory: a simulated thread, a copy or fill of a stream, or a thread of the host.
#pragma once

#include "race/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace devcomm::simulator::race {

/// The threads that an operation's scope includes, with the values that kernels' code passes.
enum class reach : uint8_t { block = 1, device = 2, system = 3 };

/// Where a thread runs.
struct place {
  uint32_t group = 0;
  int device = -1;  ///< -1: the host
};

/// The narrowest scope by which threads at two places include each other.
[[nodiscard]] constexpr reach needed(const place& a, const place& b) {
  return a.group == b.group && a.group != 0      ? reach::block
         : a.device == b.device && a.device >= 0 ? reach::device
                                                 : reach::system;
}
/// Whether two operations are morally strong, as PTX calls it: the scope of each includes the other's thread.
[[nodiscard]] constexpr bool include_each_other(const place& a, reach of_a, const place& b, reach of_b) {
  return (of_a == reach::system && of_b == reach::system) || needed(a, b) <= (of_a < of_b ? of_a : of_b);
}

/// What a release or a fence published, and to whom.
struct publication {
  stamp what;
  place by;
  reach within = reach::system;
  bool of_fence = false;
  bool of_many = false;  ///< joined of several, whose places are not known any more: it reaches all
  uint64_t code = 0;     ///< of the release or the fence

  [[nodiscard]] bool same_thread(const publication& other) const {
    return what.group != 0 && what.group == other.what.group && what.lane == other.what.lane;
  }
  [[nodiscard]] bool reaches(const place& reader, reach scope) const {
    return of_many || include_each_other(by, within, reader, scope);
  }
};

/// The atomic store from which the value of a word comes, and the changes of it since: what PTX's observation order has
/// before a load of that value, and causality before what the loading thread does next. Of other accesses of these
/// threads it says nothing.
struct value_history {
  uint32_t group = 0;  ///< of the store; 0: the value was there before
  uint32_t lane = 0;
  uint32_t epoch = 0;
  clock_reference changes;

  [[nodiscard]] bool has(uint32_t of_group, uint32_t of_lane, uint32_t of_epoch) const {
    if (group == of_group && lane == of_lane && epoch == of_epoch) return true;
    return epoch_of(changes, of_group, of_lane) >= of_epoch;
  }
};

struct actor {
  clock_reference known;        ///< what others did that is ordered before what this one does next
  fenced_clocks fenced;         ///< of that and its own
  clock_reference at_launch;    ///< what was known when its kernel began
  uint32_t group = 0;           ///< 0: none yet
  uint32_t width = 1;           ///< threads of the group
  uint32_t lane = 0;            ///< index in the group
  uint32_t epoch = 1;           ///< grows when it publishes what it did
  bool dirty = false;           ///< something was recorded with this epoch
  bool host = true;             ///< runs without the baton
  int device = -1;              ///< where it runs; -1: the host
  reach scope = reach::system;  ///< of its atomic operations and fences at the moment
  uint64_t code = 0;            ///< of its latest atomic operation or fence
  int ignored = 0;              ///< depth of requests to leave its accesses alone
  uint64_t stamps = 0;
  uint64_t stores = 0;  ///< that may have been delayed
  /// Histories of the latest values that it has loaded by atomic operations, by address.
  struct loaded {
    uintptr_t address = 0;
    value_history history;
  };
  loaded values[4];
  uint32_t oldest_value = 0;
  uint64_t last_sync = 0;  ///< the latest sync_point that it took part in, if its clock has not changed since

  bool tells_launch = false;  ///< its atomic operations publish what was known when its kernel began
  bool multicast = false;     ///< what it accesses, it accesses by a multicast address
  bool async_proxy = false;   ///< a bulk copy: sees what others wrote behind a fence of proxies

  bool at_once = false;    ///< its stores are seen at one time
  uint64_t one_store = 0;  ///< the number of these stores, once there is one
  uint64_t one_delay = 0;  ///< steps

  publication fences[3];             ///< published by each strong store after a release fence; by scope
  std::vector<publication> pending;  ///< found by relaxed loads; joined by an acquire fence

  /// What it did and knows is ordered with what follows by another address of the same memory, or by bulk copies.
  void proxy_fence(clock_reference fenced_clocks::*which);
  void begin_one(bool on) {
    at_once = on;
    one_store = 0;
  }
  /// Its clock with its own epoch; what it does from now on is not covered by it.
  [[nodiscard]] stamp publish();
  void acquire(const stamp& s);
  void acquire(const clock_reference& c) {
    last_sync = 0;
    join(known, c);
  }
  /// A relaxed load found `p`.
  void note(const publication& p);
  void acquire_fence();
  void release_fence();
  void note_value(uintptr_t address, const value_history& history);
  [[nodiscard]] const value_history* history_at(uintptr_t address) const;
  /// Forgets what fences and loads have left, when the thread ends.
  void forget_fences();
  [[nodiscard]] place at() const { return {group, device}; }
};

/// An order that there would be, were a scope not too narrow.
struct missed_edge {
  publication of;
  place carrier;  ///< who stored the value that was read
  reach carrier_scope = reach::system;
  uint32_t group = 0;  ///< of who read it
  uint32_t lane = 0;
  uint32_t epoch = 0;
  int device = -1;
  reach scope = reach::system;
  bool by_fence = false;
  uint64_t code = 0;
};

/// The latest of these, for reports.
class missed_edges {
 public:
  void add(actor& reader, const publication& of, const place& carrier, reach carrier_scope, bool by_fence);
  [[nodiscard]] const std::vector<missed_edge>& all() const { return edges_; }
  void clear() { edges_.clear(); }

 private:
  static constexpr size_t kept = 128;
  std::vector<missed_edge> edges_;
  size_t next_ = 0;
};
[[nodiscard]] missed_edges& missed();

/// What is published at one atomic variable.
///
/// Scopes are those of PTX's model. The load must be morally strong with the store or change whose value it finds, and
/// each change in a release sequence with what it changes; and the release, or the fence in its place, with the
/// acquire, or the fence after the load.
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
  [[nodiscard]] const value_history& history() const { return history_; }
  /// The latest release, or null.
  [[nodiscard]] const publication* released() const { return published_.empty() ? nullptr : &published_.back(); }
  /// Whether a load by `a` is morally strong with the latest store or change.
  [[nodiscard]] bool seen_by(const actor& a) const { return include_each_other(last_, last_scope_, a.at(), a.scope); }

 private:
  static constexpr size_t kept = 8;

  void publish(actor& a, bool releases);
  void add(const publication& p);

  std::vector<publication> published_;
  value_history history_;
  place last_;  ///< who stored or changed it last
  reach last_scope_ = reach::system;
};

/// A barrier or similar: what the threads that have arrived published.
class sync_point {
 public:
  void release(actor& a);
  void acquire(actor& a);
  [[nodiscard]] clock_reference& known() { return known_; }
  /// The end of a launch, which `known` has, is a fence of all that it did.
  void forget_fences() { fenced_ = fenced_clocks(); }

 private:
  static uint64_t sync_points;

  uint64_t number_ = ++sync_points;
  clock_reference known_;
  fenced_clocks fenced_;
  // Most threads of a barrier have the same clock: what was joined already, and the result.
  static constexpr size_t kept = 16;
  std::vector<clock_reference> released_;
  std::vector<std::pair<clock_reference, clock_reference>> acquired_;
};

}  // namespace devcomm::simulator::race
