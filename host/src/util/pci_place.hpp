/// \file pci_place.hpp
/// Where a device is on the host's PCI buses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace devcomm::host::detail {

/// The system's folder of the device at `place`, see `device_facts::pci`.
[[nodiscard]] inline std::filesystem::path pci_folder(std::uint64_t place, const std::string& root) {
  std::array<char, 16> name{};
  const auto domain = static_cast<unsigned>(place >> 32);
  const auto bus = static_cast<unsigned>(place >> 8 & 0xff);
  const auto device = static_cast<unsigned>(place & 0xff);
  static_cast<void>(std::snprintf(name.data(), name.size(), "%04x:%02x:%02x.0", domain, bus, device));
  return std::filesystem::path(root) / "bus/pci/devices" / name.data();
}

/// Bridges and buses between two devices, counted in the tree of the system's files below `root`: devices behind one
/// switch have the least. Nothing where the system does not know one of them.
[[nodiscard]] inline std::optional<std::size_t> pci_distance(std::uint64_t one, std::uint64_t other,
                                                             const std::string& root = "/sys") {
  std::error_code unknown;
  const auto first = std::filesystem::canonical(pci_folder(one, root), unknown);
  if (unknown) return {};
  const auto second = std::filesystem::canonical(pci_folder(other, root), unknown);
  if (unknown) return {};
  auto a = first.begin();
  auto b = second.begin();
  while (a != first.end() && b != second.end() && *a == *b) {
    ++a;
    ++b;
  }
  return static_cast<std::size_t>(std::distance(a, first.end()) + std::distance(b, second.end()));
}

}  // namespace devcomm::host::detail
