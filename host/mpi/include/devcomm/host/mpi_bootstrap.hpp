/// \file mpi_bootstrap.hpp
/// Ranks that are the processes of an MPI communicator. Link devcomm::mpi.
#pragma once

#include <devcomm/host/bootstrap.hpp>

#include <mpi.h>

#include <chrono>
#include <memory>

namespace devcomm::host {

/// Ranks numbered as in `ranks`, of which a duplicate is made.
///
/// *Collective* over `ranks`. *Requires* MPI to be initialized, and calls from several threads only
/// with `MPI_THREAD_MULTIPLE`. *Lifetime*: destroy it before `MPI_Finalize`; later it is harmless, and
/// the duplicate is MPI's. After a timeout MPI may still hold messages: end with `MPI_Abort`, since
/// `MPI_Finalize` may wait for the missing rank.
[[nodiscard]] std::shared_ptr<bootstrap> mpi_bootstrap(MPI_Comm ranks,
                                                       std::chrono::milliseconds limit = default_bootstrap_limit());

}  // namespace devcomm::host
