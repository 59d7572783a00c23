/// \file fabric_tokens.hpp
/// How completions of a fabric are told apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace devcomm::host::detail {

/// From 1 on: a fabric gives 0 for an error that belongs to no operation.
enum class token_kind : std::uint8_t { received = 1, sent, moved, notice, table };

struct token_parts {
  token_kind kind;
  std::uint32_t user;  ///< index among the endpoint's
  std::size_t slot;    ///< in the list of its kind
};

[[nodiscard]] constexpr std::uint64_t make_token(token_kind kind, std::uint32_t user, std::size_t slot) {
  return static_cast<std::uint64_t>(kind) << 56 | std::uint64_t{user} << 32 | slot;
}
[[nodiscard]] constexpr token_parts parts_of(std::uint64_t token) {
  return {static_cast<token_kind>(token >> 56), static_cast<std::uint32_t>(token >> 32 & 0xff'ffff),
          static_cast<std::size_t>(token & 0xffff'ffff)};
}

template <class T>
[[nodiscard]] std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace devcomm::host::detail
