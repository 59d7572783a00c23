/// \file task.hpp
/// An operation of a device and what has to come before it. Streams, events and graphs are made of
/// tasks; the dispatcher starts a task when all that it waits for is done.
#pragma once

#include "base/sanitizer.hpp"
#include "engine/grid.hpp"
#include "schedule/exploration.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace devcomm::simulator::detail {

class engine;
struct task;

/// What a task does; shared by all replays of a graph.
class operation {
 public:
  virtual ~operation() = default;
  /// Does it all, as ThreadSanitizer's identity of the task. Returns a cudaError_t.
  virtual int run(task& t) = 0;
  /// A kernel takes time; anything else is done when `run` returns.
  virtual const launch_shape* shape() const { return nullptr; }
  virtual const kernel_call* call() const { return nullptr; }
  /// Whether it runs in a stream that an earlier failure has stopped.
  [[nodiscard]] virtual bool runs_after_failure() const { return false; }
};

/// Counts references from host structures and from tasks that come later.
class task_ref {
 public:
  task_ref() = default;
  explicit task_ref(task* t);
  task_ref(const task_ref& other);
  task_ref(task_ref&& other) noexcept : task_(other.task_) { other.task_ = nullptr; }
  task_ref& operator=(task_ref other) noexcept {
    task* t = task_;
    task_ = other.task_;
    other.task_ = t;
    return *this;
  }
  ~task_ref();
  [[nodiscard]] task* get() const { return task_; }
  task* operator->() const { return task_; }
  explicit operator bool() const { return task_ != nullptr; }

 private:
  task* task_ = nullptr;
};

/// References to an operation, counted under the engine's lock.
struct operation_ref {
  operation* what = nullptr;
  uint32_t* count = nullptr;

  operation_ref() = default;
  explicit operation_ref(std::unique_ptr<operation> op) : what(op.release()), count(new uint32_t(1)) {}
  operation_ref(const operation_ref& o) : what(o.what), count(o.count) {
    if (count != nullptr) ++*count;
  }
  operation_ref& operator=(operation_ref o) noexcept {
    operation* w = what;
    uint32_t* c = count;
    what = o.what;
    count = o.count;
    o.what = w;
    o.count = c;
    return *this;
  }
  ~operation_ref() {
    if (count != nullptr && --*count == 0) {
      delete what;
      delete count;
    }
  }
};

/// The stream of a task.
struct task_queue {
  virtual ~task_queue() = default;

  int device = 0;
  uint64_t tasks = 0;         ///< that refer to it
  bool destroyed = false;     ///< goes with the last of them
  int error = 0;              ///< of a failed task, until a synchronization has returned it
  uint64_t failed_check = 0;  ///< `engine::error_checks` when `error` was set
};

struct task {
  task(engine& e, task_queue& q) : simulation(e), queue(&q), device(q.device) {}

  engine& simulation;
  operation_ref work;
  task_queue* queue;
  int device;
  uint32_t references = 0;
  uint32_t blockers = 0;  ///< tasks before it that are not done
  bool done = false;
  int error = 0;
  uint64_t end_time = 0;         ///< simulated
  task_ref prior;                ///< of a programmatic launch: the launch beside which it may run
  bool lets_next_start = false;  ///< all blocks have allowed the next launch
  bool awaited_by_next = false;  ///< the launch that may run beside it has waited for its end
  std::vector<task_ref> beside;  ///< to start then
  std::vector<task_ref> before;
  std::vector<task_ref> after;
  sanitizer::cell submitted;  ///< released by the host thread that gave the task
  sanitizer::cell completed;  ///< released at the end of the work
  // In explorations.
  uint64_t execution = 0;  ///< in which it was given
  step_clock comes_after;  ///< steps before its first
  step_clock ends_after;   ///< steps before its end
};

/// A task of the queue is gone.
inline void forget_task(task_queue& queue) {
  if (--queue.tasks == 0 && queue.destroyed) delete &queue;
}

inline task_ref::task_ref(task* t) : task_(t) {
  if (t != nullptr) ++t->references;
}
inline task_ref::task_ref(const task_ref& other) : task_ref(other.task_) {}
inline task_ref::~task_ref() {
  if (task_ == nullptr || --task_->references != 0) return;
  task_queue& queue = *task_->queue;
  delete task_;
  forget_task(queue);
}

}  // namespace devcomm::simulator::detail
