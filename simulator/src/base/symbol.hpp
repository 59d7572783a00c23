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

/// Name of the function that starts at `code`.
[[nodiscard]] std::string function_at(const void* code);

}  // namespace devcomm::simulator::detail
