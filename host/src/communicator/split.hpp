/// \file split.hpp
/// How the ranks of a child communicator find each other.
#pragma once

#include "rank/rank_context.hpp"

#include <functional>
#include <memory>
#include <string>

namespace devcomm::host::detail {

/// Makes this rank's bootstrap in its child; empty when the rank has none.
using child_bootstrap = std::function<std::shared_ptr<bootstrap>()>;

/// *Collective* over the parent. Children within one process meet as threads, others over TCP with a
/// secret of their own.
[[nodiscard]] child_bootstrap plan_child(rank_context& parent, const std::string& call, int color, int key);

}  // namespace devcomm::host::detail
