/// \file launching_process.hpp
/// Which process started the ranks of this host.
#pragma once

#include <optional>
#include <string>

namespace devcomm::host::detail {

/// Names the nearest ancestor that was started without `rank_variable`, which each rank has: the launcher's daemon, the
/// same for all ranks of a job on this host, with shells and wrappers left out. Nothing where it cannot be seen, as in
/// containers with a PID namespace for each rank.
[[nodiscard]] std::optional<std::string> launching_process(const std::string& rank_variable);

}  // namespace devcomm::host::detail
