/// \file call_text.hpp
/// The start of every error text.
#pragma once

#include <string>

namespace devcomm::host::detail {

/// "allocate (rank 2 of 8)".
[[nodiscard]] inline std::string call_text(const std::string& call, int rank, int size) {
  return call + " (rank " + std::to_string(rank) + " of " + std::to_string(size) + ")";
}

}  // namespace devcomm::host::detail
