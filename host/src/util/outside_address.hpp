/// \file outside_address.hpp
/// At which address of this host ranks of other hosts reach it.
#pragma once

#include "util/environment.hpp"
#include "util/interfaces.hpp"

#include <string>
#include <vector>

namespace devcomm::host::detail {

/// `DEVCOMM_ADDRESS`; else the address of `DEVCOMM_INTERFACE`; else `of_bootstrap`, the address of the connection to
/// the other ranks, unless only this host can use it; else the address of the only interface that others can reach.
/// IPv4 goes before IPv6 on one interface. Throws `not_supported` where there is none or more than one, with their
/// names.
[[nodiscard]] std::string outside_address(const environment& variables, const std::string& of_bootstrap,
                                          const std::vector<interface_address>& here);

}  // namespace devcomm::host::detail
