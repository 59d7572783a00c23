/// \file topology.hpp
/// Which ranks share a host, a process, a device or an NVLink domain, and which form an LSA team.
#pragma once

#include <devcomm/host/communicator.hpp>
#include <devcomm/window.hpp>

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

/// The first message after the versions: what must be alike on all ranks, but for the last two.
struct job_info {
  std::array<char, 16> backend{};
  std::int32_t lsa_size = 0;
  std::int32_t check_launch = 0;
  std::int32_t handle = 0;          ///< `handle_kind` asked for
  std::uint32_t communicators = 0;  ///< see `first_number`
  std::uint64_t identity = 0;       ///< random, from rank 0: names the communicator
  std::int64_t timeout_ms = 0;      ///< of waits in kernels
};

/// The second message of each rank, to the ranks of its host.
struct rank_info {
  std::array<std::uint8_t, 16> program{};  ///< random, one per process
  std::array<std::byte, 16> host{};        ///< see `name_of_host`; all zero: another one than this rank's
  std::int64_t pid = 0;
  std::uint64_t pid_space = 0;  ///< PID namespace
  std::int32_t clique = 0;      ///< ranks of different cliques never share an LSA team
  std::int32_t unused = 0;
};

/// The third, to the ranks of its host: about its device.
struct device_info {
  std::array<char, 64> uuid{};
  std::uint64_t granularity = 0;
  std::uint64_t pci = 0;      ///< see `device_facts`
  std::uint32_t handles = 0;  ///< bits `bit_of(kind)` of the kinds that it offers
  std::int32_t device = -1;   ///< index in its process
  /// Why it has no multicast; empty where it has.
  std::array<char, 128> no_multicast{};
  link_address links{};  ///< of the process's first rank
  /// Of the NVLink domain that its device is in, whose members on other hosts it reaches by fabric handles; all zero:
  /// none.
  agreement::group_name nvlink_domain{};
};

[[nodiscard]] constexpr std::uint32_t bit_of(handle_kind kind) {
  return std::uint32_t{1} << static_cast<std::uint32_t>(kind);
}

/// How one rank can access the memory of another.
enum class reach : std::uint8_t {
  none,
  load_store,
  untried,  ///< it does not see the other's device; a trial decides
};

[[nodiscard]] job_info make_job_info(const communicator_options& options, handle_kind handle, int rank,
                                     const std::string& backend_name);
/// Of boot id and network namespace: equal for processes that can hand descriptors to each other.
[[nodiscard]] agreement::group_name name_of_host();
[[nodiscard]] rank_info make_rank_info(const agreement::group_name& host, int clique);

/// Throws when libraries or options of two ranks differ, with the same text on all ranks.
void require_agreement(const std::vector<job_info>& ranks, const std::string& call, int rank);

/// A communicator's number, below `numbers`, among those that live in this process.
class communicator_number {
 public:
  static constexpr std::uint32_t numbers =
      static_cast<std::uint32_t>((std::uint64_t{1} << 32) / window_ids_of_communicator);

  communicator_number() = default;
  ~communicator_number() { give_back(); }
  communicator_number(const communicator_number&) = delete;
  communicator_number& operator=(const communicator_number&) = delete;

  /// Takes `number`; whether no communicator but `identity` has it here. May be called again.
  [[nodiscard]] bool take(std::uint32_t number, std::uint64_t identity);
  [[nodiscard]] std::uint32_t get() const noexcept { return number_; }

 private:
  void give_back() noexcept;

  std::uint32_t number_ = 0;
  bool taken_ = false;
};

/// The number to try first for the communicator of these ranks, the same on all of them: after those of all that their
/// processes have made before.
[[nodiscard]] std::uint32_t first_number(const std::vector<job_info>& ranks);

/// Ranks that satisfy `same` with `rank`, ascending; `rank` is among them.
[[nodiscard]] std::vector<int> ranks_of_process(const std::vector<rank_info>& ranks, int rank);
[[nodiscard]] std::vector<int> ranks_of_host(const std::vector<rank_info>& ranks, int rank);

/// Processes of `rank`'s host, in the order of their first ranks.
[[nodiscard]] std::vector<link_peer> processes_of_host(const std::vector<rank_info>& ranks,
                                                       const std::vector<device_info>& device_infos, int rank);

/// The NVLink domain that all ranks of `rank`'s host are in, or else a name of that host: ranks of one name may reach
/// each other.
[[nodiscard]] agreement::group_name name_of_domain(const std::vector<rank_info>& ranks,
                                                   const std::vector<device_info>& device_infos, int rank);

/// The handle type for memory between ranks of different processes: the first of `handle_kinds` that is `wanted`, or
/// any where that is `none`, among those whose bit is in `offered`, which all of the ranks offer. `none` when there is
/// none.
[[nodiscard]] handle_kind common_handle(std::uint32_t offered, handle_kind wanted);

/// Which of the ranks of a domain reach each other. Both ascend.
struct reach_matrix {
  std::vector<int> ranks;
  std::vector<std::vector<bool>> rows;  ///< by place in `ranks`: whether the one reaches the other
};

/// Divides the ranks of a domain into LSA teams, of `most` members at most (0: no limit): each rank joins the first
/// team all of whose members it reaches, and that reach it. All ranks of the domain find the same.
[[nodiscard]] std::vector<std::vector<int>> form_teams(const reach_matrix& domain, int most);

/// Where a member of a team is.
struct member_site {
  agreement::group_name host{};
  std::uint64_t pci = 0;  ///< see `device_facts`
};
/// The order in which a ring visits members: one host after another, in the order of their first members, and on each
/// by the devices' PCI addresses; members of one device keep their order. So it enters each host, and each run of
/// addresses on it, once.
[[nodiscard]] std::vector<int> ring_over(const std::vector<member_site>& members);

/// How an LSA team lies among all ranks.
enum class placement : std::int32_t {
  block,        ///< consecutive ranks from a multiple of its size on
  round_robin,  ///< every `ranks / size`th rank
  other,
};
[[nodiscard]] placement placement_of(const std::vector<int>& team, int ranks);

/// Each rank's LSA team, known to all ranks.
struct team_note {
  std::int32_t size = 0;
  placement placed = placement::other;

  friend bool operator==(const team_note&, const team_note&) = default;
};

/// Whether there are rails, teams with one rank of each LSA team, and why not.
[[nodiscard]] capability rails_of(const std::vector<team_note>& teams);

/// The LSA team of `rank`, which has the members `ranks`.
[[nodiscard]] team team_of(const std::vector<int>& ranks, int rank);

}  // namespace devcomm::host::detail
