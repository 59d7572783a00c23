#include "settings.hpp"

#include "engine.hpp"
#include "host_accesses.hpp"
#include "sanitizer.hpp"

#include <devcomm/simulator/simulator.hpp>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace devcomm::simulator {
namespace detail {
namespace {

/// A whole number from the environment, or `otherwise`; a value that is none, or out of range, ends the
/// program, as simulating something else than was asked for helps nobody.
uint64_t number(const char* name, uint64_t otherwise, uint64_t least, uint64_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 0);
  const bool whole = end != text && *end == '\0' && std::strchr(text, '-') == nullptr && errno == 0;
  if (!whole || value < least || value > most) {
    std::fprintf(stderr, "devcomm simulator: %s is '%s'; give a whole number from %" PRIu64 " to %" PRIu64 "\n", name,
                 text, least, most);
    std::_Exit(2);
  }
  return value;
}

schedule_choice schedule_from_environment() {
  const char* text = std::getenv("DEVCOMM_SIM_SCHEDULE");
  if (text == nullptr || *text == '\0') return {};
  const auto choice = schedule_choice::parse(text);
  if (choice) return *choice;
  std::fprintf(stderr, "devcomm simulator: DEVCOMM_SIM_SCHEDULE is '%s'; give %s\n", text, schedule_choice::forms);
  std::_Exit(2);
}

bool is_picture(std::string_view path) { return path.empty() || path.ends_with(".svg") || path.ends_with(".dot"); }

/// A file name that says what kind of picture it is.
std::string picture_file(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return {};
  if (is_picture(text)) return text;
  std::fprintf(stderr, "devcomm simulator: %s is '%s'; give a file name that ends in .svg or .dot\n", name, text);
  std::_Exit(2);
}

constexpr uint64_t any = ~uint64_t{0};
constexpr uint64_t most_units = 65536;              // devices, or multiprocessors of one
constexpr uint64_t most_stack = uint64_t{1} << 30;  // bytes
constexpr uint64_t most_milliseconds = 1000000000;  // eleven days
constexpr uint64_t millisecond = 1000000;
constexpr uint64_t most_late_steps = 1000000000;
constexpr const char* late_needs =
    "late stores need kernels that are compiled with DEVCOMM_SANITIZE=race, whose hooks tell of each store";

uint64_t late_stores_from_environment() {
  const uint64_t steps = number("DEVCOMM_SIM_LATE_STORES", 0, 0, most_late_steps);
  if (steps == 0 || sanitizer::exact()) return steps;
  std::fprintf(stderr, "devcomm simulator: DEVCOMM_SIM_LATE_STORES is set, but %s\n", late_needs);
  std::_Exit(2);
}

}  // namespace

settings settings_from_environment() {
  const bool sanitized = sanitizer::orders() || sanitizer::address();
  settings s{};
  s.seed = number("DEVCOMM_SIM_SEED", 1, 0, any);
  s.schedule = schedule_from_environment();
  s.late_stores = late_stores_from_environment();
  s.devices = static_cast<int>(number("DEVCOMM_SIM_DEVICES", 8, 1, most_units));
  s.multiprocessors = static_cast<int>(number("DEVCOMM_SIM_MULTIPROCESSORS", 32, 1, most_units));
  s.stack_bytes = number("DEVCOMM_SIM_STACK", sanitized ? 262144 : 65536, 16384, most_stack) / 4096 * 4096;
  s.watchdog = number("DEVCOMM_SIM_WATCHDOG_MS", 30000, 0, most_milliseconds) * millisecond;
  s.grace = number("DEVCOMM_SIM_GRACE_MS", 10000, 0, most_milliseconds) * millisecond;
  s.background_start = number("DEVCOMM_SIM_BACKGROUND_MS", 500, 0, most_milliseconds) * millisecond;
  s.leak_exit_status = static_cast<int>(number("DEVCOMM_SIM_LEAK_EXIT", 0, 0, 255));
  s.deadlock_picture = picture_file("DEVCOMM_SIM_DEADLOCK_PICTURE");
  return s;
}

std::string how_to_repeat() {
  const settings& s = the_engine().config;
  std::string text = "seed " + std::to_string(s.seed);
  if (s.schedule.kind != schedule_kind::random) text += ", DEVCOMM_SIM_SCHEDULE=" + s.schedule.text();
  if (s.late_stores != 0) text += ", DEVCOMM_SIM_LATE_STORES=" + std::to_string(s.late_stores);
  if (const char* file = std::getenv("DEVCOMM_SIM_REPLAY"); file != nullptr && *file != '\0') {
    text += std::string(", DEVCOMM_SIM_REPLAY=") + file;
  }
  return text;
}

}  // namespace detail

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

void set_late_stores(std::uint64_t steps) {
  if (steps != 0 && !detail::sanitizer::exact()) {
    throw std::logic_error(std::string("devcomm simulator: ") + detail::late_needs);
  }
  const engine_guard hold;
  the_engine().config.late_stores = steps;
  the_engine().restart();
}

std::uint64_t late_stores() {
  const engine_guard hold;
  return the_engine().config.late_stores;
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

}  // namespace devcomm::simulator
