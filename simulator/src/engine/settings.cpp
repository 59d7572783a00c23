#include "engine/settings.hpp"

#include "base/sanitizer.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace devcomm::simulator::detail {

const char* const late_needs =
    "late stores need kernels that are compiled with DEVCOMM_SANITIZE=race, whose hooks tell of each store";

bool is_picture(std::string_view path) { return path.empty() || path.ends_with(".svg") || path.ends_with(".dot"); }

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

std::string how_to_repeat(const settings& s) {
  std::string text = "seed " + std::to_string(s.seed);
  if (s.schedule.kind != schedule_kind::random) text += ", DEVCOMM_SIM_SCHEDULE=" + s.schedule.text();
  if (s.late_stores != 0) text += ", DEVCOMM_SIM_LATE_STORES=" + std::to_string(s.late_stores);
  if (const char* file = std::getenv("DEVCOMM_SIM_REPLAY"); file != nullptr && *file != '\0') {
    text += std::string(", DEVCOMM_SIM_REPLAY=") + file;
  }
  return text;
}

}  // namespace devcomm::simulator::detail
