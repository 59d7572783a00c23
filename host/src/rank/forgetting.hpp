/// \file forgetting.hpp
/// Drops the descriptors of a call that fails.
#pragma once

#include "rank/rank_context.hpp"

#include <cstdint>

namespace devcomm::host::detail {

/// Descriptors that arrived under `number` would keep their senders' memory: drops them, and those that come later,
/// unless `keep` is called. Does nothing in a forked child, whose copy of the mutex nobody may ever unlock.
class forgetting {
 public:
  forgetting(const rank_context& context, std::uint64_t number) : context_(context), number_(number) {}
  ~forgetting() {
    if (number_ != 0 && context_.agree.in_own_process()) context_.process->links().forget_memory(number_);
  }
  forgetting(const forgetting&) = delete;
  forgetting& operator=(const forgetting&) = delete;

  void keep() noexcept { number_ = 0; }

 private:
  const rank_context& context_;
  std::uint64_t number_;
};

}  // namespace devcomm::host::detail
