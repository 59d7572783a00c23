/// \file memory_place.hpp
/// Where the memory of a window lies.
#pragma once

#include <cstdint>

namespace devcomm::host {

enum class memory_place : std::uint32_t {
  device,       ///< memory of each rank's GPU
  pinned_host,  ///< pinned memory of each rank's host, which GPUs load and store over PCIe and any fabric reaches
};

}  // namespace devcomm::host
