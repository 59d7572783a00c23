#include "util/environment.hpp"

#include <devcomm/host/error.hpp>

#include "util/known_variables.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

namespace devcomm::host::detail {
namespace {

template <class Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr std::string_view prefix = "DEVCOMM_";

bool is_known(std::string_view name) {
  return std::any_of(std::begin(known_variables), std::end(known_variables),
                     [&](const known_variable& known) { return name == known.name; });
}

/// Letters to insert, delete, replace or swap with the next, to make one of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  std::iota(cost[0].begin(), cost[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

/// Empty where none is near.
std::string_view nearest_known(std::string_view name) {
  constexpr std::size_t most = 3;
  std::string_view nearest;
  std::size_t least = most + 1;
  for (const known_variable& known : known_variables) {
    const std::size_t far = distance(name, known.name);
    if (far >= least) continue;
    least = far;
    nearest = known.name;
  }
  return nearest;
}

void warn_once_of_misspelt_variables() {
  static constinit std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  const std::string text = misspelt_variables(environ);
  std::fputs(text.c_str(), stderr);
}

}  // namespace

std::string misspelt_variables(const char* const* settings) {
  std::string text;
  for (; settings != nullptr && *settings != nullptr; ++settings) {
    const std::string_view setting = *settings;
    const std::string_view name = setting.substr(0, setting.find('='));
    if (!name.starts_with(prefix) || is_known(name)) continue;
    const std::string_view nearest = nearest_known(name);
    text += "devcomm: the environment has " + std::string(name) + ", which devcomm does not know; ";
    text +=
        nearest.empty() ? "docs/environment.md lists what it knows\n" : "did you mean " + std::string(nearest) + "?\n";
  }
  return text;
}

environment process_variables() {
  warn_once_of_misspelt_variables();
  return [](const std::string& name) -> std::optional<std::string> {
    if (name.starts_with(prefix) && !is_known(name)) {
      throw std::logic_error(name + " is not in host/src/util/known_variables.hpp");
    }
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
