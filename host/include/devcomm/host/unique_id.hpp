/// \file unique_id.hpp
/// A job's address and secret, as one line of text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace devcomm::host {

/// Where rank 0 listens, and 16 random bytes that admit a connection. Made once a job.
class unique_id {
 public:
  static constexpr std::size_t secret_bytes = 16;

  /// A fresh secret, `host` and `port`. 0 reserves a free port now, in this process, of the range `DEVCOMM_PORTS` where
  /// that is set; another one is bound when rank 0 starts to listen.
  [[nodiscard]] static unique_id create(const std::string& host = "127.0.0.1", std::uint16_t port = 0);

  /// The same, a free port, for ranks that have this secret already.
  [[nodiscard]] static unique_id create(const std::string& host, const std::array<std::byte, secret_bytes>& secret);

  /// The inverse of `to_string`; throws `invalid_argument` naming what is wrong with the text.
  [[nodiscard]] static unique_id parse(std::string_view text);

  unique_id(std::string host, std::uint16_t port, std::array<std::byte, secret_bytes> secret);

  /// One line of printable characters without blanks. It contains the secret.
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] const std::string& host() const noexcept { return host_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] const std::array<std::byte, secret_bytes>& secret() const noexcept { return secret_; }

 private:
  std::string host_;
  std::uint16_t port_;
  std::array<std::byte, secret_bytes> secret_;
};

}  // namespace devcomm::host
