/// \file launcher.hpp
/// Rank, size and address of rank 0 as torchrun, mpirun, srun or a shell set them in the environment.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include "bootstrap/tcp/reserved_port.hpp"
#include "util/environment.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

/// Nothing when no launcher's variables are set. `DEVCOMM_RANK` goes first, then torchrun, mpirun and
/// srun: the launcher closest to the process. Throws `invalid_argument`
/// naming the variable, its value and what is expected.
[[nodiscard]] std::optional<process_environment> read_launcher(const environment& variables);

/// `DEVCOMM_SECRET`, or SHA-256 of those launcher variables that all ranks of the job share. The latter keeps jobs
/// apart; it does not stop someone who can guess the variables.
[[nodiscard]] job_secret launcher_secret(const environment& variables, const process_environment& process);

/// A port from 20000 to 32767, below those that the kernel gives to outgoing connections, picked by
/// SHA-256 of `job`.
[[nodiscard]] std::uint16_t port_of_job(std::string_view job);

/// "gpu[07-09,12],login" -> gpu07; Slurm's notation of node lists. Throws `invalid_argument` naming
/// `variable`.
[[nodiscard]] std::string first_node(std::string_view list, const std::string& variable);
/// Whether a node list names one node only.
[[nodiscard]] bool single_node(std::string_view list);

/// "2(x3),1" -> {2, 2, 2, 1}; Slurm's notation of tasks on each node. Throws `invalid_argument`
/// naming `variable`.
[[nodiscard]] std::vector<int> tasks_per_node(std::string_view list, const std::string& variable);

}  // namespace devcomm::host::detail
