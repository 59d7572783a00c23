/// \file fixed_text.hpp
/// Text in arrays of fixed size, as messages between ranks have it. It ends with a zero.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>

namespace devcomm::host::detail {

template <std::size_t N>
[[nodiscard]] std::string text_of(const std::array<char, N>& text) {
  return std::string(text.data(), ::strnlen(text.data(), N));
}

/// As much of `from` as there is room for, into an array of zeros.
template <std::size_t N>
void fill(std::array<char, N>& to, const std::string& from) {
  std::copy_n(from.data(), std::min(from.size(), N - 1), to.data());
}

}  // namespace devcomm::host::detail
