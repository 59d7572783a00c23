/// Operations among the lanes of a warp.
#include "engine/warp_operations.hpp"
#include "engine/engine.hpp"
#include "engine/explorer.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <string>

namespace devcomm::simulator::detail {
namespace {

template <class Visit>
void for_each_lane(uint32_t mask, Visit visit) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) visit(static_cast<uint32_t>(__builtin_ctz(rest)));
}

bool here(const fiber& f, uint32_t mask) { return f.state == fiber_state::at_warp && f.mask == mask; }

/// Whether every lane of `mask` that lives has arrived, apart from `last`.
bool complete(block& b, uint32_t warp_index, uint32_t mask, const fiber* last) {
  bool all = true;
  for_each_lane(mask & b.warps[warp_index].live, [&](uint32_t lane) {
    const fiber& f = b.lane(warp_index, lane);
    if (&f != last && !here(f, mask)) all = false;
  });
  return all;
}

uint64_t result_of(const fiber& f, uint32_t lanes, const uint64_t (&given)[32]) {
  uint64_t result = 0;
  switch (f.operation) {
    case warp_operation::sync: break;
    case warp_operation::gather:
      fail_misuse("a warp stores and loads lines as a whole, and a lane of it has exited");
      break;
    case warp_operation::ballot:
      for_each_lane(lanes, [&](uint32_t lane) { result |= uint64_t{given[lane] != 0} << lane; });
      break;
    case warp_operation::match:
      for_each_lane(lanes, [&](uint32_t lane) { result |= uint64_t{given[lane] == f.value} << lane; });
      break;
    case warp_operation::shuffle:
      if ((lanes >> f.source & 1) == 0) {
        fail_misuse(("thread " + std::to_string(f.rank) + " reads by shuffle from lane " + std::to_string(f.source) +
                     ", which takes no part")
                        .c_str());
      }
      result = given[f.source];
      break;
  }
  return result;
}

warp_cells& cells_of(warp& w, uint32_t mask) {
  for (warp_cells* group : w.groups) {
    if (group->mask == mask) return *group;
  }
  const sanitizer::unobserved hidden;
  w.groups.push_back(new warp_cells{mask});
  return *w.groups.back();
}

/// All lanes have arrived: gives each its result, and wakes all but `last`.
void finish(block& b, uint32_t warp_index, uint32_t mask, fiber* last) {
  const uint32_t lanes = mask & b.warps[warp_index].live;
  uint64_t given[32] = {};
  const fiber* first = nullptr;
  for_each_lane(lanes, [&](uint32_t lane) {
    const fiber& f = b.lane(warp_index, lane);
    given[lane] = f.value;
    if (first == nullptr) first = &f;
    if (f.operation != first->operation) {
      fail_misuse("lanes of one mask call different warp operations, such as a vote and a shuffle");
    }
  });
  for_each_lane(lanes, [&](uint32_t lane) {
    fiber& f = b.lane(warp_index, lane);
    f.value = result_of(f, lanes, given);
  });
  const bool sync = first != nullptr && first->operation == warp_operation::sync && sanitizer::orders();
  warp_cells* const group = sync ? &cells_of(b.warps[warp_index], mask) : nullptr;
  for_each_lane(lanes, [&](uint32_t lane) {
    fiber& f = b.lane(warp_index, lane);
    if (group != nullptr) sanitizer::acquire_as(f.identity, group->cells[group->odd]);
    if (&f != last) b.wake(f);
  });
  if (group == nullptr) return;
  sanitizer::clear(group->cells[group->odd]);
  group->odd = !group->odd;
}

/// `f` waits for the other lanes of its mask. Those that sleep on memory in the same wait are woken, and arrive.
void await_lanes(block& b, fiber& f) {
  for_each_lane(f.mask & b.warps[f.rank / 32].live, [&](uint32_t lane) {
    fiber& other = b.lane(f.rank / 32, lane);
    if (other.state != fiber_state::polling || !other.waits_with_warp) return;
    b.simulation.remove_waiting(other);
    b.wake(other);
  });
  b.suspend(f, fiber_state::at_warp);
  b.simulation.reschedule();
}

/// The task of `f` in a gather during an exploration. The lane that arrives last depends on the order of steps that
/// touch no memory, so the acting lanes must not depend on it: the first lane of each part acts, since lines may be
/// accessed in any order; in a wait, which polls all lines in one step, lane 0 does.
warp_task explored_task(block& b, fiber& f, uint32_t part, bool last) {
  const uint32_t warp_index = f.rank / 32;
  const uint32_t lane = f.rank % 32;
  if (f.label != nullptr) {
    f.waits_with_warp = true;
    part = 32;
  }
  const bool acts = lane % part == 0;
  if (last) {
    b.warps[warp_index].acting = 32 / part;
    if (explorer* const e = b.simulation.explored_by) {
      for_each_lane(f.mask, [&](uint32_t other) { e->synchronizes(b.lane(warp_index, other)); });
    }
    for (uint32_t first = 0; first < 32; first += part) {
      if (first != lane) b.wake(b.lane(warp_index, first));
    }
  }
  if (last && acts) {
    preempt();
  } else if (last) {
    b.suspend(f, fiber_state::at_warp);
    b.simulation.reschedule();
  } else {
    await_lanes(b, f);
  }
  return acts ? warp_task{b.warps[warp_index].given, lane, lane + part} : warp_task{};
}

/// Wakes the lanes that asked which lanes are here, once no other lane of the warp can join them.
void release_converged(block& b, uint32_t warp_index) {
  const uint32_t live = b.warps[warp_index].live;
  bool someone_runs = false;
  bool someone_asks = false;
  for_each_lane(live, [&](uint32_t lane) {
    const fiber& f = b.lane(warp_index, lane);
    someone_runs |= f.state == fiber_state::runnable;
    someone_asks |= f.state == fiber_state::at_converge;
  });
  if (someone_runs || !someone_asks) return;
  for_each_lane(live, [&](uint32_t lane) {
    fiber& f = b.lane(warp_index, lane);
    if (f.state != fiber_state::at_converge) return;
    uint32_t together = 0;
    for_each_lane(live, [&](uint32_t other) {
      const fiber& o = b.lane(warp_index, other);
      if (o.state == fiber_state::at_converge && o.call_site == f.call_site) together |= 1u << other;
    });
    for_each_lane(together, [&](uint32_t other) {
      fiber& o = b.lane(warp_index, other);
      o.value = together;
      b.wake(o);
      --b.converging;
    });
  });
}

}  // namespace

uint64_t warp_meet(warp_operation operation, uint32_t mask, uint64_t value, uint32_t source) {
  fiber& f = *this_fiber;
  block& b = *f.home;
  const uint32_t warp_index = f.rank / 32;
  if ((mask >> (f.rank % 32) & 1) == 0) fail_misuse("the calling lane is not in the mask of its warp operation");
  warp& w = b.warps[warp_index];
  f.operation = operation;
  f.mask = mask;
  f.value = value;
  f.source = source;
  sanitizer::cell* cell = nullptr;
  if (operation == warp_operation::sync && sanitizer::orders()) {
    warp_cells& group = cells_of(w, mask);
    cell = &group.cells[group.odd];
    sanitizer::release(*cell);
  }
  if (complete(b, warp_index, mask, &f)) {
    finish(b, warp_index, mask, &f);
    preempt();
  } else {
    await_lanes(b, f);
  }
  if (cell != nullptr) sanitizer::acquire_unless_done(*cell);
  return f.value;
}

warp_task warp_gather(uint32_t mask, void* given, uint32_t part) {
  fiber& f = *this_fiber;
  block& b = *f.home;
  const uint32_t warp_index = f.rank / 32;
  warp& w = b.warps[warp_index];
  if ((mask & ~w.live) != 0) fail_misuse("lines are stored and loaded by whole warps of 32 threads that live");
  f.operation = warp_operation::gather;
  f.mask = mask;
  w.given[f.rank % 32] = given;
  const bool last = complete(b, warp_index, mask, &f);
  if (last) {
    for_each_lane(mask, [&](uint32_t lane) {
      if (b.lane(warp_index, lane).operation != warp_operation::gather)
        fail_misuse("lanes of a warp call different operations, such as a vote and an access to lines");
    });
  }
  if (b.simulation.order.explores()) return explored_task(b, f, part, last);
  if (!last) {
    await_lanes(b, f);
    return {};
  }
  w.acting = 1;
  return {w.given, 0, 32};
}

void warp_release(uint32_t mask) {
  fiber& f = *this_fiber;
  block& b = *f.home;
  const uint32_t warp_index = f.rank / 32;
  if (--b.warps[warp_index].acting != 0) {
    b.suspend(f, fiber_state::at_warp);
    b.simulation.reschedule();
    return;
  }
  for_each_lane(mask, [&](uint32_t lane) {
    fiber& other = b.lane(warp_index, lane);
    if (&other != &f) b.wake(other);
  });
  preempt();
}

uint32_t converged_lanes(const void* call_site) {
  fiber& f = *this_fiber;
  block& b = *f.home;
  f.call_site = call_site;
  ++b.converging;
  b.suspend(f, fiber_state::at_converge);
  b.simulation.reschedule();
  return static_cast<uint32_t>(f.value);
}

bool awaited_by_lanes(block& b, const fiber& f) {
  bool awaited = false;
  for_each_lane(b.warps[f.rank / 32].live, [&](uint32_t lane) {
    const fiber& other = b.lane(f.rank / 32, lane);
    awaited |= other.state == fiber_state::at_warp && (other.mask >> (f.rank % 32) & 1) != 0;
  });
  return awaited;
}

void warps_after_suspend(block& b, const fiber& f) {
  if (b.converging > 0) release_converged(b, f.rank / 32);
}

void warps_after_exit(block& b, const fiber& gone) {
  const uint32_t warp_index = gone.rank / 32;
  for_each_lane(b.warps[warp_index].live, [&](uint32_t lane) {
    const fiber& f = b.lane(warp_index, lane);
    if (f.state != fiber_state::at_warp || (f.mask >> (gone.rank % 32) & 1) == 0) return;
    if (complete(b, warp_index, f.mask, nullptr)) finish(b, warp_index, f.mask, nullptr);
  });
  warps_after_suspend(b, gone);
}

void block::exited(fiber& f) {
  --live;
  warps[f.rank / 32].live &= ~(1u << (f.rank % 32));
  warps_after_exit(*this, f);
  barriers_after_exit(*this);
}

}  // namespace devcomm::simulator::detail
