/// \file window_state.hpp
/// A window of one rank, and the memory and mappings that it needs.
#pragma once

#include <devcomm/multimem/resources.hpp>
#include <devcomm/window.hpp>

#include "device/backend.hpp"
#include "memory/window_mapping.hpp"
#include "rank/rank_context.hpp"
#include "rank/window_table.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

struct window_state {
  window_state() = default;
  /// A window without memory. `number` counts the windows of its rank.
  window_state(const rank_context& context, std::uint64_t number, std::size_t size, const std::string& given_name)
      : bytes(size),
        name(given_name.empty() ? "window " + std::to_string(number) : "window '" + given_name + "'"),
        lsa_table(context.lsa_table) {
    window.bytes = size;
    window.lsa_first = context.lsa.first;
    window.lsa_size = context.lsa.size;
    window.lsa_rank = context.lsa.rank;
    window.id = context.window_id(number);
    window.lsa_ranks = lsa_table != nullptr ? reinterpret_cast<const std::int32_t*>(lsa_table->data()) : nullptr;
  }

  devcomm::window window{};
  std::size_t bytes = 0;
  std::string name;  ///< in messages: "window 'weights'", or "window 3" for one without a name
  std::string handle_type;
  capability multimem{false,
                      "it was not asked for; allocate with multimem_policy::required or multimem_policy::or_software"};
  std::shared_ptr<opened_memory> lsa_table;            ///< the communicator's
  std::shared_ptr<window_mapping> space;               ///< strided: the memory and its mappings
  std::vector<std::shared_ptr<opened_memory>> opened;  ///< table: memory of other processes
  std::unique_ptr<opened_memory> table;                ///< on the device: addresses, or the record of multimem
  std::unique_ptr<memory_label> label;
  std::unique_ptr<window_table::listing> listing;  ///< destroyed first
};

/// Which ranks must ask for windows of one size.
enum class same_size : std::uint32_t { everywhere, in_teams_of_one_size };

struct window_kind {
  devcomm::multimem::policy multimem = devcomm::multimem::policy::none;
  memory_place place = memory_place::device;
  same_size alike = same_size::everywhere;
};

/// *Collective*: zeroed memory of `bytes` on every rank, mapped for the LSA team.
[[nodiscard]] window_state allocate_window(rank_context& context, const std::string& call, std::size_t bytes,
                                           const std::string& name, const window_kind& kind);

enum class registered_layout {
  table,      ///< the window's local address is the caller's
  one_stride  ///< where all memory of the LSA team is one piece each, mapped again; else a table
};

/// *Collective*: a window over memory that the caller allocated.
[[nodiscard]] window_state register_window(rank_context& context, const std::string& call, void* local,
                                           std::size_t bytes, const std::string& name,
                                           registered_layout layout = registered_layout::table);

}  // namespace devcomm::host::detail
