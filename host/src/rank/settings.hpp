/// \file settings.hpp
/// Options of a communicator after the environment's overrides.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "device/backend.hpp"
#include "util/environment.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// `options` after `DEVCOMM_LSA_SIZE`, `DEVCOMM_TIMEOUT` and `DEVCOMM_CHECK_LAUNCH`. Throws
/// `invalid_argument` naming the variable or option whose value makes no sense.
[[nodiscard]] communicator_options apply_environment(communicator_options options, const environment& variables);

/// The kind of handle that `DEVCOMM_MEMORY_HANDLE` asks for by its name in `handle_kinds`, else `none`: the library
/// chooses.
[[nodiscard]] handle_kind wanted_handle(const environment& variables);

/// `DEVCOMM_RANKS`, or `otherwise` when it is unset.
[[nodiscard]] int wanted_ranks(const environment& variables, int otherwise);

/// Why the environment forbids multicast: "DEVCOMM_NVLS_ENABLE is 0"; empty when it does not. A mistake leaves
/// multicast off, as it can take down GPUs for others: DEVCOMM_NVLS_ENABLE is refused unless it is 0 or 1, and whatever
/// of NCCL's own variable is no number above 0 is taken for 0.
[[nodiscard]] std::string multicast_forbidden(const environment& variables);
/// The same for LL128: "DEVCOMM_LL128_ENABLE is 0".
[[nodiscard]] std::string ll128_forbidden(const environment& variables);

/// `DEVCOMM_NVLINK_DOMAIN`, or nothing where it is unset.
[[nodiscard]] std::optional<std::string> nvlink_domain(const environment& variables);

/// libfabric's provider for GIN: `DEVCOMM_GIN_PROVIDER`, or nothing where it is unset.
[[nodiscard]] std::optional<std::string> wanted_provider(const environment& variables);
/// The one that is taken where none is named.
inline constexpr const char* default_provider = "tcp;ofi_rxm";
/// libfabric's name of the network card of GIN: `DEVCOMM_GIN_CARD`; empty where it is unset.
[[nodiscard]] std::string wanted_card(const environment& variables);
/// How `DEVCOMM_GIN_PAYLOAD` wants payload to go: "direct" or "staged"; nothing where it is unset.
[[nodiscard]] std::optional<std::string> wanted_payload(const environment& variables);
/// Threads that serve the contexts of a communicator over libfabric: `DEVCOMM_GIN_PROXIES`, or nothing where it is
/// unset.
[[nodiscard]] std::optional<std::uint32_t> wanted_proxies(const environment& variables);
/// How many are taken then: one for two processors of each rank, from 1 to 4. `ranks` of the host share `processors`.
[[nodiscard]] constexpr std::uint32_t default_proxies(std::size_t processors, std::size_t ranks) {
  constexpr std::size_t max_proxies = 4;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(processors / ranks / 2, 1, max_proxies));
}
/// Processors of GIN's threads: `DEVCOMM_GIN_CPUS`; none: any. `pci` is the place of the rank's device.
[[nodiscard]] std::vector<int> wanted_cpus(const environment& variables, std::uint64_t pci);

}  // namespace devcomm::host::detail
