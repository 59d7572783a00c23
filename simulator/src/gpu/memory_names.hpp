/// \file memory_names.hpp
/// What messages call an address. Called with the engine's lock.
#pragma once

#include <device/backend.hpp>

#include <string>

namespace devcomm::simulator::detail {

/// Names a part of a window in messages, until as many calls of `forget_memory_name`. The memory behind the part is
/// poisoned for AddressSanitizer.
void name_memory(const std::string& name, const host::detail::window_part& part);
void forget_memory_name(const char* base);

/// "byte 128 of the 4096 of window 'weights' of rank 1"; "4 bytes past the end of window 'weights' of rank 1, which
/// has 100 bytes"; empty when the address is in or near no window.
[[nodiscard]] std::string describe_in_window(const void* address);

/// Address space that stays empty after each part of a window of so many, so that far accesses fault and can be named.
[[nodiscard]] std::size_t empty_after_part(int parts);
/// The same before the first part.
[[nodiscard]] std::size_t empty_before_parts();
/// As `describe_in_window`, and up to 2 GiB before and after a window's part.
[[nodiscard]] std::string describe_far_from_window(const void* address);

}  // namespace devcomm::simulator::detail
