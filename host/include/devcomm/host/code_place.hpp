/// \file code_place.hpp
/// A line of the caller's program, for messages.
#pragma once

namespace devcomm::host {

struct code_place {
  const char* file;
  unsigned line;

  /// As a default argument of a function: the line that calls the function.
  [[nodiscard]] static constexpr code_place here(const char* file = __builtin_FILE(),
                                                 unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

}  // namespace devcomm::host
