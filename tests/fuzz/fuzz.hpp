/// \file fuzz.hpp
/// What fuzz targets have in common: laws, and what counts as a refusal.
#pragma once

#include <devcomm/host/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace devcomm_fuzz {

/// Ends the program, as libFuzzer expects, unless the law holds.
inline void require(bool holds, const char* law) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", law);
  std::abort();
}

/// Whether `parse` took its input. Refusing it by `invalid_argument`, with a text, is as good; anything else that
/// is thrown ends the program.
template <class Parse>
bool takes(const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const devcomm::host::invalid_argument& refusal) {
    require(!std::string_view(refusal.what()).empty(), "a refusal says why");
    return false;
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
inline std::span<const std::byte> bytes_of_input(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

/// Lines `NAME=value` as an environment.
inline std::map<std::string, std::string> read_variables(std::string_view text) {
  std::map<std::string, std::string> all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) {
      // An environment's strings end at their first zero.
      const std::string_view value = line.substr(equals + 1);
      all[std::string(line.substr(0, equals))] = std::string(value.substr(0, value.find('\0')));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

}  // namespace devcomm_fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
