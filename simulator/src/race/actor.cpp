#include "race/actor.hpp"

#include <algorithm>

namespace devcomm::simulator::race {
namespace {

constexpr std::size_t pending_kept = 16;

bool is_by(const publication& p, const actor& a) {
  return a.group != 0 && p.what.group == a.group && p.what.lane == a.lane;
}

}  // namespace

stamp actor::publish() {
  stamp s;
  s.base = known;
  s.fenced = fenced;
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

void actor::proxy_fence(clock_reference fenced_clocks::*which) {
  const stamp s = publish();
  join(fenced.*which, s);
}

void actor::acquire(const stamp& s) {
  last_sync = 0;
  join(known, s.base);
  join(fenced, s.fenced);
  const bool own = s.group == group && s.lane == lane;
  if (s.group != 0 && !own) raise(known, s.group, s.width, s.lane, s.epoch);
}

void actor::note(const publication& p) {
  if (p.what.empty()) return;
  for (publication& earlier : pending) {
    if (earlier.what == p.what && earlier.within == p.within) return;
    // The later of two by one thread covers the earlier.
    if (earlier.same_thread(p) && earlier.within == p.within && earlier.what.order < p.what.order) {
      earlier = p;
      return;
    }
  }
  if (pending.size() == pending_kept) {
    publication all;
    for (const publication& one : pending) join(all.what, one.what);
    all.of_many = true;
    pending.assign(1, all);
  }
  pending.push_back(p);
}

void actor::acquire_fence() {
  std::size_t left = 0;
  for (publication& p : pending) {
    if (p.reaches(at(), scope)) {
      acquire(p.what);
    } else {
      missed().add(*this, p, p.by, reach::system, true);
      if (&pending[left] != &p) pending[left] = p;
      ++left;
    }
  }
  pending.resize(left);
}

void actor::release_fence() {
  const publication p{publish(), at(), scope, true, false, code};
  // A fence of a wide scope is one of each narrower scope as well.
  for (auto i = 0; i < static_cast<int>(scope); ++i) fences[i] = p;
}

void actor::forget_fences() {
  fenced = fenced_clocks();
  for (publication& f : fences) f = publication();
  pending.clear();
  for (loaded& each : values) each = loaded();
}

void actor::note_value(uintptr_t address, const value_history& history) {
  loaded* to = &values[oldest_value];
  for (loaded& each : values)
    if (each.address == address) to = &each;
  if (to == &values[oldest_value]) oldest_value = (oldest_value + 1) % 4;
  to->address = address;
  to->history = history;
}

const value_history* actor::history_at(uintptr_t address) const {
  for (const loaded& each : values)
    if (each.address == address) return &each.history;
  return nullptr;
}

void missed_edges::add(actor& reader, const publication& of, const place& carrier, reach carrier_scope, bool by_fence) {
  if (of.what.empty() || reader.group == 0) return;
  const missed_edge e{of,           carrier,       carrier_scope, reader.group, reader.lane,
                      reader.epoch, reader.device, reader.scope,  by_fence,     reader.code};
  reader.dirty = true;  // so that others who learn of it know this epoch
  for (missed_edge& m : edges_) {
    if (m.group != e.group || m.lane != e.lane || m.code != e.code || !m.of.same_thread(of)) continue;
    m.of = e.of;  // its epoch stays: who has observed that one has observed both
    return;
  }
  if (edges_.size() < kept) {
    edges_.push_back(e);
  } else {
    edges_[next_++ % kept] = e;
  }
}

missed_edges& missed() {
  static auto& only = *new missed_edges;
  return only;
}

void variable::load(actor& a, bool acquires) {
  if (published_.empty()) return;
  const bool seen = include_each_other(last_, last_scope_, a.at(), a.scope);
  for (const publication& p : published_) {
    if (!seen || (acquires && !p.reaches(a.at(), a.scope))) {
      missed().add(a, p, last_, last_scope_, false);
    } else if (acquires) {
      a.acquire(p.what);
    } else {
      a.note(p);
    }
  }
}

void variable::add(const publication& p) {
  if (p.what.empty()) return;
  for (publication& earlier : published_) {
    if (p.what.group == 0 && earlier.what == p.what && earlier.within >= p.within) return;
    if (!earlier.same_thread(p) || earlier.of_fence != p.of_fence || earlier.within > p.within) continue;
    if (earlier.what.order <= p.what.order) earlier = p;
    return;
  }
  if (published_.size() == kept) {
    publication all;
    for (const publication& one : published_) join(all.what, one.what);
    all.of_many = true;
    published_.assign(1, all);
  }
  published_.push_back(p);
}

/// What a store or change by `a` publishes: its own release, and what its fences before did.
void variable::publish(actor& a, bool releases) {
  if (a.tells_launch) {
    stamp begin;  // nobody's own: it replaces no later publication of this thread
    begin.base = begin.fenced.alias = a.at_launch;
    add({begin, a.at(), a.scope, false, false, a.code});
  }
  if (releases) {
    add({a.publish(), a.at(), a.scope, false, false, a.code});
    if (a.scope == reach::system) return;  // covers what fences did
  }
  const stamp* before = nullptr;
  for (int i = 2; i >= (releases ? static_cast<int>(a.scope) : 0); --i) {
    const publication& f = a.fences[i];
    if (before != nullptr && *before == f.what) continue;
    before = &f.what;
    add(f);
  }
}

void variable::store(actor& a, bool releases) {
  // A later store of the thread that released goes on with its release.
  std::size_t left = 0;
  for (publication& p : published_) {
    if (p.of_fence || p.of_many || !is_by(p, a)) continue;
    if (&published_[left] != &p) published_[left] = p;
    ++left;
  }
  published_.resize(left);
  publish(a, releases);
  history_ = {a.group, a.lane, a.epoch, {}};
  last_ = a.at();
  last_scope_ = a.scope;
}

void variable::go_on(actor& a, bool acquires, bool releases) {
  if (!include_each_other(last_, last_scope_, a.at(), a.scope)) {
    published_.clear();
    history_ = {};
  } else if (acquires && releases) {
    // The stamp of one who has acquired covers what was published before, as far as it reaches.
    const auto covered = [&](const publication& p) {
      return (p.of_many || p.within <= a.scope) && p.reaches(a.at(), a.scope);
    };
    published_.erase(std::remove_if(published_.begin(), published_.end(), covered), published_.end());
  }
  publish(a, releases);
  if (a.group != 0) raise(history_.changes, a.group, a.width, a.lane, a.epoch);
  last_ = a.at();
  last_scope_ = a.scope;
}

uint64_t sync_point::sync_points = 0;

void sync_point::release(actor& a) {
  const stamp s = a.publish();
  acquired_.clear();
  join(fenced_, s.fenced);
  const bool joined = !s.base || std::find(released_.begin(), released_.end(), s.base) != released_.end();
  if (!joined) {
    join(known_, s.base);
    if (released_.size() == kept) released_.clear();
    released_.push_back(s.base);
  }
  if (s.group != 0) raise(known_, s.group, s.width, s.lane, s.epoch);
  a.last_sync = number_;
}

void sync_point::acquire(actor& a) {
  join(a.fenced, fenced_);
  if (a.last_sync == number_) {  // all that it knows is covered here
    a.last_sync = 0;
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
