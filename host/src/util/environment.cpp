#include "util/environment.hpp"

#include <devcomm/host/error.hpp>

#include <charconv>
#include <cstdlib>
#include <system_error>

namespace devcomm::host::detail {
namespace {

template <class Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

environment process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

void reject_variable(const std::string& name, const std::string& value, const std::string& expected) {
  throw invalid_argument(name + " is \"" + value + "\"; set it to " + expected + ", or unset it");
}

std::optional<int> integer_variable(const environment& variables, const std::string& name, int least, int most,
                                    const std::string& expected) {
  const auto text = variables(name);
  if (!text) return std::nullopt;
  const auto number = parse<int>(*text);
  if (!number || *number < least || *number > most) reject_variable(name, *text, expected);
  return number;
}

std::optional<bool> flag_variable(const environment& variables, const std::string& name) {
  const auto text = variables(name);
  if (!text) return std::nullopt;
  if (*text != "0" && *text != "1") reject_variable(name, *text, "0 or 1");
  return *text == "1";
}

std::optional<std::chrono::milliseconds> seconds_variable(const environment& variables, const std::string& name,
                                                          seconds_range range, const std::string& expected) {
  const auto text = variables(name);
  if (!text) return std::nullopt;
  const auto seconds = parse<double>(*text);
  const bool enough = seconds && (*seconds > 0 || (range.zero_allowed && *seconds == 0));
  if (!enough || *seconds > range.most) reject_variable(name, *text, expected);
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(*seconds));
}

}  // namespace devcomm::host::detail
