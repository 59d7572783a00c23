/// \file window_number.hpp
/// Ids of windows, and the numbers by which messages name them.
#pragma once

#include <cstdint>

namespace devcomm::host::detail {

/// A communicator's windows have ids from a multiple of this on, counting up. No two communicators of a rank have the
/// same multiple, until there have been 1024: who is told of a window of another communicator by its id finds none.
inline constexpr std::uint32_t ids_of_communicator = 1u << 22;

/// How many windows of its communicator were made up to the one that has this id: "window 3".
[[nodiscard]] constexpr std::uint32_t window_number(std::uint32_t id) { return id % ids_of_communicator; }

}  // namespace devcomm::host::detail
