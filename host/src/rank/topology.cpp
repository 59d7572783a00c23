#include "rank/topology.hpp"

#include <devcomm/host/error.hpp>

#include "util/fixed_text.hpp"
#include "util/host_identity.hpp"
#include "util/random.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <tuple>
#include <utility>

namespace devcomm::host::detail {
namespace {

constexpr std::uint32_t magic = 0x64766d63;

/// Process ids have a meaning among processes for which it is equal.
const std::array<std::uint8_t, 16>& program_identity() {
  static const auto identity = random_value<std::array<std::uint8_t, 16>>();
  return identity;
}

/// Which communicators of this process have which numbers.
struct taken_numbers {
  struct holder {
    std::uint64_t identity = 0;
    int ranks = 0;  ///< of this process that hold it
  };
  std::mutex mutex;
  std::array<holder, communicator_number::numbers> holders{};
  std::uint32_t next = 0;  ///< after the latest
};

/// Never destroyed: communicators may be left when the process ends.
taken_numbers& all_numbers() {
  static auto& only = *new taken_numbers;
  return only;
}

std::uint32_t next_number() {
  const std::lock_guard lock(all_numbers().mutex);
  return all_numbers().next;
}

std::string handle_text(std::int32_t handle) {
  const auto kind = static_cast<handle_kind>(handle);
  if (kind == handle_kind::none) return "unset";
  const handle_traits* const traits = traits_of(kind);
  return traits != nullptr ? std::string(traits->variable) : std::to_string(handle);
}

/// The pid too: a forked child inherits what was random in its parent.
bool same_process(const rank_info& a, const rank_info& b) {
  return a.program == b.program && a.pid == b.pid && a.pid_space == b.pid_space && a.host == b.host;
}

template <class Same>
std::vector<int> ranks_like(const std::vector<rank_info>& ranks, int rank, Same same) {
  std::vector<int> found;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (same(ranks[i], ranks[static_cast<std::size_t>(rank)])) found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace

job_info make_job_info(const communicator_options& options, handle_kind handle, int rank,
                       const std::string& backend_name) {
  job_info mine;
  fill(mine.backend, backend_name);
  mine.lsa_size = options.lsa_size;
  mine.check_launch = options.check_launch ? 1 : 0;
  mine.handle = static_cast<std::int32_t>(handle);
  mine.timeout_ms = options.kernel_timeout.count();
  mine.communicators = next_number();
  if (rank == 0) mine.identity = random_value<std::uint64_t>();
  return mine;
}

agreement::group_name name_of_host() { return name_of_group(host_identity()); }

rank_info make_rank_info(const agreement::group_name& host, int clique) {
  return {program_identity(), host, ::getpid(), pid_space_identity(), clique, 0};
}

void require_one_version(const agreement& agree, const std::string& call, std::uint32_t layout_version) {
  const std::string start = call_text(call, agree.rank(), agree.size()) + ": ";
  constexpr std::uint64_t messages =
      sizeof(job_info) << 48 | sizeof(rank_info) << 32 | sizeof(device_info) << 16 | sizeof(link_address);
  const version_info mine{magic, layout_version, messages, {}};
  const std::vector<std::byte> all = agree.gather_plain(call, std::as_bytes(std::span(&mine, 1)));
  for (int i = 0; i < agree.size(); ++i) {
    version_info one;
    std::memcpy(&one, all.data() + static_cast<std::size_t>(i) * sizeof one, sizeof one);
    const std::string who = "rank " + std::to_string(i);
    if (one.magic != magic || one.layout_version != device_comm::layout_version) {
      throw not_supported(start + who + " was built with layout version " + std::to_string(one.layout_version) +
                          " of devcomm's headers and this library has version " +
                          std::to_string(device_comm::layout_version) +
                          "; build every rank's program and library from one version of devcomm");
    }
    if (one.messages != messages) {
      throw not_supported(start + who + " has another version of devcomm's host library than rank " +
                          std::to_string(agree.rank()) + "; build every rank's program and library from one version");
    }
  }
}

void require_agreement(const std::vector<job_info>& ranks, const std::string& call, int rank) {
  const std::string start = call_text(call, rank, static_cast<int>(ranks.size())) + ": ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const job_info& one = ranks[i];
    const job_info& first = ranks[0];
    const std::string who = "rank " + std::to_string(i);
    if (one.backend != first.backend) {
      throw invalid_argument(start + who + " runs on backend " + one.backend.data() + " and rank 0 on " +
                             first.backend.data() + "; link all ranks with the same library");
    }
    if (one.lsa_size != first.lsa_size) {
      throw invalid_argument(start + who + " was given lsa_size " + std::to_string(one.lsa_size) + " and rank 0 " +
                             std::to_string(first.lsa_size) +
                             "; give all ranks the same option, or set DEVCOMM_LSA_SIZE alike for all");
    }
    if (one.check_launch != first.check_launch) {
      throw invalid_argument(start + who + " was given check_launch " + std::to_string(one.check_launch) +
                             " and rank 0 " + std::to_string(first.check_launch) +
                             "; give all ranks the same option, or set DEVCOMM_CHECK_LAUNCH alike for all");
    }
    if (one.timeout_ms != first.timeout_ms) {
      throw invalid_argument(start + who + " was given a kernel_timeout of " + std::to_string(one.timeout_ms) +
                             " ms and rank 0 " + std::to_string(first.timeout_ms) +
                             " ms; give all ranks the same option, or set DEVCOMM_TIMEOUT alike for all");
    }
    if (one.handle != first.handle) {
      throw invalid_argument(start + who + " has DEVCOMM_MEMORY_HANDLE " + handle_text(one.handle) + " and rank 0 " +
                             handle_text(first.handle) + "; set it alike for all ranks");
    }
  }
}

std::uint32_t first_number(const std::vector<job_info>& ranks) {
  std::uint32_t number = 0;
  for (const job_info& each : ranks) number = std::max(number, each.communicators);
  return number % communicator_number::numbers;
}

bool communicator_number::take(std::uint32_t number, std::uint64_t identity) {
  give_back();
  taken_numbers& taken = all_numbers();
  const std::lock_guard lock(taken.mutex);
  taken.next = number + 1;
  taken_numbers::holder& here = taken.holders[number];
  if (here.ranks != 0 && here.identity != identity) return false;
  here.identity = identity;
  ++here.ranks;
  number_ = number;
  taken_ = true;
  return true;
}

void communicator_number::give_back() noexcept {
  if (!std::exchange(taken_, false)) return;
  taken_numbers& taken = all_numbers();
  const std::lock_guard lock(taken.mutex);
  --taken.holders[number_].ranks;
}

std::vector<int> ranks_of_process(const std::vector<rank_info>& ranks, int rank) {
  return ranks_like(ranks, rank, same_process);
}

std::vector<int> ranks_of_host(const std::vector<rank_info>& ranks, int rank) {
  return ranks_like(ranks, rank, [](const rank_info& a, const rank_info& b) { return a.host == b.host; });
}

std::vector<link_peer> processes_of_host(const std::vector<rank_info>& ranks,
                                         const std::vector<device_info>& device_infos, int rank) {
  std::vector<link_peer> processes;
  for (const int each : ranks_of_host(ranks, rank)) {
    std::vector<int> together = ranks_of_process(ranks, each);
    if (together.front() == each) {
      processes.push_back({device_infos[static_cast<std::size_t>(each)].links, std::move(together)});
    }
  }
  return processes;
}

handle_kind common_handle(std::uint32_t offered, handle_kind wanted) {
  for (const handle_traits& each : handle_kinds) {
    if (wanted != handle_kind::none && wanted != each.kind) continue;
    if ((offered & bit_of(each.kind)) != 0) return each.kind;
  }
  return handle_kind::none;
}

agreement::group_name name_of_domain(const std::vector<rank_info>& ranks, const std::vector<device_info>& device_infos,
                                     int rank) {
  const agreement::group_name mine = device_infos[static_cast<std::size_t>(rank)].nvlink_domain;
  const std::vector<int> host = ranks_of_host(ranks, rank);
  const bool alike = std::all_of(host.begin(), host.end(), [&](int each) {
    return device_infos[static_cast<std::size_t>(each)].nvlink_domain == mine;
  });
  return alike && mine != agreement::group_name{} ? mine : ranks[static_cast<std::size_t>(rank)].host;
}

std::vector<std::vector<int>> form_teams(const reach_matrix& domain, int most) {
  std::vector<std::vector<std::size_t>> teams;  // of places in `domain.ranks`
  for (std::size_t rank = 0; rank < domain.ranks.size(); ++rank) {
    const auto takes = [&](const std::vector<std::size_t>& members) {
      return (most == 0 || members.size() < static_cast<std::size_t>(most)) &&
             std::all_of(members.begin(), members.end(),
                         [&](std::size_t member) { return domain.rows[rank][member] && domain.rows[member][rank]; });
    };
    const auto found = std::find_if(teams.begin(), teams.end(), takes);
    if (found != teams.end()) {
      found->push_back(rank);
    } else {
      teams.push_back({rank});
    }
  }
  std::vector<std::vector<int>> named;
  for (const auto& members : teams) {
    auto& team = named.emplace_back();
    for (const std::size_t member : members) team.push_back(domain.ranks[member]);
  }
  return named;
}

std::vector<int> ring_over(const std::vector<member_site>& members) {
  struct visit {
    std::size_t first_of_host;
    std::uint64_t pci;
    int member;
  };
  std::vector<visit> visits;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto first = std::find_if(members.begin(), members.end(),
                                    [&](const member_site& other) { return other.host == members[i].host; });
    visits.push_back({static_cast<std::size_t>(first - members.begin()), members[i].pci, static_cast<int>(i)});
  }
  std::sort(visits.begin(), visits.end(), [](const visit& a, const visit& b) {
    return std::tie(a.first_of_host, a.pci, a.member) < std::tie(b.first_of_host, b.pci, b.member);
  });
  std::vector<int> ring;
  ring.reserve(visits.size());
  for (const visit& each : visits) ring.push_back(each.member);
  return ring;
}

placement placement_of(const std::vector<int>& team, int ranks) {
  const int size = static_cast<int>(team.size());
  const int last = team.back();
  if (last - team.front() == size - 1) return team.front() % size == 0 ? placement::block : placement::other;
  const int teams = ranks / size;
  if (teams * size != ranks || team.front() >= teams) return placement::other;
  for (int member = 0; member < size; ++member) {
    if (team[static_cast<std::size_t>(member)] != team.front() + member * teams) return placement::other;
  }
  return placement::round_robin;
}

capability rails_of(const std::vector<team_note>& teams) {
  const auto text = [](const team_note& team) { return "has " + std::to_string(team.size) + " ranks"; };
  for (std::size_t rank = 0; rank < teams.size(); ++rank) {
    if (teams[rank].size != teams[0].size) {
      return {false, "the LSA team of rank 0 " + text(teams[0]) + " and that of rank " + std::to_string(rank) + " " +
                         text(teams[rank]) +
                         ", and a rail has one rank of each; start equally many ranks on each host, or set "
                         "DEVCOMM_LSA_SIZE to a number that divides those of all hosts"};
    }
  }
  for (std::size_t rank = 0; rank < teams.size(); ++rank) {
    if (teams[rank].placed == placement::other || teams[rank].placed != teams[0].placed) {
      return {false,
              "the LSA team of rank " + std::to_string(rank) +
                  " is neither a block of consecutive ranks nor every n-th of all; place ranks on hosts in blocks "
                  "or in turn"};
    }
  }
  const std::size_t size = static_cast<std::size_t>(teams[0].size);
  return {true, "teams of " + std::to_string(teams.size() / size) + " of " + std::to_string(teams.size()) + " ranks"};
}

team team_of(const std::vector<int>& ranks, int rank) {
  const int size = static_cast<int>(ranks.size());
  const int member = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const bool consecutive = ranks.back() - ranks.front() == size - 1;
  // Those of two teams of one size do not overlap, so that traces tell their barriers apart.
  return {member, size, consecutive ? ranks.front() : first_lsa_number + ranks.front() * size, 1};
}

}  // namespace devcomm::host::detail
