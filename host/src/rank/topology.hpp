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

/// The first message of each rank. `layout_version` has the same offset in every version.
struct rank_info {
  std::uint32_t magic = 0;
  std::uint32_t layout_version = 0;
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
  std::uint32_t file_descriptors = 0;
  std::uint32_t fabric = 0;
  std::int32_t device = -1;  ///< index in its process
  link_address links{};      ///< of the process's first rank
};

/// How one rank can access the memory of another.
enum class reach : std::uint8_t { none, load_store };

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

/// The handle type for memory between two ranks of different processes; `none` when they have none in common.
[[nodiscard]] handle_kind common_handle(const device_info& a, const device_info& b, handle_kind wanted);

/// Size of the LSA teams: the largest divisor of the number of ranks, at most `most` (0: no limit),
/// such that every aligned run of that many ranks can reach each other. `reaches` holds one row per rank.
/// Throws `invalid_argument` when `most` does not divide the number of ranks.
[[nodiscard]] int choose_lsa_size(const std::vector<reach>& reaches, int ranks, int most);

}  // namespace devcomm::host::detail
