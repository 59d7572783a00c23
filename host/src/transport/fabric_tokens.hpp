/// \file fabric_tokens.hpp
/// What the files of `fabric_engine` share: how completions are identified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace devcomm::host::detail {

/// From 1 on: a fabric gives 0 for an error that belongs to no operation.
enum class token_kind : std::uint32_t { received = 1, sent, moved };

/// Of element `slot` in the list of its kind.
[[nodiscard]] constexpr std::uint64_t make_token(token_kind kind, std::size_t slot) {
  return static_cast<std::uint64_t>(kind) << 32 | slot;
}

template <class T>
[[nodiscard]] std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace devcomm::host::detail
