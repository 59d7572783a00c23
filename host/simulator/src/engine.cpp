#include "engine.hpp"

#include "conductor.hpp"
#include "host_port.hpp"
#include "memory_names.hpp"

#include <pthread.h>
#include <diagnostics/live_objects.hpp>

#include <cstdio>
#include <cstdlib>

namespace devcomm::simulator::detail {
namespace {

void* conduct(void*) {
  conductor(the_engine()).run();
  return nullptr;
}

/// Of windows and device communicators.
void report_leaks() {
  const std::size_t leaks = host::detail::live_objects::report_all();
  const int status = leaks == 0 ? 0 : the_engine().config.leak_exit_status;
  if (status == 0) return;
  std::fflush(nullptr);
  std::_Exit(status);
}

/// Before the constructors of the program's static objects, which may own some: so it comes after their destructors.
__attribute__((constructor(101))) void expect_end() { std::atexit(&report_leaks); }

}  // namespace

engine& the_engine() {
  static auto& only = *new engine;
  return only;
}

engine::engine()
    : config(settings_from_environment()), order(config.schedule, config.seed, schedule_log::from_environment()) {
  explain_address_reports();
  sanitizer::set_late(config.late_stores, config.seed, &steps);
}

void engine::restart() {
  schedule next(config.schedule, config.seed, nullptr);
  next.take_log(order);
  order = std::move(next);
  trace = 0;
  launches = 0;
  last_peek_ = steps;
  sanitizer::set_late(shared_with_processes ? 0 : config.late_stores, config.seed, &steps);
}

void engine::poke() {
  last_call_ = real_time();
  __atomic_fetch_add(&event_, 1u, __ATOMIC_RELEASE);
  if (!conductor_started_) {
    conductor_started_ = true;
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &conduct, nullptr) != 0) {
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
  conductor_wanted = true;
  poke();
}

void engine::host_wait(condition& c) { wait(c, never); }
void engine::host_wait_steps(condition& c, uint64_t allowed) { wait(c, steps + allowed); }

void engine::wait(condition& c, uint64_t until_step) {
  if (c.holds()) return;
  waiter w{&c, until_step, syscall(SYS_gettid), {}};
  waiters_.push_back(&w);
  conductor_wanted = true;
  poke();
  lock.unlock();
  w.satisfied.await();
  lock.lock();
  --returning_;
}

void note_shared_memory() {
  const engine_guard hold;
  engine& e = the_engine();
  if (e.shared_with_processes) return;
  e.shared_with_processes = true;
  sanitizer::set_late(0, 0, nullptr);   // other processes would see them come and go
  e.real_offset = e.now - real_time();  // wraps; the sum does again
}

void begin_looking_on() {
  const engine_guard hold;
  the_engine().onlookers.push_back(syscall(SYS_gettid));
}

void end_looking_on() {
  const engine_guard hold;
  std::erase(the_engine().onlookers, syscall(SYS_gettid));
}

bool kernels_run() { return __atomic_load_n(&the_engine().grid_count, __ATOMIC_RELAXED) != 0; }

}  // namespace devcomm::simulator::detail
