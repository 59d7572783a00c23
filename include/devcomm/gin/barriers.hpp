/// \file barriers.hpp
/// What barriers of the network order, and in which contexts. `gin::contexts::barriers` asks for them.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/gin/contexts.hpp>

namespace devcomm::gin {

/// What a barrier has before it of the operations that the group, or who has synchronized with it, posted to the
/// barrier's contexts. Whatever the level, what members wrote by stores, to their own memory or to that of peers, is
/// visible to all after the barrier: arrivals release and waits acquire at system scope.
enum class fence_level : uint32_t {
  none,  ///< nothing: operations may arrive before the barrier or after it
  put,   ///< puts of each member to each member, itself too: their data has arrived, and their signals have changed
  get,   ///< operations of each member are complete there: what it got can be read, and what anybody put or got from
         ///< may be written again
  put_and_get,  ///< both
};

DEVCOMM_HOST_DEVICE constexpr bool fences_puts(fence_level level) {
  return level == fence_level::put || level == fence_level::put_and_get;
}
DEVCOMM_HOST_DEVICE constexpr bool fences_gets(fence_level level) {
  return level == fence_level::get || level == fence_level::put_and_get;
}

/// The contexts that a barrier fences.
struct context_range {
  uint32_t first;
  uint32_t count;
};

DEVCOMM_HOST_DEVICE constexpr context_range one_context(uint32_t index) { return {index, 1}; }
DEVCOMM_HOST_DEVICE constexpr context_range all_contexts() { return {0, ~0u}; }

}  // namespace devcomm::gin
