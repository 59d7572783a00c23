/// \file thread_variables.hpp
/// CUDA's built-in variables: threadIdx and its like.
#pragma once

#include <devcomm/simulator/detail/built_in_variables.hpp>

#include <cstdint>

namespace devcomm::simulator::detail {

/// Sets those that are the same for all threads of the block which the calling OS thread runs.
void set_block_variables(const dim3& grid, const dim3& block, uint64_t block_rank);

}  // namespace devcomm::simulator::detail
