/// \file handshake.hpp
/// How a rank and rank 0 prove to each other that they hold the job's secret, without sending it.
///
///     rank -> rank 0   hello       magic, version, size, rank, nonce of the rank
///     rank 0 -> rank   challenge   magic, version, nonce of rank 0
///     rank -> rank 0   proof       HMAC(secret, "rank" + hello + challenge)
///     rank 0 -> rank   verdict     code, text, HMAC(secret, "root" + hello + challenge + code + text)
///
/// Nonces are fresh on both sides, so a recorded exchange proves nothing later; the labels differ, so
/// a proof cannot be sent back. All messages have a fixed size, but for the verdict's bounded text.
#pragma once

#include "util/sha256.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {

inline constexpr std::uint32_t protocol_version = 3;

using nonce = std::array<std::byte, 32>;
using secret_view = std::span<const std::byte>;

/// That of a part of the job's ranks, see `bootstrap::derive_secret`.
[[nodiscard]] inline std::array<std::byte, 16> secret_of_part(secret_view secret, std::span<const std::byte> label) {
  const auto whole = hmac_sha256(secret).update(bytes_of("part of the ranks")).update(label).finish();
  std::array<std::byte, 16> part{};
  std::copy_n(whole.begin(), part.size(), part.begin());
  return part;
}

struct hello {
  static constexpr std::size_t wire_bytes = 56;

  std::uint32_t version = protocol_version;
  std::uint32_t size = 0;
  std::uint32_t rank = 0;
  nonce fresh{};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Nothing when the bytes are no hello. The version may be another one.
  [[nodiscard]] static std::optional<hello> decode(std::span<const std::byte> data);
};

struct challenge {
  static constexpr std::size_t wire_bytes = 48;

  std::uint32_t version = protocol_version;
  nonce fresh{};

  [[nodiscard]] std::vector<std::byte> encode() const;
  [[nodiscard]] static std::optional<challenge> decode(std::span<const std::byte> data);
};

/// The first two messages, as both sides saw them.
class transcript {
 public:
  transcript(const hello& h, const challenge& c);

  [[nodiscard]] digest rank_proof(secret_view secret) const { return labeled(secret, "rank"); }
  [[nodiscard]] digest key_of_rank(secret_view secret) const { return labeled(secret, "frames of rank"); }
  [[nodiscard]] digest key_of_root(secret_view secret) const { return labeled(secret, "frames of root"); }
  [[nodiscard]] digest labeled(secret_view secret, std::string_view label, std::span<const std::byte> more = {}) const;

 private:
  std::vector<std::byte> bytes_;
};

struct verdict {
  enum class code : std::uint32_t { accepted = 0, unproven = 1, refused = 2 };

  static constexpr std::size_t head_bytes = 40;
  static constexpr std::size_t longest_text = 512;

  code outcome = code::unproven;
  std::string text;

  /// Head and text. An `unproven` verdict proves nothing in turn.
  [[nodiscard]] std::vector<std::byte> encode(const transcript& seen, secret_view secret) const;

  struct head {
    code outcome;
    std::size_t text_bytes;
    digest proof;
  };
  [[nodiscard]] static std::optional<head> decode_head(std::span<const std::byte> data);
  /// Whether rank 0 proved the secret with this head and text.
  [[nodiscard]] static bool proven(const head& h, std::string_view text, const transcript& seen, secret_view secret);
};

}  // namespace devcomm::host::detail
