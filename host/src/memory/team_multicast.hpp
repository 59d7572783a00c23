/// \file team_multicast.hpp
/// A multicast address over memory that ranks have registered: for rooms that let a program ask for it later.
#pragma once

#include "memory/window_multicast.hpp"
#include "rank/rank_context.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// What local ranks share: the object, and the memory that they bound to it, which outlives it.
struct bound_memory {
  std::mutex mutex;
  std::vector<std::shared_ptr<physical_memory>> memory;
  window_multicast object;
};

/// Of the same place in memory of each member of a team, which is the LSA team or a part of it. The memory must be
/// physical memory that its owner mapped, or what else the backend can bind, at one offset in it on all members.
class team_multicast {
 public:
  /// *Collective*, of all ranks of `context`: each gives the world ranks of the team of which it is a member, in the
  /// same order as the others. A rank whose memory is none that can be bound passes null.
  team_multicast(rank_context& context, void* memory, std::size_t bytes, const std::vector<int>& members);

  /// Null where there is none; then `obstacle` says why.
  [[nodiscard]] char* address() const noexcept { return address_; }
  [[nodiscard]] const std::string& obstacle() const noexcept { return obstacle_; }

 private:
  std::shared_ptr<bound_memory> bound_;
  char* address_ = nullptr;
  std::string obstacle_;
};

}  // namespace devcomm::host::detail
