/// What programs may ask of the race detector.
#include "base/sanitizer.hpp"
#include "engine/engine.hpp"

#include <devcomm/simulator/simulator.hpp>

namespace devcomm::simulator {

namespace sanitizer = detail::sanitizer;

bool detects_races() { return sanitizer::exact(); }
std::uint64_t race_reports() { return sanitizer::exact() ? sanitizer::exact_port().reports() : 0; }
std::string last_race() { return sanitizer::exact() ? sanitizer::exact_port().last_report() : ""; }
void clear_races() {
  if (sanitizer::exact()) sanitizer::exact_port().clear_reports();
}
void set_race_exit_status(int status) {
  if (sanitizer::exact()) sanitizer::exact_port().set_exit_status(status);
}

}  // namespace devcomm::simulator
