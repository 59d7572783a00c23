#include <devcomm/host/error.hpp>
#include <devcomm/host/unique_id.hpp>

#include "bootstrap/ports.hpp"
#include "bootstrap/tcp/reserved_port.hpp"
#include "bootstrap/tcp/socket.hpp"
#include "util/environment.hpp"
#include "util/hex.hpp"
#include "util/random.hpp"

#include <utility>

namespace devcomm::host {
namespace {

constexpr std::string_view prefix = "devcomm1:";

}  // namespace

unique_id unique_id::create(const std::string& host, std::uint16_t port) {
  if (const std::string problem = detail::host_problem(host); !problem.empty()) {
    throw invalid_argument("unique_id::create: the host \"" + host.substr(0, 300) + "\" " + problem +
                           "; give the name or address at which the other ranks reach rank 0");
  }
  const auto secret = detail::random_value<std::array<std::byte, secret_bytes>>();
  if (port == 0) return create(host, secret);
  return {host, port, secret};
}

unique_id unique_id::create(const std::string& host, const std::array<std::byte, secret_bytes>& secret) {
  return {host, detail::reserve_port(host, secret, detail::given_ports(detail::process_variables())), secret};
}

unique_id::unique_id(std::string host, std::uint16_t port, std::array<std::byte, secret_bytes> secret)
    : host_(std::move(host)), port_(port), secret_(secret) {
  if (const std::string problem = detail::host_problem(host_); !problem.empty()) {
    throw invalid_argument("unique_id: the host \"" + host_.substr(0, 300) + "\" " + problem +
                           "; give the name or address at which rank 0 listens");
  }
  if (port_ == 0) throw invalid_argument("unique_id: the port is 0; give the one at which rank 0 listens");
}

std::string unique_id::to_string() const {
  return std::string(prefix) + detail::to_hex(secret_) + "@" + detail::endpoint_text(host_, port_);
}

unique_id unique_id::parse(std::string_view text) {
  // The text holds a secret, so no message repeats it.
  const auto fail = [](const std::string& why) {
    throw invalid_argument("unique_id::parse: the text " + why +
                           "; pass what to_string() gave, \"devcomm1:\", 32 hexadecimal digits, \"@host:port\"");
  };
  if (!text.starts_with(prefix)) fail("does not start with \"devcomm1:\"");
  text.remove_prefix(prefix.size());
  constexpr std::size_t digits = 2 * secret_bytes;
  if (text.size() < digits + 1 || text[digits] != '@') fail("has no \"@\" after 32 hexadecimal digits");
  std::array<std::byte, secret_bytes> secret;
  if (!detail::from_hex(text.substr(0, digits), secret)) fail("has something else than 32 hexadecimal digits");
  const detail::endpoint where = detail::parse_endpoint(text.substr(digits + 1), "unique_id::parse: the address");
  return {where.host, where.port, secret};
}

}  // namespace devcomm::host
