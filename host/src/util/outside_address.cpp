#include "util/outside_address.hpp"

#include <devcomm/host/error.hpp>

#include <algorithm>

namespace devcomm::host::detail {
namespace {

/// "eth0 (10.0.0.1), ib0 (10.1.0.1)"
std::string list_of(const std::vector<interface_address>& addresses) {
  std::string text;
  for (const interface_address& each : addresses) {
    text += (text.empty() ? "" : ", ") + each.interface + " (" + each.address + ")";
  }
  return text;
}

}  // namespace

std::string outside_address(const environment& variables, const std::string& of_bootstrap,
                            const std::vector<interface_address>& here) {
  if (const auto given = variables("DEVCOMM_ADDRESS")) return *given;

  // One for each interface.
  std::vector<interface_address> reachable;
  for (const interface_address& each : here) {
    if (is_local_only(each.address)) continue;
    const auto before = std::find_if(reachable.begin(), reachable.end(),
                                     [&](const interface_address& r) { return r.interface == each.interface; });
    if (before == reachable.end()) {
      reachable.push_back(each);
    } else if (before->ipv6 && !each.ipv6) {
      *before = each;
    }
  }
  if (const auto name = variables("DEVCOMM_INTERFACE")) {
    for (const interface_address& each : reachable) {
      if (each.interface == *name) return each.address;
    }
    reject_variable("DEVCOMM_INTERFACE", *name,
                    reachable.empty() ? "an interface that is up and has an address for other hosts; there is none"
                                      : "one of " + list_of(reachable));
  }
  if (!of_bootstrap.empty() && !is_local_only(of_bootstrap)) return of_bootstrap;
  if (reachable.size() == 1) return reachable.front().address;
  throw not_supported(
      reachable.empty()
          ? "this host has no network address for ranks on other hosts; set DEVCOMM_ADDRESS"
          : "this host has several addresses, and the bootstrap does not know at which the ranks on other hosts reach "
            "it: " +
                list_of(reachable) + "; set DEVCOMM_INTERFACE to one of these, or DEVCOMM_ADDRESS");
}

}  // namespace devcomm::host::detail
