#include "engine/dispatcher.hpp"

#include "engine/failure.hpp"
#include "engine/task_order.hpp"
#include "gpu/code_module.hpp"

#include <algorithm>
#include <utility>

namespace devcomm::simulator::detail {

void dispatcher::run() {
  engine& e = engine_;
  const sanitizer::unobserved hidden;
  e.lock.lock();
  for (;;) {
    e.dispatcher_wanted = false;
    e.step_network();
    join_blocks();
    end_grids();
    if (e.grids.empty()) e.tell_of_others();
    wake_hosts();
    if (!wanted()) {
      inspected_since_ = 0;
      if (e.grids.empty()) e.failed_since_idle = false;
      sleep();
      continue;
    }
    if (!hosts_settle()) continue;
    start_tasks();
    start_blocks();
    if (e.steps >= e.background_step_) step_background_tasks();
    if (e.dispatcher_wanted) continue;
    if (!e.ready_blocks.empty()) {
      idle_since_ = 0;
      run_blocks();
    } else if (e.copies.any()) {
      e.copies.run(true);
      e.peek();
    } else if (!e.grids.empty()) {
      if (!network_goes_on()) quiescence();
    } else {
      e.failed_since_idle = false;
      sleep();
    }
  }
}

/// Kernels run while a host thread waits for something, so that a program whose host is one thread
/// repeats exactly; if none waits for long, they run anyway. A process that was stopped meanwhile cannot have waited,
/// so `unwaited_` is sampled.
bool dispatcher::wanted() {
  if (!engine_.waiters_.empty()) {
    in_background_ = false;
    return true;
  }
  if (engine_.unfinished_tasks == 0) {
    in_background_ = false;
    return false;
  }
  if (in_background_) return true;
  const uint64_t now = real_time();
  if (unwaited_call_ != engine_.last_call_) {
    unwaited_call_ = engine_.last_call_;
    unwaited_.restart(now);
  } else {
    unwaited_.sample(now, engine_.config.background_start / 8);
  }
  in_background_ = unwaited_.total() >= engine_.config.background_start;
  return in_background_;
}

void dispatcher::sleep() {
  engine& e = engine_;
  const uint32_t seen = __atomic_load_n(&e.event_, __ATOMIC_RELAXED);
  const bool work = engine_.unfinished_tasks > 0;
  const timespec limit = to_timespec(std::max<uint64_t>(e.config.background_start / 8, 1000000));
  e.lock.unlock();
  futex_wait(&e.event_, seen, work ? &limit : nullptr);
  e.lock.lock();
}

void dispatcher::start_tasks() {
  engine& e = engine_;
  while (!e.ready_tasks_.empty()) {
    std::vector<task*> ready;
    ready.swap(e.ready_tasks_);
    // Host threads submit in any order.
    std::stable_sort(ready.begin(), ready.end(), [](const task* a, const task* b) { return a->device < b->device; });
    for (task* t : ready) {
      const task_ref keep(t);
      --t->references;  // the list's
      void* const id = identity_of(*t);
      if (t->queue->error != 0 && !t->work.what->runs_after_failure()) {
        finish_order(*t, id);
        finish_task(*t, t->queue->error);
        continue;
      }
      if (const launch_shape* shape = t->work.what->shape()) {
        auto* g = new grid(e);
        g->owner = t;
        ++t->references;
        g->call = t->work.what->call();
        g->module = &module_of(g->call->function());
        g->shape = *shape;
        g->device = t->device;
        g->number = ++e.launches;
        g->of_device = ++e.launches_of_device[t->device];
        g->live = shape->blocks() * shape->threads();
        g->completion = &t->completed;
        g->prior_runs = t->prior && !t->prior->done ? 1 : 0;
        g->identity = id;
        if (shape->cluster_blocks() > 1) begin_clusters(*g);
        e.grids.push_back(g);
        __atomic_store_n(&e.grid_count, static_cast<uint32_t>(e.grids.size()), __ATOMIC_RELAXED);
        continue;
      }
      void* const self = sanitizer::identity();
      sanitizer::become(id);
      const int error = t->work.what->run(*t);
      sanitizer::become(self);
      finish_order(*t, id);
      finish_task(*t, error);
    }
  }
}

void dispatcher::start_blocks() {
  for (grid* g : engine_.grids) start_blocks(*g);
}

void dispatcher::start_blocks(grid& g) {
  while (!g.failed && g.next_block < g.shape.blocks()) {
    const bool beyond = g.next_block < g.must_start;
    const uint32_t together = beyond ? 1 : g.shape.cluster_blocks();
    std::vector<int> taken;
    while (taken.size() < together) {
      const int one = engine_.gpus.take(g.device, engine_.config.multiprocessors, g.shape, beyond);
      if (one < 0) break;
      taken.push_back(one);
    }
    if (taken.size() < together) {
      for (const int one : taken) engine_.gpus.give_back(g.device, one, g.shape);
      return;
    }
    for (const int multiprocessor : taken) {
      const uint64_t rank = g.order.empty() ? g.next_block : g.order[g.next_block];
      ++g.next_block;
      auto* b = new block(g, rank, multiprocessor);
      if (g.shape.cluster_blocks() > 1) join_cluster(*b);
      g.running.push_back(b);
      engine_.add_ready_block(*b);
      b->start();
    }
  }
}

void dispatcher::join_blocks() {
  for (block* b : std::exchange(engine_.ending_blocks, {})) {
    b->my_turn.give();
    engine_.dispatcher_turn.await();
  }
  for (block* b : engine_.finished_blocks) {
    b->join();
    engine_.ended_threads_[engine_.ended_++ % engine::ended_kept] = b->thread_id;
    grid& g = b->launch;
    allow_next(*b);
    engine_.gpus.give_back(g.device, b->multiprocessor, g.shape);
    g.running.erase(std::find(g.running.begin(), g.running.end(), b));
    delete b;
  }
  engine_.finished_blocks.clear();
}

/// Ends launches that have no blocks left; a failed one is stopped block by block.
void dispatcher::end_grids() {
  engine& e = engine_;
  for (size_t i = 0; i < e.grids.size();) {
    grid& g = *e.grids[i];
    if (g.failed) {
      while (!g.running.empty()) {
        g.running.back()->my_turn.give();
        e.dispatcher_turn.await();
        join_blocks();
      }
    }
    if (!g.running.empty() || (!g.failed && g.next_block < g.shape.blocks())) {
      ++i;
      continue;
    }
    if (g.invalid_pages != 0 && !g.failed) {
      e.record_failure(describe_kernel(g) + " went on after invalid accesses, as above, to see what is behind them",
                       false);
      fail_grid(g, 700);  // cudaErrorIllegalAddress
    }
    e.grids.erase(e.grids.begin() + static_cast<std::ptrdiff_t>(i));
    __atomic_store_n(&e.grid_count, static_cast<uint32_t>(e.grids.size()), __ATOMIC_RELAXED);
    task* t = g.owner;
    const task_ref keep(t);
    --t->references;
    finish_order(*t, g.identity);
    end_beside(*t, g.error);
    finish_task(*t, g.error);
    delete &g;
  }
}

/// The launches that run beside `t`, which has ended: they go on, or fail with it.
void dispatcher::end_beside(const task& t, int error) {
  for (grid* g : engine_.grids) {
    if (g->owner->prior.get() != &t) continue;
    g->prior_runs = 0;
    engine_.dispatcher_wanted = true;
    if (error != 0 && !g->failed) fail_grid(*g, error);
  }
}

void dispatcher::run_blocks() {
  engine& e = engine_;
  e.step_limit = in_background_ ? e.steps + 20000 : never;
  for (const engine::waiter* w : e.waiters_) e.step_limit = std::min(e.step_limit, w->until_step);
  e.step_limit = std::min(e.step_limit, wake_step_);
  if (!e.background_tasks.empty() && !e.order.explores()) e.step_limit = std::min(e.step_limit, e.background_step_);
  e.order.begins();
  block* b = e.choose();
  if (b == nullptr) return;
  b->my_turn.give();
  uint64_t seen = e.progress;
  uint64_t since = real_time();
  while (!e.dispatcher_turn.await_for(500000000)) {
    // Another thread has the baton: only reads here, to see whether it makes progress.
    const uint64_t progress = __atomic_load_n(&e.progress, __ATOMIC_RELAXED);
    const uint64_t now = real_time();
    if (progress != seen) {
      seen = progress;
      since = now;
    } else if (e.config.watchdog != 0 && now - since > e.config.watchdog) {
      die_of_watchdog(e, __atomic_load_n(&e.running, __ATOMIC_RELAXED), now - since);
    }
  }
}

/// In explorations, while all threads wait: whether one of them need not any more, or a background task has something
/// to do.
bool dispatcher::network_goes_on() {
  engine& e = engine_;
  return e.order.explores() && !e.background_tasks.empty() && (e.peek() || e.network_is_next());
}

/// Background tasks take turns of random length at random times, so that what they do may be far behind kernels, or not
/// at all. Only at quiescence are they sure to go on. While a host waits to free memory they rest: the driver holds up
/// the copies of all other threads then.
bool dispatcher::step_background_tasks() {
  constexpr uint32_t max_parts = 4;
  constexpr uint32_t longest_pause = 64;  // scheduling steps
  engine& e = engine_;
  if (e.background_tasks.empty() || e.order.explores()) return false;
  e.background_step_ = e.steps + 1 + e.background_random_.below(longest_pause);
  if (e.waiting_frees != 0) return false;
  bool any = false;
  const auto count = static_cast<uint32_t>(e.background_tasks.size());
  const uint32_t first = e.background_random_.below(count);
  for (uint32_t i = 0; i < count; ++i) {
    background_work& one = *e.background_tasks[(first + i) % count];
    for (uint32_t part = e.background_random_.below(max_parts) + (any ? 0 : 1); part > 0; --part) {
      if (!one.step(e.background_random_)) break;
      any = true;
    }
  }
  return any;
}

/// While other launches run, hosts whose launches have ended are woken together: whether all hosts rest again is to be
/// found out once, and not after each launch of each rank. The delay is that of a GPU's report, some microseconds.
bool dispatcher::wakes_later() {
  constexpr uint64_t steps_for_each = 128;
  engine& e = engine_;
  const bool done = std::any_of(e.waiters_.begin(), e.waiters_.end(), [](const auto* w) { return w->what->holds(); });
  if (!done || e.ready_blocks.empty() || e.waiters_.size() == 1 || e.order.explores() || e.steps >= wake_step_) {
    wake_step_ = never;
    return false;
  }
  if (wake_step_ == never) wake_step_ = e.steps + steps_for_each * e.waiters_.size();
  return true;
}

void dispatcher::wake_hosts() {
  engine& e = engine_;
  const bool later = wakes_later();
  for (size_t i = 0; i < e.waiters_.size();) {
    engine::waiter* w = e.waiters_[i];
    if ((later || !w->what->holds()) && e.steps < w->until_step) {
      ++i;
      continue;
    }
    e.waiters_.erase(e.waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    ++e.returning_;
    e.hosts_moved = true;
    w->satisfied.give();
  }
}

}  // namespace devcomm::simulator::detail
