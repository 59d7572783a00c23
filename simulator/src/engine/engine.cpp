#include "engine/engine.hpp"

#include "base/sanitizer.hpp"
#include "engine/task.hpp"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

/// What the thread that `poke` starts is given.
struct dispatcher_start {
  engine* simulation;
  void (*dispatch)(engine&);
};

void* dispatch(void* argument) {
  const dispatcher_start given = *static_cast<const dispatcher_start*>(argument);
  delete static_cast<const dispatcher_start*>(argument);
  given.dispatch(*given.simulation);
  return nullptr;
}

}  // namespace

engine::engine(const settings& first, std::unique_ptr<schedule_log> log, void (*dispatch)(engine&))
    : config(first),
      order(config.schedule, config.seed, std::move(log)),
      dispatch_(dispatch),
      background_random_(config.seed) {
  sanitizer::set_store_delay(config.store_delay, config.seed, &steps);
  copies.restart(config.seed);
}

void engine::restart() {
  schedule next(config.schedule, config.seed, nullptr);
  next.take_log(order);
  order = std::move(next);
  trace = 0;
  launches = 0;
  last_peek_ = steps;
  background_random_ = random_choice(config.seed);
  copies.restart(config.seed);
  background_step_ = steps;
  sanitizer::set_store_delay(shared_with_processes ? 0 : config.store_delay, config.seed, &steps);
}

void engine::poke() {
  last_call_ = real_time();
  __atomic_fetch_add(&event_, 1u, __ATOMIC_RELEASE);
  if (!dispatcher_started_) {
    dispatcher_started_ = true;
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &dispatch, new dispatcher_start{this, dispatch_}) != 0) {
      std::fprintf(stderr, "devcomm simulator: cannot start its thread: raise the limit of threads or memory\n");
      std::abort();
    }
    pthread_detach(thread);
  }
  futex_wake(&event_, 1);
}

void engine::add_ready(task& t) {
  ++t.references;
  ready_tasks_.push_back(&t);
  dispatcher_wanted = true;
  poke();
}

void engine::host_wait(condition& c) { wait(c, never); }
void engine::host_wait_steps(condition& c, uint64_t allowed) { wait(c, steps + allowed); }

void engine::wait(condition& c, uint64_t until_step) {
  if (c.holds()) return;
  waiter w{&c, until_step, syscall(SYS_gettid), {}};
  waiters_.push_back(&w);
  dispatcher_wanted = true;
  poke();
  lock.unlock();
  w.satisfied.await();
  lock.lock();
  --returning_;
}

uint64_t engine::read_clock() {
  now += step_time;
  follow_real_time();
  return now;
}

}  // namespace devcomm::simulator::detail
