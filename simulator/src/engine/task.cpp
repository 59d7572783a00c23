#include "engine/task.hpp"

namespace devcomm::simulator::detail {
namespace {

void drop(task* t) {
  if (t == nullptr || --t->references != 0) return;
  task_queue& queue = *t->queue;
  delete t;
  forget_task(queue);
}

}  // namespace

task_ref::task_ref(task* t) : task_(t) {
  if (t != nullptr) ++t->references;
}
task_ref::task_ref(const task_ref& other) : task_ref(other.task_) {}
task_ref::~task_ref() { drop(task_); }

void forget_task(task_queue& queue) {
  if (--queue.tasks == 0 && queue.destroyed) delete &queue;
}

}  // namespace devcomm::simulator::detail
