#include "base/environment.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace devcomm::simulator::detail {

const char* variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? nullptr : text;
}

uint64_t number_variable(const char* name, uint64_t otherwise, uint64_t least, uint64_t most) {
  const char* const text = variable(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 0);
  const bool whole = end != text && *end == '\0' && std::strchr(text, '-') == nullptr && errno == 0;
  if (whole && value >= least && value <= most) return value;
  char expected[80];
  std::snprintf(expected, sizeof expected, "a whole number from %" PRIu64 " to %" PRIu64, least, most);
  reject_variable(name, text, expected);
}

void reject_variable(const char* name, const char* text, const char* expected) {
  std::fprintf(stderr, "devcomm simulator: %s is '%s'; give %s\n", name, text, expected);
  std::_Exit(2);
}

}  // namespace devcomm::simulator::detail
