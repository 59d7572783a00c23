/// \file window_number.hpp
/// The numbers by which messages name windows.
#pragma once

#include <devcomm/window.hpp>

#include <cstdint>

namespace devcomm::host::detail {

/// How many windows of its communicator were made up to the one that has this id: "window 3".
[[nodiscard]] constexpr std::uint32_t window_number(std::uint32_t id) { return id % window_ids_of_communicator; }

}  // namespace devcomm::host::detail
