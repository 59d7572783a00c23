/// \file deferred_frees.hpp
/// Gives memory back without waiting for kernels.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

namespace devcomm::host::cuda {

/// For destructors: runs `work`, which gives something back, once `devices` are idle. The driver's own calls wait for
/// kernels, for ever where one waits for a peer that waits for this process. While kernels run for longer than a
/// moment, `work` is left to a thread, which waits for them. All that comes later follows in order.
void free_when_idle(const std::vector<int>& devices, const std::function<void()>& work) noexcept;

/// The same for what does not depend on kernels, but on what was freed before.
void free_in_order(const std::function<void()>& work) noexcept;

/// Whether something waits to be freed.
[[nodiscard]] bool frees_are_pending();

/// Waits until nothing waits to be freed, at most for `limit`; whether that was so.
bool wait_for_frees(std::chrono::milliseconds limit);

}  // namespace devcomm::host::cuda
