#include "engine/task_order.hpp"

#include "engine/engine.hpp"
#include "engine/explorer.hpp"

#include <utility>

namespace devcomm::simulator::detail {
task_ref make_task(engine& e, task_queue& queue, const operation_ref& work) {
  task_ref t(new task(e, queue));
  t->work = work;
  ++queue.tasks;
  t->blockers = 1;  // until submitted
  ++e.unfinished_tasks;
  if (work.what->shape() != nullptr) ++e.unfinished_launches;
  ++e.unfinished_of_device[t->device];
  return t;
}

void comes_after(task& later, const task_ref& earlier) {
  if (!earlier || earlier.get() == &later) return;
  later.before.push_back(earlier);  // also when done: it orders memory
  if (earlier->done) return;
  earlier->after.emplace_back(&later);
  ++later.blockers;
}

bool starts_beside(task& later, const task_ref& earlier) {
  if (!earlier || earlier->done || earlier->work.what->shape() == nullptr) return false;
  later.prior = earlier;
  for (const task_ref& first : earlier->before) comes_after(later, first);
  if (!earlier->lets_next_start) {
    earlier->beside.emplace_back(&later);
    ++later.blockers;
  }
  return true;
}

void let_next_start(task& t) {
  if (t.lets_next_start) return;
  t.lets_next_start = true;
  const std::vector<task_ref> next = std::move(t.beside);
  t.beside.clear();
  for (const task_ref& later : next) {
    if (--later->blockers == 0) t.simulation.add_ready(*later.get());
  }
  if (!next.empty()) t.simulation.dispatcher_wanted = true;
}

void submit(const task_ref& t) {
  sanitizer::release(t->submitted);
  engine& e = t->simulation;
  if (e.explored_by != nullptr) e.explored_by->submitted(*t.get());
  task_queue& queue = *t->queue;
  if (queue.error != 0 && queue.failed_check != e.error_checks) queue.error = 0;
  if (--t->blockers == 0) e.add_ready(*t.get());
}

void finish_task(task& t, int error) {
  const task_ref keep(&t);
  engine& e = t.simulation;
  t.done = true;
  t.error = error;
  t.end_time = e.now;
  --e.unfinished_tasks;
  --e.unfinished_of_device[t.device];
  if (t.work.what->shape() != nullptr) --e.unfinished_launches;
  if (error != 0 && t.queue->error == 0) {
    t.queue->error = error;
    t.queue->failed_check = e.error_checks;
    e.note_fault(t.device, error);
  }
  let_next_start(t);
  t.work = operation_ref();
  t.before.clear();
  t.prior = task_ref();
  const std::vector<task_ref> after = std::move(t.after);
  t.after.clear();
  for (const task_ref& next : after) {
    if (--next->blockers == 0) e.add_ready(*next.get());
  }
  // What hosts wait for may hold now.
  e.dispatcher_wanted = true;
}

int fetch_error(engine& e, task_queue& queue) {
  const int own = std::exchange(queue.error, 0);
  const auto broken = e.faults.find(queue.device);
  if (broken == e.faults.end() || broken->second.reset) return own;
  broken->second.returned = true;
  return own != 0 ? own : broken->second.error;
}

void* identity_of(task& t) {
  if (const explorer* const e = t.simulation.explored_by) e->begins(t);
  if (!sanitizer::orders()) return nullptr;
  void* const self = sanitizer::identity();
  void* const id = sanitizer::new_identity();
  sanitizer::become(id);
  sanitizer::acquire(t.submitted);
  for (const task_ref& earlier : t.before) sanitizer::acquire(earlier->completed);
  sanitizer::become(self);
  if (sanitizer::exact()) {
    const kernel_call* call = t.work.what->call();
    sanitizer::exact_port().begin_task(id, t.device, call == nullptr ? nullptr : call->function());
  }
  return id;
}

void awaited(task& t) {
  sanitizer::acquire(t.completed);
  if (const explorer* const e = t.simulation.explored_by) e->awaited(t);
}

void finish_order(task& t, void* identity) {
  if (identity == nullptr) return;
  void* const self = sanitizer::identity();
  sanitizer::become(identity);
  sanitizer::release(t.completed);
  sanitizer::become(self);
  if (sanitizer::exact()) sanitizer::exact_port().end_task(identity, &t.completed.word);
  sanitizer::drop_identity(identity);
}

}  // namespace devcomm::simulator::detail
