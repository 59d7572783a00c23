/// \file symbol.hpp
/// Code addresses in words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

struct source_line {
  std::string function;
  std::string location;  ///< "file.cu:12"
};

/// The line of a code address, and of each call that was inlined around it, outermost last. By addr2line
/// or llvm-symbolizer; without them, the module and the offset in it.
[[nodiscard]] std::vector<source_line> lines_of(uint64_t code);

/// Whether a line is none of the user's: of devcomm's headers, the simulator or the system.
[[nodiscard]] bool is_inside(const std::string& location);

/// Return addresses of calls, innermost first.
struct call_stack {
  static constexpr int most = 24;

  uint64_t codes[most] = {};
  int depth = 0;

  /// Those that led here.
  void take();
  /// Where the innermost call is that is not inside, "kernel.cu:12 in f"; empty if there is none.
  [[nodiscard]] std::string outside() const;
};

/// Name of the function that starts at `code`.
[[nodiscard]] std::string function_at(const void* code);

}  // namespace devcomm::simulator::detail
