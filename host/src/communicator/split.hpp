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

/// *Collective* over the parent. Ranks of one process use `thread_bootstraps`, others TCP with a new secret.
[[nodiscard]] child_bootstrap plan_child(rank_context& parent, const std::string& call, int color, int key);

}  // namespace devcomm::host::detail
