#include "race/actor.hpp"

#include <algorithm>

namespace devcomm::simulator::race {
namespace {

constexpr std::size_t pending_kept = 16;

uint64_t identity(const actor& a) { return uint64_t{a.group} << 32 | a.lane; }

}  // namespace

stamp actor::publish() {
  stamp s;
  s.base = known;
  s.order = ++stamps;
  if (group == 0) return s;
  s.epoch = epoch - 1;
  if (dirty) {
    s.epoch = epoch++;
    dirty = false;
  }
  if (s.epoch == 0) return s;
  s.group = group;
  s.width = width;
  s.lane = lane;
  return s;
}

void actor::acquire(const stamp& s) {
  met = 0;
  join(known, s.base);
  const bool own = s.group == group && s.lane == lane;
  if (s.group != 0 && !own) raise(known, s.group, s.width, s.lane, s.epoch);
}

void actor::note(const stamp& s) {
  if (s.empty()) return;
  for (stamp& known_already : pending) {
    if (known_already == s) return;
    // The later of two by one thread covers the earlier.
    if (s.group != 0 && known_already.group == s.group && known_already.lane == s.lane &&
        known_already.order < s.order) {
      known_already = s;
      return;
    }
  }
  if (pending.size() == pending_kept) {
    stamp all;
    for (const stamp& one : pending) join(all.base, one);
    pending.assign(1, all);
  }
  pending.push_back(s);
}

void actor::acquire_fence() {
  for (const stamp& s : pending) acquire(s);
  pending.clear();
}

void actor::release_fence() { fence = publish(); }

void variable::load(actor& a, bool acquires) {
  if (acquires) {
    a.acquire(published_);
  } else {
    a.note(published_);
  }
}

void variable::store(actor& a, bool releases) {
  if (releases) {
    published_ = released_ = a.publish();
    releaser_ = identity(a);
  } else if (a.group != 0 && releaser_ == identity(a)) {
    published_ = a.fence.order > released_.order ? a.fence : released_;
  } else {
    published_ = a.fence;
    released_ = stamp();
    releaser_ = 0;
  }
}

void variable::go_on(actor& a, bool acquires, bool releases) {
  stamp mine = releases ? a.publish() : a.fence;
  if (releases) {
    released_ = mine;
    releaser_ = identity(a);
  }
  if (mine.empty()) return;
  if (published_.empty() || (acquires && releases)) {  // an acquirer's stamp covers what was published before
    published_ = mine;
    return;
  }
  stamp both;
  join(both.base, published_);
  join(both.base, mine);
  published_ = both;
}

uint64_t meeting::meetings = 0;

void meeting::release(actor& a) {
  const stamp s = a.publish();
  acquired_.clear();
  const bool joined = !s.base || std::find(released_.begin(), released_.end(), s.base) != released_.end();
  if (!joined) {
    join(known_, s.base);
    if (released_.size() == kept) released_.clear();
    released_.push_back(s.base);
  }
  if (s.group != 0) raise(known_, s.group, s.width, s.lane, s.epoch);
  a.met = number_;
}

void meeting::acquire(actor& a) {
  if (a.met == number_) {  // all that it knows is covered here
    a.met = 0;
    if (known_) a.known = known_;
    return;
  }
  for (const auto& [before, after] : acquired_) {
    if (before == a.known) {
      a.known = after;
      return;
    }
  }
  const clock_reference before = a.known;
  a.acquire(known_);
  if (acquired_.size() == kept) acquired_.clear();
  acquired_.emplace_back(before, a.known);
}

}  // namespace devcomm::simulator::race
