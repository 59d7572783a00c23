/// \file ports.hpp
/// The ports at which rank 0 of a job may listen.
#pragma once

#include "util/environment.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace devcomm::host::detail {

/// Both ends belong to it. By default below the ports that the kernel gives to outgoing connections.
struct port_range {
  std::uint16_t first = 20000;
  std::uint16_t last = 32767;

  [[nodiscard]] unsigned size() const noexcept { return 1U + last - first; }
  /// `place` counts from 0, and starts again past the end.
  [[nodiscard]] std::uint16_t at(std::uint64_t place) const noexcept {
    return static_cast<std::uint16_t>(first + place % size());
  }
  [[nodiscard]] std::string text() const { return std::to_string(first) + "-" + std::to_string(last); }
};

/// `DEVCOMM_PORTS`, such as "30000-30100". Throws `invalid_argument` when it is no range.
[[nodiscard]] std::optional<port_range> given_ports(const environment& variables);

/// A port of `range` that depends on `job` alone, by SHA-256. Never `taken`, where the range has others.
[[nodiscard]] std::uint16_t port_of_job(std::string_view job, port_range range = {}, int taken = 0);

}  // namespace devcomm::host::detail
