#include "runtime/simulation.hpp"

#include "engine/dispatcher.hpp"
#include "engine/fiber.hpp"
#include "runtime/fault.hpp"
#include "runtime/host_thread.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <diagnostics/abort_state.hpp>
#include <diagnostics/live_objects.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace devcomm::simulator::detail {
namespace {

constinit engine* made = nullptr;

engine& make_engine() {
  explain_faults();
  made =
      new engine(settings_from_environment(), schedule_log::from_environment(), [](engine& e) { dispatcher(e).run(); });
  return *made;
}

class all_launches_done final : public condition {
 public:
  bool holds() override { return made->unfinished_launches == 0; }
};

/// Ends a program as failed that would end well without having seen whether its kernels were right.
void report_unseen(int status, void*) {
  constexpr int unseen_status = 65;
  if (status != 0 || made == nullptr) return;
  const bool unseen_waits = host::detail::abort_state::report_all_unseen();
  {
    const engine_guard hold;
    const bool failed = !made->faults.empty();
    const char* const refused = unseen_refusal();
    if (!failed && refused == nullptr && !unseen_waits) return;
    if (!failed && refused != nullptr) {
      std::fprintf(stderr,
                   "devcomm simulator: the program ends well although a launch by <<<>>> was refused: %s. Call "
                   "cudaGetLastError after each launch, and check what that returns\n",
                   refused);
    } else if (failed) {
      const bool returned = std::any_of(made->faults.begin(), made->faults.end(),
                                        [](const auto& broken) { return broken.second.returned; });
      std::fprintf(
          stderr,
          "devcomm simulator: the program ends well although a launch has failed, %s: %s. Synchronize with each "
          "stream, and check what that returns%s\n",
          returned ? "and calls have returned the error" : "as no call has returned the error",
          made->failure_text().c_str(),
          returned ? "; a test that expects the failure reads devcomm::simulator::last_failure()" : "");
    }
  }
  static_cast<void>(host::detail::live_objects::report_all());
  std::fflush(nullptr);
  std::_Exit(unseen_status);
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
__attribute__((constructor(101))) void expect_end() {
  std::atexit(&report_leaks);
  on_exit(&report_unseen, nullptr);
}

}  // namespace

void await_launches_at_end() {
  static const bool once = [] {
    // After the race detector's own, so before it.
    return on_exit(
               [](int status, void*) {
                 const engine_guard hold;
                 all_launches_done done;
                 if (status == 0 && !made->order.explores()) made->host_wait(done);
               },
               nullptr) == 0;
  }();
  static_cast<void>(once);
}

engine& the_engine() {
  static auto& only = make_engine();
  return only;
}

std::string how_to_repeat() { return how_to_repeat(the_engine().config); }

uint64_t clock_now() { return this_fiber != nullptr ? read_clock(*this_fiber) : the_engine().read_clock(); }

}  // namespace devcomm::simulator::detail
