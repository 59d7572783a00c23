/// \file check_requirements.hpp
/// Whether a communicator can give what a device communicator is to have.
#pragma once

#include <devcomm/requirements.hpp>

#include "rank/rank_context.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// Throws `invalid_argument` or `not_supported` where this rank cannot have what `needs` asks for.
void check_requirements(const rank_context& context, const requirements& needs);

/// What each rank publishes of its requirements.
struct requested {
  std::uint64_t fingerprint;
  std::uint64_t bytes;
  std::uint32_t watched;  ///< whether waits are
  std::int32_t lsa_size;
};
/// Throws on all ranks where what they ask for does not fit together; `all` by rank.
void compare_requirements(const rank_context& context, const std::string& call, const requirements& needs,
                          const std::vector<requested>& all);

}  // namespace devcomm::host::detail
