/// \file deadlock.hpp
/// The report of a deadlock.
#pragma once

#include "report/snapshot.hpp"

#include <string>

namespace devcomm::simulator::detail {

/// Who waits for what, equal threads together, and a cycle among them. `picture`: a file to draw it in, or "".
[[nodiscard]] std::string describe_deadlock(const snapshot& all, const std::string& picture);

}  // namespace devcomm::simulator::detail
