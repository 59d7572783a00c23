/// \file wire.hpp
/// Integers and bytes on the wire: little-endian, without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

class wire_writer {
 public:
  template <class Integer>
  wire_writer& integer(Integer value) {
    for (std::size_t i = 0; i < sizeof(Integer); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff));
    }
    return *this;
  }
  wire_writer& bytes(std::span<const std::byte> data) {
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
