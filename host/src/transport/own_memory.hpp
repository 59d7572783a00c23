/// \file own_memory.hpp
/// What the network finds of this rank's windows.
#pragma once

#include "rank/window_table.hpp"
#include "transport/fabric_message.hpp"

#include <cstdint>

namespace devcomm::host::detail {

/// The result of reading or writing this rank's memory.
struct own_memory {
  refusal why = refusal::no_window;
  std::uint64_t bytes = 0;  ///< of the window
  int code = 0;             ///< of the fabric, which does not take it
};

/// Calls `use` with an entry of this rank's windows that has the bytes; says why there is none.
template <class Use>
[[nodiscard]] own_memory with_own(const window_table& windows, std::uint32_t window, std::uint64_t offset,
                                  std::uint64_t bytes, const Use& use) {
  own_memory found;
  static_cast<void>(windows.with(window, [&](const window_table::entry& memory) {
    const bool inside = offset <= memory.bytes && bytes <= memory.bytes - offset;
    found = {inside ? refusal::none : refusal::past_end, memory.bytes};
    if (inside) use(memory);
  }));
  return found;
}

}  // namespace devcomm::host::detail
