/// \file held_window.hpp
/// A window of one rank with everything that keeps it usable.
#pragma once

#include <devcomm/window.hpp>

#include "device/backend.hpp"
#include "memory/window_mapping.hpp"
#include "rank/rank_context.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

struct held_window {
  held_window() = default;
  /// The caller's window of the LSA team, still without memory. `number` counts its rank's windows.
  held_window(const rank_context& context, std::uint64_t number, std::size_t size, const std::string& given_name);

  devcomm::window window{};
  std::size_t bytes = 0;
  std::string name;  ///< in messages
  std::string how;
  std::shared_ptr<shared_window> space;                ///< strided: the memory and its mappings
  std::vector<std::shared_ptr<opened_memory>> opened;  ///< table: memory of other processes
  std::unique_ptr<opened_memory> table;                ///< table: on the device
  std::unique_ptr<memory_label> label;                 ///< destroyed first
};

/// *Collective*: zeroed memory of `bytes` on every rank, mapped for the LSA team.
[[nodiscard]] held_window allocate_window(rank_context& context, const std::string& call, std::size_t bytes,
                                          const std::string& name);

/// *Collective*: a window over memory that the caller allocated.
[[nodiscard]] held_window register_window(rank_context& context, const std::string& call, void* local,
                                          std::size_t bytes, const std::string& name);

/// "window 'weights'", or "window 3" for one without a name.
[[nodiscard]] std::string window_name(std::uint64_t number, const std::string& name);

}  // namespace devcomm::host::detail
