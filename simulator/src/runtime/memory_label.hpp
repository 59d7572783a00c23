/// \file memory_label.hpp
/// Names of windows in messages, given by the host library.
#pragma once

#include <device/backend.hpp>

#include <memory>
#include <span>
#include <string>

namespace devcomm::simulator::detail {

/// Names parts of a window while the result lives.
[[nodiscard]] std::unique_ptr<host::detail::memory_label> label_memory(
    const std::string& name, std::span<const host::detail::window_part> parts);

}  // namespace devcomm::simulator::detail
