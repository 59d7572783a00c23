/// \file libfabric.hpp
/// Fabrics by libfabric, which is loaded when one is asked for.
#pragma once

#include <devcomm/host/properties.hpp>

#include "transport/fabric.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace devcomm::host::detail {

/// An endpoint of provider `provider` ("tcp;ofi_rxm"), at `address` of this host where that is not empty; it will have
/// `peers` peers. Where `devices` are available to fabrics, the provider is asked to reach their memory, and need not.
/// Throws `not_supported` with what to install or to choose instead where there is none.
[[nodiscard]] std::unique_ptr<fabric> open_libfabric(const std::string& provider, const std::string& address,
                                                     std::size_t peers, const capability& devices);

}  // namespace devcomm::host::detail
