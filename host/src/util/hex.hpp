/// \file hex.hpp
/// Bytes as hexadecimal digits.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace devcomm::host::detail {

[[nodiscard]] inline std::string to_hex(std::span<const std::byte> data) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : data) {
    text += digits[std::to_integer<std::size_t>(b >> 4)];
    text += digits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return text;
}

/// False unless `text` is exactly two digits for each byte of `destination`.
[[nodiscard]] inline bool from_hex(std::string_view text, std::span<std::byte> destination) {
  if (text.size() != 2 * destination.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    int value = 0;
    if (c >= '0' && c <= '9') {
      value = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      value = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      value = c - 'A' + 10;
    } else {
      return false;
    }
    std::byte& b = destination[i / 2];
    b = i % 2 == 0 ? static_cast<std::byte>(value << 4) : b | static_cast<std::byte>(value);
  }
  return true;
}

}  // namespace devcomm::host::detail
