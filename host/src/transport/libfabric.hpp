/// \file libfabric.hpp
/// Fabrics by libfabric, which is loaded when one is asked for.
#pragma once

#include <devcomm/host/properties.hpp>

#include "transport/fabric.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// What an endpoint is for.
struct endpoint_wish {
  std::string provider;   ///< "tcp;ofi_rxm"; not read where the question is which there are
  std::string address;    ///< of this host; empty where the provider needs none
  std::string card;       ///< libfabric's name of its domain; empty: the nearest to the device
  std::size_t peers = 1;  ///< that it will have
  capability devices{};   ///< whether fabrics may reach their memory: then the provider is asked to, and need not
  std::uint64_t pci = 0;  ///< place of the rank's device, see `device_facts`
  unsigned turn = 0;      ///< among devices that are as near to several cards
};

/// Throws `not_supported` with what to install or to choose instead where there is none.
[[nodiscard]] std::unique_ptr<fabric> open_libfabric(const endpoint_wish& wish);

/// Names of the providers of network cards that this process can open and register memory with, the best first; where
/// there are none, `obstacle` says why. Throws `not_supported` where there is no libfabric.
[[nodiscard]] std::vector<std::string> usable_card_providers(endpoint_wish wish, std::string& obstacle);

}  // namespace devcomm::host::detail
