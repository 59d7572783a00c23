/// \file operation_text.hpp
/// Operations of the network in messages.
#pragma once

#include "transport/queue.hpp"

#include <cstdint>
#include <string>

namespace devcomm::host::detail {

/// "rank 0: put to rank 1 in context 2".
[[nodiscard]] std::string text_of_operation(int rank, std::uint32_t context, const gin::descriptor_head& head);

/// Why the operation cannot be done in a context of `layout`; empty where it can.
[[nodiscard]] std::string why_impossible(const posted_operation& operation, const gin::queue_layout& layout);

/// "rank 1 has no window 3 (any more): ...", where `whose` is "rank 1".
[[nodiscard]] std::string text_of_missing_window(const std::string& whose, std::uint32_t window);

/// "8 bytes from byte 100 on run past the end of window 'a', which has 104".
[[nodiscard]] std::string text_of_overrun(std::uint64_t bytes, std::uint64_t offset, const std::string& name,
                                          std::uint64_t size);

}  // namespace devcomm::host::detail
