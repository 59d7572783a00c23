/// \file slurm.hpp
/// What Slurm's srun sets for each task of a step.
#pragma once

#include "bootstrap/launcher.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

/// Whether this process is a task of a step. The script of sbatch has a SLURM_PROCID too, but is none.
[[nodiscard]] bool is_slurm_task(const environment& variables);
/// The variable with the number of tasks of this step.
[[nodiscard]] const char* slurm_size_variable(const environment& variables);
[[nodiscard]] launched_process read_srun(const environment& variables);

/// "gpu[07-09,12],login" -> gpu07; Slurm's notation of node lists. Throws `invalid_argument` naming
/// `variable`.
[[nodiscard]] std::string first_node(std::string_view list, const std::string& variable);
/// Whether a node list names one node only.
[[nodiscard]] bool single_node(std::string_view list);

/// "2(x3),1" -> {2, 2, 2, 1}; Slurm's notation of tasks on each node. Throws `invalid_argument`
/// naming `variable`.
[[nodiscard]] std::vector<int> tasks_per_node(std::string_view list, const std::string& variable);

}  // namespace devcomm::host::detail
