/// \file memory_names.hpp
/// What messages call an address.
#pragma once

#include <device/backend.hpp>

#include <memory>
#include <span>
#include <string>

namespace devcomm::simulator::detail {

/// Names parts of a window while the result lives. What lies behind a part is poisoned for AddressSanitizer.
[[nodiscard]] std::unique_ptr<host::detail::memory_label> label_memory(
    const std::string& name, std::span<const host::detail::window_part> parts);

/// "byte 128 of the 4096 of window 'weights' of rank 1"; "4 bytes past the end of window 'weights' of rank 1, which
/// has 100 bytes"; empty when the address is in or near no window. Called with the engine's lock.
[[nodiscard]] std::string describe_in_window(const void* address);

/// From now on AddressSanitizer's reports are followed by what is at the address.
void explain_address_reports();

}  // namespace devcomm::simulator::detail
