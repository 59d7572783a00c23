/// \file wire.hpp
/// Integers and bytes on the wire: little-endian, without padding.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

class wire_writer {
 public:
  /// `room`: bytes that fit before memory is taken again.
  explicit wire_writer(std::size_t room = 0) { bytes_.reserve(room); }

  template <class Integer>
  wire_writer& integer(Integer value) {
    std::array<std::byte, sizeof(Integer)> data;
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
    }
    return bytes(data);
  }
  wire_writer& bytes(std::span<const std::byte> data) {
    const std::size_t needed = bytes_.size() + data.size();
    if (needed > bytes_.capacity()) bytes_.reserve(std::max(needed, 2 * bytes_.capacity()));
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    return *this;
  }

  [[nodiscard]] const std::vector<std::byte>& data() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads in the order of writing. Reading past the end gives zeros and makes `good()` false.
class wire_reader {
 public:
  explicit wire_reader(std::span<const std::byte> data) : left_(data) {}

  template <class Integer>
  [[nodiscard]] Integer integer() {
    std::uint64_t value = 0;
    const auto data = take(sizeof(Integer));
    for (std::size_t i = 0; i < data.size(); ++i) value |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
    return static_cast<Integer>(value);
  }
  template <class Array>
  void bytes(Array& destination) {
    const auto data = take(destination.size());
    if (!data.empty()) std::memcpy(destination.data(), data.data(), data.size());
  }
  /// Everything that is left.
  [[nodiscard]] std::string text() {
    const auto data = take(left_.size());
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }

  [[nodiscard]] bool good() const noexcept { return good_; }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > left_.size()) {
      good_ = false;
      left_ = {};
      return {};
    }
    const auto taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }

  std::span<const std::byte> left_;
  bool good_ = true;
};

}  // namespace devcomm::host::detail
