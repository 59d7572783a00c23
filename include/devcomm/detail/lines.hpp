/// \file lines.hpp
/// Memory in whole cache lines.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm::detail {

/// `bytes` rounded up to lines of 128.
DEVCOMM_HOST_DEVICE constexpr uint64_t whole_lines(uint64_t bytes) { return (bytes + 127) / 128 * 128; }

}  // namespace devcomm::detail
