/// \file launcher.hpp
/// Rank, size and address of rank 0 as a launcher or a shell set them in the environment.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include "util/environment.hpp"

#include <optional>
#include <string>

namespace devcomm::host::detail {

struct launched_process : process_environment {
  std::string job;      ///< what all ranks of this job have and other jobs have not, as far as the launcher sets any
  std::string store{};  ///< host:port of torchrun's store, which listens before the ranks start; empty: there is none
  /// torchrun, which is started on each host by itself, says that there are more hosts than this one: a loopback
  /// address of rank 0 in `MASTER_ADDR` is what that host calls itself, and others have another name for it. False with
  /// other launchers, whatever they say.
  bool several_hosts = false;
};

/// Nothing when no launcher's variables are set. `DEVCOMM_RANK` goes first, then torchrun, the launchers of MPI and
/// srun: the launcher closest to the process. Throws `invalid_argument`
/// naming the variable, its value and what is expected; also where a launcher's variables are set that do not tell
/// rank and size, as the process would otherwise count as a whole job.
[[nodiscard]] std::optional<launched_process> read_launcher(const environment& variables);

}  // namespace devcomm::host::detail
