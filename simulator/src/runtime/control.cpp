/// What programs set and ask of the simulation: <devcomm/simulator/simulator.hpp>.
#include <devcomm/simulator/simulator.hpp>

#include "base/sanitizer.hpp"
#include "gpu/host_accesses.hpp"
#include "runtime/simulation.hpp"

#include <stdexcept>
#include <string>
#include <string_view>

namespace devcomm::simulator {

namespace sanitizer = detail::sanitizer;
using detail::engine_guard;
using detail::the_engine;

void set_device_count(int devices) {
  const engine_guard hold;
  the_engine().config.devices = devices;
}

void set_multiprocessors(int count) {
  const engine_guard hold;
  the_engine().config.multiprocessors = count;
}

void set_seed(std::uint64_t seed) {
  const engine_guard hold;
  the_engine().config.seed = seed;
  the_engine().restart();
}

std::uint64_t seed() {
  const engine_guard hold;
  return the_engine().config.seed;
}

void set_schedule(std::string_view text) {
  const auto choice = detail::schedule_choice::parse(text);
  if (!choice) {
    throw std::invalid_argument("devcomm simulator: '" + std::string(text) + "' is no schedule; give " +
                                detail::schedule_choice::forms);
  }
  const engine_guard hold;
  the_engine().config.schedule = *choice;
  the_engine().restart();
}

std::string schedule() {
  const engine_guard hold;
  return the_engine().config.schedule.text();
}

void set_multicast(multicast kind) {
  const engine_guard hold;
  the_engine().config.multicast = kind == multicast::none           ? detail::multicast_kind::none
                                  : kind == multicast::in_any_order ? detail::multicast_kind::in_any_order
                                                                    : detail::multicast_kind::in_rank_order;
}

void set_peers(std::string_view groups) {
  const auto peers = detail::peer_groups::parse(groups);
  if (!peers) {
    throw std::invalid_argument("devcomm simulator: '" + std::string(groups) + "' names no groups; give " +
                                detail::peer_groups::forms);
  }
  const engine_guard hold;
  the_engine().config.peers = *peers;
}

void set_store_delay(std::uint64_t steps) {
  if (steps != 0 && !sanitizer::exact()) {
    throw std::logic_error(std::string("devcomm simulator: ") + detail::store_delay_needs);
  }
  const engine_guard hold;
  the_engine().config.store_delay = steps;
  the_engine().restart();
}

std::uint64_t store_delay() {
  const engine_guard hold;
  return the_engine().config.store_delay;
}

void set_stack_bytes(std::size_t bytes) {
  const engine_guard hold;
  the_engine().config.stack_bytes = (bytes + 4095) / 4096 * 4096;
}

void set_watchdog(std::chrono::milliseconds limit) {
  const engine_guard hold;
  the_engine().config.watchdog = static_cast<uint64_t>(limit.count()) * 1000000u;
}

void set_grace(std::chrono::milliseconds limit) {
  const engine_guard hold;
  the_engine().config.grace = static_cast<uint64_t>(limit.count()) * 1000000u;
}

void set_background_start(std::chrono::milliseconds delay) {
  const engine_guard hold;
  the_engine().config.background_start = static_cast<uint64_t>(delay.count()) * 1000000u;
}

void set_deadlock_picture(const std::string& path) {
  if (!detail::is_picture(path)) {
    throw std::invalid_argument("set_deadlock_picture: '" + path + "' ends neither in .svg nor in .dot");
  }
  const engine_guard hold;
  the_engine().config.deadlock_picture = path;
}

std::string last_failure() {
  const engine_guard hold;
  the_engine().see_failures();
  return the_engine().failure_text();
}

void clear_failure() {
  const engine_guard hold;
  the_engine().forget_failures();
}

statistics get_statistics() {
  const engine_guard hold;
  const detail::engine& e = the_engine();
  return {e.steps, e.switches, e.handoffs, e.trace, e.now, detail::host_accesses()};
}

// --- the race detector ---

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
