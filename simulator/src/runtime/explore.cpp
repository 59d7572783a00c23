/// Runs a program under an exploration.
#include <devcomm/simulator/explore.hpp>
#include <devcomm/simulator/simulator.hpp>

#include "engine/explorer.hpp"
#include "gpu/device_memory.hpp"
#include "runtime/simulation.hpp"
#include "runtime/stream.hpp"

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace devcomm::simulator {
namespace {

using detail::engine_guard;
using detail::the_engine;

/// Has the explorer choose, until the end of the scope.
class rules {
 public:
  explicit rules(detail::explorer* who) {
    const engine_guard hold;
    if (the_engine().order.explores())
      throw std::logic_error("explore: called from within an exploration; let that end first");
    if (!the_engine().grids.empty()) throw std::logic_error("explore: kernels run; wait for them first");
    if (the_engine().config.store_delay != 0) {
      throw std::logic_error("explore: stores are delayed; set_store_delay(0), or unset DEVCOMM_SIM_STORE_DELAY");
    }
    the_engine().explored_by = who;
    the_engine().order.begin_exploring(who);
    detail::begin_executions();
  }
  ~rules() {
    const engine_guard hold;
    the_engine().explored_by = nullptr;
    the_engine().order.end_exploring();
    detail::end_executions();
  }
  rules(const rules&) = delete;
  rules& operator=(const rules&) = delete;
};

/// What one execution of `body` failed with; empty for nothing.
std::string run(const std::function<void()>& body) {
  const std::uint64_t races = race_reports();
  clear_failure();
  {
    const engine_guard hold;
    for (detail::background_work* const one : the_engine().background_tasks) one->restore();
    the_engine().restart();
    detail::restart_execution();
    the_engine().launches_of_device.clear();
    the_engine().order.count_from_start();
  }
  std::string failure;
  try {
    body();
  } catch (const std::exception& thrown) {
    failure = thrown.what();
  } catch (...) {
    failure = "an exception of unknown type";
  }
  {
    const engine_guard hold;
    for (int device = 0; device < the_engine().config.devices; ++device) {
      static_cast<void>(detail::synchronize_device(device));
    }
    the_engine().finish_network();
    if (failure.empty() && the_engine().explored_by != nullptr &&
        the_engine().explored_by->unfinished_operations() != 0)
      failure = "an operation of the network could not be done; device_communicator::check says which";
  }
  const std::string launch = last_failure();
  if (!launch.empty()) failure = failure.empty() ? launch : failure + "; " + launch;
  if (race_reports() != races) failure = failure.empty() ? last_race() : failure + "; " + last_race();
  return failure;
}

bool shares_memory() {
  const engine_guard hold;
  return the_engine().shared_with_processes;
}

/// From here on each execution finds the network's proxies, and the resources of their device communicators, as they
/// are.
void keep_network() {
  const engine_guard hold;
  for (detail::background_work* const one : the_engine().background_tasks) {
    detail::random_choice first(1);
    while (one->step(first)) {
    }
    if (!one->keep()) throw std::logic_error("explore: the network has failed; see device_communicator::check");
  }
}

exploration_result repeat(const std::function<void()>& body) {
  const rules hold(nullptr);
  exploration_result result;
  result.failure = run(body);
  result.executions = 1;
  return result;
}

/// The failure, with what repeats it.
std::string describe(const std::string& failure, const detail::explorer& who, const std::string& file) {
  std::string text = "execution " + std::to_string(who.search().executions()) + " fails: " + failure;
  if (file.empty()) return text;
  if (!who.write_schedule(file)) return text + "\n  its schedule could not be written to " + file;
  return text + "\n  to repeat it: DEVCOMM_SIM_REPLAY=" + file;
}

}  // namespace

exploration_result explore(const explore_options& options, const std::function<void()>& body) {
  bool repeats = false;
  {
    const engine_guard hold;
    repeats = the_engine().order.replays();
  }
  if (repeats) return repeat(body);
  detail::explorer who(options.reduction, options.steps);
  const rules hold(&who);
  keep_network();
  exploration_result result;
  do {
    if (who.search().executions() == options.executions) {
      result.failure = "not complete: " + std::to_string(options.executions) +
                       " executions were not all; make the program smaller or raise explore_options::executions";
      break;
    }
    who.begin();
    const std::string failure = run(body);
    if (!failure.empty()) {
      result.failure = describe(failure, who, options.schedule_file);
      break;
    }
    if (shares_memory()) {
      result.failure =
          "not complete: memory is shared with other processes, or the network's proxy is a thread of its own, which "
          "explorations do not vary; unset DEVCOMM_GIN_PROVIDER";
      break;
    }
    if (who.too_much_under_way()) {
      result.failure =
          "not complete: so many operations of the network are under way at once that its proxy holds some back; make "
          "the program smaller";
      break;
    }
    if (who.search().too_long()) {
      result.failure = "not complete: an execution has more than " + std::to_string(options.steps) +
                       " steps; make the program smaller or raise explore_options::steps";
      break;
    }
  } while (who.end());
  if (who.search().irregular()) {
    result.failure = "execution " + std::to_string(who.search().executions()) +
                     " does not repeat an earlier one: the body must start from the same state each time, and "
                     "must not depend on time, nor on addresses";
  }
  result.executions = who.search().executions();
  result.redundant = who.search().redundant();
  result.longest = who.search().longest();
  result.complete = who.search().complete();
  return result;
}

}  // namespace devcomm::simulator
