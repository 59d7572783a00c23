/// \file context_of.hpp
/// The state of a rank behind a communicator, for the library's own use.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "rank/rank_context.hpp"

namespace devcomm::host::detail {

struct context_of {
  [[nodiscard]] static rank_context& get(communicator& of);
};

}  // namespace devcomm::host::detail
