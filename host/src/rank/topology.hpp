/// \file topology.hpp
/// Which ranks share a host, a process or a device, and which form an LSA team.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "device/backend.hpp"
#include "rank/agreement.hpp"
#include "rank/peer_links.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// What each rank sends before anything else, the same in every version.
struct version_info {
  std::uint32_t magic = 0;
  std::uint32_t layout_version = 0;  ///< of the device API that the program was compiled with
  std::uint64_t messages = 0;        ///< sizes of what the host library sends from here on
  std::array<std::uint64_t, 6> reserved{};
};

static_assert(sizeof(version_info) == 64, "libraries of all versions understand it");

/// Throws `not_supported`, with the same text on all ranks, unless all have one version of devcomm. *Collective*.
void require_one_version(const agreement& agree, const std::string& call, std::uint32_t layout_version);

/// The first message after the versions.
struct rank_info {
  std::array<std::uint8_t, 16> program{};  ///< random, one per process
  std::array<char, 96> host{};             ///< boot id and network namespace
  std::array<char, 16> backend{};
  std::int64_t pid = 0;
  std::int32_t lsa_size = 0;
  std::int32_t check_launch = 0;
  std::int32_t handle = 0;     ///< `handle_kind` asked for
  std::int32_t clique = 0;     ///< ranks of different cliques never share an LSA team
  std::uint64_t identity = 0;  ///< random; rank 0's names the communicator
};

/// The second message of each rank, about its device.
struct device_info {
  std::array<char, 64> uuid{};
  std::uint64_t granularity = 0;
  std::uint32_t handles = 0;  ///< bits `bit_of(kind)` of the kinds that it offers
  std::int32_t device = -1;   ///< index in its process
  /// Why it has no multicast; empty where it has.
  std::array<char, 128> no_multicast{};
  link_address links{};  ///< of the process's first rank
};

[[nodiscard]] constexpr std::uint32_t bit_of(handle_kind kind) {
  return std::uint32_t{1} << static_cast<std::uint32_t>(kind);
}

/// How one rank can access the memory of another.
enum class reach : std::uint8_t {
  none,
  load_store,
  untried,  ///< it does not see the other's device, and a trial tells
};

[[nodiscard]] rank_info make_rank_info(const communicator_options& options, handle_kind handle, int clique,
                                       const std::string& backend_name);

/// Throws when libraries or options of two ranks differ, with the same text on all ranks.
void require_agreement(const std::vector<rank_info>& ranks, const std::string& call, int rank);

/// Ranks that satisfy `same` with `rank`, ascending; `rank` is among them.
[[nodiscard]] std::vector<int> ranks_of_process(const std::vector<rank_info>& ranks, int rank);
[[nodiscard]] std::vector<int> ranks_of_host(const std::vector<rank_info>& ranks, int rank);

/// Processes of `rank`'s host, in the order of their first ranks.
[[nodiscard]] std::vector<link_peer> processes_of_host(const std::vector<rank_info>& ranks,
                                                       const std::vector<device_info>& device_infos, int rank);

/// The handle type for memory between ranks of different processes: the first of `handle_kinds` that is `wanted`, or
/// any where that is `none`, among those whose bit is in `offered`, which all of the ranks offer. `none` when there is
/// none.
[[nodiscard]] handle_kind common_handle(std::uint32_t offered, handle_kind wanted);

/// Size of the LSA teams: the largest divisor of the number of ranks, at most `most` (0: no limit),
/// such that every aligned run of that many ranks can reach each other. `reaches` holds one row per rank.
/// Throws `invalid_argument` when `most` does not divide the number of ranks.
[[nodiscard]] int choose_lsa_size(const std::vector<reach>& reaches, int ranks, int most);

}  // namespace devcomm::host::detail
