#include "engine/settings.hpp"

#include "base/environment.hpp"
#include "base/sanitizer.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace devcomm::simulator::detail {

const char* const store_delay_needs =
    "delayed stores need kernels that are compiled with DEVCOMM_SANITIZE=race, whose hooks report each store";

bool is_picture(std::string_view path) { return path.empty() || path.ends_with(".svg") || path.ends_with(".dot"); }

namespace {

schedule_choice schedule_from_environment() {
  const char* const text = variable("DEVCOMM_SIM_SCHEDULE");
  if (text == nullptr) return {};
  if (const auto choice = schedule_choice::parse(text)) return *choice;
  reject_variable("DEVCOMM_SIM_SCHEDULE", text, schedule_choice::forms);
}

multicast_kind multicast_from_environment() {
  const char* const text = variable("DEVCOMM_SIM_MULTICAST");
  if (text == nullptr || std::string_view(text) == "any_order") return multicast_kind::in_any_order;
  if (std::string_view(text) == "rank_order") return multicast_kind::in_rank_order;
  if (std::string_view(text) == "none") return multicast_kind::none;
  reject_variable("DEVCOMM_SIM_MULTICAST", text, "any_order, rank_order or none");
}

peer_groups peers_from_environment() {
  const char* const text = variable("DEVCOMM_SIM_PEERS");
  if (text == nullptr) return {};
  if (auto peers = peer_groups::parse(text)) return *peers;
  reject_variable("DEVCOMM_SIM_PEERS", text, peer_groups::forms);
}

/// The name of a picture file.
std::string picture_file(const char* name) {
  const char* const text = variable(name);
  if (text == nullptr) return {};
  if (is_picture(text)) return text;
  reject_variable(name, text, "a file name that ends in .svg or .dot");
}

constexpr uint64_t any = ~uint64_t{0};
constexpr uint64_t max_units = 65536;              // devices, or multiprocessors of one
constexpr uint64_t max_stack = uint64_t{1} << 30;  // bytes
constexpr uint64_t max_milliseconds = 1000000000;  // eleven days
constexpr uint64_t millisecond = 1000000;
constexpr uint64_t max_delay_steps = 1000000000;

uint64_t store_delay_from_environment() {
  const uint64_t steps = number_variable("DEVCOMM_SIM_STORE_DELAY", 0, 0, max_delay_steps);
  if (steps == 0 || sanitizer::exact()) return steps;
  std::fprintf(stderr, "devcomm simulator: DEVCOMM_SIM_STORE_DELAY is set, but %s\n", store_delay_needs);
  std::_Exit(2);
}

}  // namespace

settings settings_from_environment() {
  const bool sanitized = sanitizer::orders() || sanitizer::address();
  settings s{};
  s.seed = number_variable("DEVCOMM_SIM_SEED", 1, 0, any);
  s.schedule = schedule_from_environment();
  s.store_delay = store_delay_from_environment();
  s.multicast = multicast_from_environment();
  s.peers = peers_from_environment();
  s.devices = static_cast<int>(number_variable("DEVCOMM_SIM_DEVICES", 8, 1, max_units));
  s.named_devices = variable("DEVCOMM_SIM_DEVICES") != nullptr;
  s.multiprocessors = static_cast<int>(number_variable("DEVCOMM_SIM_MULTIPROCESSORS", 32, 1, max_units));
  s.arch = static_cast<int>(number_variable("DEVCOMM_SIM_ARCH", 90, 70, 999));
  s.stack_bytes = number_variable("DEVCOMM_SIM_STACK", sanitized ? 262144 : 65536, 16384, max_stack) / 4096 * 4096;
  s.watchdog = number_variable("DEVCOMM_SIM_WATCHDOG_MS", 30000, 0, max_milliseconds) * millisecond;
  s.grace = number_variable("DEVCOMM_SIM_GRACE_MS", 10000, 0, max_milliseconds) * millisecond;
  s.background_start = number_variable("DEVCOMM_SIM_BACKGROUND_MS", 500, 0, max_milliseconds) * millisecond;
  s.leak_exit_status = static_cast<int>(number_variable("DEVCOMM_SIM_LEAK_EXIT", 0, 0, 255));
  s.deadlock_picture = picture_file("DEVCOMM_SIM_DEADLOCK_PICTURE");
  return s;
}

std::string how_to_repeat(const settings& s) {
  std::string text = "seed " + std::to_string(s.seed);
  if (s.schedule.kind != schedule_kind::random) text += ", DEVCOMM_SIM_SCHEDULE=" + s.schedule.text();
  if (s.multicast == multicast_kind::in_rank_order) text += ", DEVCOMM_SIM_MULTICAST=rank_order";
  if (s.store_delay != 0) text += ", DEVCOMM_SIM_STORE_DELAY=" + std::to_string(s.store_delay);
  if (const char* const file = variable("DEVCOMM_SIM_REPLAY")) {
    text += std::string(", DEVCOMM_SIM_REPLAY=") + file;
  }
  return text;
}

}  // namespace devcomm::simulator::detail
