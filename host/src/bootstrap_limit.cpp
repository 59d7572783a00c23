#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>

namespace devcomm::host {

std::chrono::milliseconds default_bootstrap_limit() {
  const char* const value = std::getenv("DEVCOMM_BOOTSTRAP_TIMEOUT");
  if (value == nullptr) return std::chrono::seconds(60);
  const std::string_view text(value);
  double seconds = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = problem == std::errc() && end == text.data() + text.size();
  constexpr double longest = 1e6;
  if (!whole || !(seconds > 0) || seconds > longest) {
    throw invalid_argument("DEVCOMM_BOOTSTRAP_TIMEOUT is \"" + std::string(text) +
                           "\"; set it to a number of seconds above 0 and up to 1000000, or unset it");
  }
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace devcomm::host
