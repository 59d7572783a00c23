/// \file task_order.hpp
/// What comes before and after a task, for the dispatcher, for race detectors and for explorations.
#pragma once

#include "engine/task.hpp"

namespace devcomm::simulator::detail {

/// A task of `queue` that comes after `before`; not yet known to the dispatcher.
[[nodiscard]] task_ref make_task(engine& e, task_queue& queue, const operation_ref& work);
void comes_after(task& later, const task_ref& earlier);
/// `later` starts once `earlier`, a launch, lets it; false where it has to come after it. What `earlier` did is not
/// ordered before it, what came before that is.
bool starts_beside(task& later, const task_ref& earlier);
/// All blocks of the launch `t` have allowed the next one to start.
void let_next_start(task& t);
/// All its predecessors have been added.
void submit(const task_ref& t);
/// The work is done; readies what comes after. With the baton.
void finish_task(task& t, int error);

/// The error of the queue's failed task, which the caller hands to the program.
[[nodiscard]] int fetch_error(engine& e, task_queue& queue);

/// A race detector's identity for the work of `t`, ordered after what comes before it.
[[nodiscard]] void* identity_of(task& t);
/// What the calling host thread does is ordered after `t`, which is done.
void awaited(task& t);
/// What comes after `t` is ordered after what `identity`, which ends, has done.
void finish_order(task& t, void* identity);

}  // namespace devcomm::simulator::detail
