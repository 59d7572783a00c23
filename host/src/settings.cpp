#include "settings.hpp"

#include <devcomm/host/error.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

namespace devcomm::host::detail {
namespace {

[[noreturn]] void reject(const char* name, const std::string& value, const char* expected) {
  throw invalid_argument(std::string(name) + " is \"" + value + "\"; set it to " + expected + ", or unset it");
}

template <class Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr int most_ranks = 1 << 20;
constexpr double most_seconds = 1e9;

}  // namespace

environment process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

communicator_options apply_environment(communicator_options options, const environment& variables) {
  if (const auto text = variables("DEVCOMM_LSA_SIZE")) {
    const auto size = parse<int>(*text);
    if (!size || *size < 1 || *size > most_ranks) {
      reject("DEVCOMM_LSA_SIZE", *text, "a number of ranks from 1 that divides the size of the job");
    }
    options.lsa_size = *size;
  }
  if (const auto text = variables("DEVCOMM_TIMEOUT")) {
    const auto seconds = parse<double>(*text);
    if (!seconds || !(*seconds > 0) || *seconds > most_seconds) {
      reject("DEVCOMM_TIMEOUT", *text, "a number of seconds above 0 and up to 1000000000");
    }
    options.kernel_timeout = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(*seconds));
  }
  if (const auto text = variables("DEVCOMM_CHECK_LAUNCH")) {
    if (*text != "0" && *text != "1") reject("DEVCOMM_CHECK_LAUNCH", *text, "0 or 1");
    options.check_launch = *text == "1";
  }
  if (options.lsa_size < 0) {
    throw invalid_argument("lsa_size is " + std::to_string(options.lsa_size) +
                           "; give 0 (as many as can reach each other) or a divisor of the size");
  }
  if (options.kernel_timeout.count() <= 0 || options.kernel_timeout > std::chrono::duration<double>(most_seconds)) {
    throw invalid_argument("kernel_timeout is " + std::to_string(options.kernel_timeout.count()) +
                           " ms; give a time above 0 and up to 1000000000 s");
  }
  if (options.limit.count() <= 0) {
    throw invalid_argument("limit is " + std::to_string(options.limit.count()) + " ms; give a time above 0");
  }
  return options;
}

handle_kind wanted_handle(const environment& variables) {
  const auto text = variables("DEVCOMM_MEMORY_HANDLE");
  if (!text) return handle_kind::none;
  if (*text == "file_descriptor") return handle_kind::file_descriptor;
  if (*text == "fabric") return handle_kind::fabric;
  reject("DEVCOMM_MEMORY_HANDLE", *text, "\"file_descriptor\" or \"fabric\"");
}

int wanted_ranks(const environment& variables, int otherwise) {
  const auto text = variables("DEVCOMM_RANKS");
  if (!text) return otherwise;
  const auto ranks = parse<int>(*text);
  if (!ranks || *ranks < 1 || *ranks > most_ranks) reject("DEVCOMM_RANKS", *text, "a number of ranks from 1");
  return *ranks;
}

watchdog_options watchdog_from(const environment& variables) {
  watchdog_options options;
  if (const auto text = variables("DEVCOMM_WATCHDOG_AFTER")) {
    const auto seconds = parse<double>(*text);
    if (!seconds || !(*seconds >= 0) || *seconds > most_seconds) {
      reject("DEVCOMM_WATCHDOG_AFTER", *text, "a number of seconds from 0 (only when asked) to 1000000000");
    }
    options.after = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(*seconds));
  }
  if (const auto text = variables("DEVCOMM_WATCHDOG_SIGNAL")) {
    if (*text != "0" && *text != "1") reject("DEVCOMM_WATCHDOG_SIGNAL", *text, "0 or 1");
    options.on_signal = *text == "1";
  }
  return options;
}

std::string multicast_forbidden(const environment& variables) {
  for (const char* name : {"DEVCOMM_NVLS_ENABLE", "NCCL_NVLS_ENABLE"}) {
    if (const auto text = variables(name); text && *text == "0") return std::string(name) + " is 0";
  }
  return {};
}

std::string ll128_forbidden(const environment& variables) {
  const auto text = variables("DEVCOMM_LL128_ENABLE");
  return text && *text == "0" ? "DEVCOMM_LL128_ENABLE is 0" : std::string();
}

}  // namespace devcomm::host::detail
