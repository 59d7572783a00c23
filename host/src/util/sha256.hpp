/// \file sha256.hpp
/// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), so that start-up needs no cryptography library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace devcomm::host::detail {

using digest = std::array<std::byte, 32>;

[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class sha256 {
 public:
  sha256() noexcept;

  sha256& update(std::span<const std::byte> data) noexcept;
  /// The object is used up.
  [[nodiscard]] digest finish() noexcept;

  [[nodiscard]] static digest of(std::span<const std::byte> data) noexcept { return sha256().update(data).finish(); }

 private:
  void compress(const std::byte* block) noexcept;

  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t total_ = 0;
};

class hmac_sha256 {
 public:
  explicit hmac_sha256(std::span<const std::byte> key) noexcept;

  hmac_sha256& update(std::span<const std::byte> data) noexcept {
    inner_.update(data);
    return *this;
  }
  /// The object is used up.
  [[nodiscard]] digest finish() noexcept;

 private:
  sha256 inner_;
  sha256 outer_;
};

/// Takes the same time wherever the two differ.
[[nodiscard]] bool same_digest(const digest& a, const digest& b) noexcept;

}  // namespace devcomm::host::detail
