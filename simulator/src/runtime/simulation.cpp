#include "runtime/simulation.hpp"

#include "engine/dispatcher.hpp"
#include "engine/fiber.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <diagnostics/live_objects.hpp>

#include <cstdio>
#include <cstdlib>

namespace devcomm::simulator::detail {
namespace {

engine& make_engine() {
  return *new engine(settings_from_environment(), schedule_log::from_environment(),
                     [](engine& e) { dispatcher(e).run(); });
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
  static auto& only = make_engine();
  return only;
}

std::string how_to_repeat() { return how_to_repeat(the_engine().config); }

uint64_t clock_now() { return this_fiber != nullptr ? read_clock(*this_fiber) : the_engine().read_clock(); }

}  // namespace devcomm::simulator::detail
