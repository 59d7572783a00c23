#include "bootstrap/ports.hpp"

#include "bootstrap/launcher_values.hpp"
#include "util/sha256.hpp"

#include <cstddef>

namespace devcomm::host::detail {

std::optional<port_range> given_ports(const environment& variables) {
  const auto text = variables("DEVCOMM_PORTS");
  if (!text) return std::nullopt;
  const std::size_t dash = text->find('-');
  const auto first = decimal_number(std::string_view(*text).substr(0, dash));
  const auto last = dash == std::string::npos ? first : decimal_number(std::string_view(*text).substr(dash + 1));
  if (!first || !last || *first < 1 || *last > 65535 || *first > *last) {
    reject_variable("DEVCOMM_PORTS", text->substr(0, 100), "the first and the last port, such as 30000-30100");
  }
  return port_range{static_cast<std::uint16_t>(*first), static_cast<std::uint16_t>(*last)};
}

std::uint16_t port_of_job(std::string_view job, port_range range, int taken) {
  const digest hash = sha256::of(bytes_of("devcomm port\n" + std::string(job)));
  const unsigned value = std::to_integer<unsigned>(hash[0]) << 16 | std::to_integer<unsigned>(hash[1]) << 8 |
                         std::to_integer<unsigned>(hash[2]);
  const std::uint16_t port = range.at(value);
  return port == taken ? range.at(value + std::uint64_t{1}) : port;
}

}  // namespace devcomm::host::detail
