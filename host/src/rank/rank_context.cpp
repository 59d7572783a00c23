#include "rank/rank_context.hpp"

#include <devcomm/host/error.hpp>

#include "rank/settings.hpp"
#include "util/fixed_text.hpp"
#include "util/number_list.hpp"
#include "util/window_number.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <utility>

namespace devcomm::host::detail {
namespace {

/// What goes to all ranks beside each rank's `device_info`.
struct device_note {
  bool spans;       ///< its device is in an NVLink domain
  bool has_number;  ///< the communicator's number is free in its process
};

}  // namespace

rank_context::rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given)
    : rank_context(call, std::move(ranks), given, nullptr) {}

rank_context::rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const rank_context& parent)
    : rank_context(call, std::move(ranks), parent.options, &parent) {}

rank_context::rank_context(const std::string& call, std::shared_ptr<bootstrap> ranks, const communicator_options& given,
                           const rank_context* parent)
    : devices(given.devices != nullptr ? *given.devices : current_backend()),
      options(given),
      agree(std::move(ranks), devices, given.limit) {
  try {
    start(call, given, parent);
  } catch (...) {
    // The others fail in the same step, each with its own error, so they need no notice of this end.
    if (process) send_shutdown_notice(first_lost(), text_of_loss());
    throw;
  }
}

void rank_context::start(const std::string& call, const communicator_options& given, const rank_context* parent) {
  require_one_version(agree, call, given.layout_version);
  agreement::group_name host{};
  int clique = 0;
  const std::vector<job_info> jobs = agree.gather(call, [&] {
    clique = take_options(given, parent);
    host = name_of_host();
    return make_job_info(options, wanted, rank(), properties.backend);
  });
  require_agreement(jobs, call, rank());
  identity = jobs[0].identity;
  peers = agree.gather_group(call, host, [&] { return make_rank_info(host, clique); }).spread(size());
  local_ranks = ranks_of_process(peers, rank());
  aborts = std::make_shared<abort_state>(rank(), size());
  objects = std::make_shared<live_objects>(rank(), size());
  agree.end_with(aborts);
  process = process_ranks::join(identity);

  const auto [notes, cards] = agree.gather_notes_and_group(call, host, [&] {
    choose_device();
    if (parent == nullptr) devices.name_rank(device, rank());
    device_info mine = describe_device();
    if (local_ranks.front() == rank()) {
      process->open_links();
      mine.links = process->links().address();
    }
    const bool has_number = number.take(first_number(jobs), identity);
    return std::pair(device_note{mine.nvlink_domain != agreement::group_name{}, has_number}, mine);
  });
  choose_number(call, first_number(jobs),
                std::all_of(notes.begin(), notes.end(), [](const device_note& each) { return each.has_number; }));
  device_infos = cards.spread(size());
  aborts->set_kernel_failure_source([&port = devices, on = device] { return port.kernel_failure(on); });
  domain = {peers[static_cast<std::size_t>(rank())].host, cards.ranks};
  if (std::any_of(notes.begin(), notes.end(), [](const device_note& each) { return each.spans; })) join_domain(call);

  form_team(call, cards.ranks);

  agree.together(call, [&] {
    choose_handle();
    nvlink = nvlink_of_team();
    properties.ll128 = ll128_capability();
    properties.multicast = multicast_of_team();
    properties.network = network_of_world();
    properties.pinned_host = pinned_of_team();
    properties.cuda_ipc = ipc_of_team();
    properties.own_device = own_device();
    aborts->explain_timeouts(cause_of_timeouts());
    devices.make_current(device);
  });
}

void rank_context::form_team(const std::string& call, const std::vector<int>& neighbors) {
  watches_ = neighbors.size() != peers.size();
  std::string obstacle;
  std::vector<reach> row;
  const auto gather_summaries = [&](const std::function<void()>& before) {
    return agree.gather(call, [&] {
      before();
      return summarize(row);
    });
  };
  std::vector<reach_summary> summaries = gather_summaries([&] {
    if (watches_) watch_other_hosts(neighbors);
    process->add(rank(), aborts);
    if (local_ranks.front() == rank()) connect_links();
    row = reachable(obstacle);
  });
  const auto counted = [&](std::uint32_t reach_summary::*what) {
    return std::any_of(summaries.begin(), summaries.end(), [&](const reach_summary& each) { return each.*what != 0; });
  };
  std::uint32_t most = 0;
  for (const reach_summary& each : summaries) most = std::max(most, each.neighbors);
  if (counted(&reach_summary::untried)) {
    try_to_reach(call, row, most, obstacle);
    summaries = gather_summaries([] {});
  }
  for (const reach_summary& each : summaries) {
    granularity = std::max(granularity, static_cast<std::size_t>(each.granularity));
  }
  choose_lsa(call, counted(&reach_summary::unreachable) ? gather_rows(call, row, most) : whole_domain(), obstacle);
}

void rank_context::choose_number(const std::string& call, std::uint32_t first, bool is_chosen) {
  // Another communicator that some process makes meanwhile has taken it there.
  for (std::uint32_t tried = 1; !is_chosen; ++tried) {
    if (tried == communicator_number::numbers) {
      throw not_supported("there are " + std::to_string(tried) +
                          " communicators in one process, the most there can be; "
                          "destroy one that is not needed");
    }
    const auto has_number = agree.gather(
        call, [&] { return number.take((first + tried) % communicator_number::numbers, identity) ? 1 : 0; });
    is_chosen = std::all_of(has_number.begin(), has_number.end(), [](int each) { return each != 0; });
  }
}

void rank_context::watch_other_hosts(const std::vector<int>& neighbors) {
  // The links report other ranks on this host, in more detail. For this rank, the bootstrap reports that it cannot
  // watch.
  agree.watch(aborts, [neighbors, own = rank()](int other) {
    return other == own || !std::binary_search(neighbors.begin(), neighbors.end(), other);
  });
}

void rank_context::connect_links() {
  const std::vector<link_peer> processes = processes_of_host(peers, device_infos, rank());
  const auto own =
      std::find_if(processes.begin(), processes.end(), [&](const link_peer& p) { return p.ranks.front() == rank(); });
  // Half of the limit: the other ranks still wait for this one, and get its error with the ranks that it missed.
  process->links().connect(processes, static_cast<std::size_t>(own - processes.begin()), agree.limit() / 2);
}

rank_context::~rank_context() {
  if (objects) objects->report_left();
  if (!process) return;
  if (watch_.unwinding()) leave({});  // the first shutdown notice counts
  // The rank that aborted has notified the others itself.
  const bool aborted = first_lost() < 0 && aborts->aborted() && !aborts->aborter();
  send_shutdown_notice(aborted ? rank() : first_lost(),
                       aborted ? name() + " aborted its communicator and left" : text_of_loss());
}

void rank_context::send_shutdown_notice(int culprit, const std::string& text) noexcept {
  process->remove(rank(), culprit, text);
  if (watches_ && !std::exchange(left_, true)) agree.leave(culprit, text);
}

std::string rank_context::name() const { return "rank " + std::to_string(rank()); }

std::string rank_context::text_of_loss() const {
  const int lost = first_lost();
  if (lost < 0) return {};
  std::string reason = aborts->reason_of_loss();
  return !reason.empty() ? reason : name() + " left because rank " + std::to_string(lost) + " was lost";
}

int rank_context::first_lost() const noexcept {
  const int lost = aborts->lost_rank();
  return lost >= 0 ? lost : agree.lost_rank();
}

void rank_context::abort() noexcept {
  if (!aborts->abort()) return;
  try {
    const std::string text = name() + " aborted its communicator";
    if (watches_) agree.abort(text);  // which never waits, as a link to a process that reads nothing may
    process->spread_abort(rank(), text);
  } catch (const std::exception&) {
    // Out of memory: the others are notified when this rank leaves.
  }
}

void rank_context::leave(const std::string& reason) noexcept {
  const int lost = first_lost();
  try {
    const auto aborter = aborts->aborter();
    aborts->abort();
    if (lost >= 0) {
      send_shutdown_notice(lost, text_of_loss());
    } else if (aborter) {
      send_shutdown_notice(rank(), name() + " left because " + aborter->text);
    } else {
      const std::string& known = reason.empty() ? agree.failed_step() : reason;
      send_shutdown_notice(rank(), name() + " left because of an exception" + (known.empty() ? "" : ": " + known));
    }
  } catch (const std::exception&) {
    aborts->abort();
    send_shutdown_notice(rank(), {});  // out of memory
  }
}

namespace {

/// Once, as each rank of the process comes here.
void warn_of_unused_watchdog(const environment& variables) {
  static std::atomic<bool> warned = false;  // one warning for each process
  for (const char* const name : {"DEVCOMM_WATCHDOG_AFTER", "DEVCOMM_WATCHDOG_SIGNAL"}) {
    if (!variables(name) || warned.exchange(true)) continue;
    std::fprintf(stderr,
                 "devcomm: %s is set, and this program has no watchdog: compile it with -DDEVCOMM_WATCHDOG=1, or set "
                 "communicator_options::watchdog\n",
                 name);
  }
}

}  // namespace

int rank_context::take_options(const communicator_options& given, const rank_context* parent) {
  properties.backend = devices.name();
  int clique = 0;
  if (parent == nullptr) {
    const environment variables = process_variables();
    communicator_options defaults = given;
    if (devices.traits().checks_launches) defaults.check_launch = true;
    options = apply_environment(defaults, variables);
    wanted = wanted_handle(variables);
    if (!options.watchdog) warn_of_unused_watchdog(variables);
  } else {
    // A limit on the parent's teams models hosts of that size, so teams of its children stay within them.
    const bool limited = parent->options.lsa_size != 0;
    clique = limited ? parent->lsa_ranks.front() : parent->peers[static_cast<std::size_t>(parent->rank())].clique;
    options.device = parent->device;
    options.lsa_size = 0;
    wanted = parent->wanted;
  }
  return clique;
}

bool rank_context::same_process(int other) const {
  return std::find(local_ranks.begin(), local_ranks.end(), other) != local_ranks.end();
}

std::vector<int> rank_context::other_processes(const std::vector<int>& ranks) const {
  std::vector<int> firsts;
  for (const int peer : ranks) {
    if (same_process(peer)) continue;
    const int first = ranks_of_process(peers, peer).front();
    if (std::find(firsts.begin(), firsts.end(), first) == firsts.end()) firsts.push_back(first);
  }
  return firsts;
}

agreement::group_name rank_context::name_of_lsa() const {
  return name_of_group("the LSA team that starts at rank " + std::to_string(lsa_ranks.front()));
}

void rank_context::choose_device() {
  const int count = devices.device_count();
  device = options.device;
  if (device == -1) {
    const std::vector<int> neighbors = ranks_of_host(peers, rank());
    const auto place = std::find(neighbors.begin(), neighbors.end(), rank()) - neighbors.begin();
    device = static_cast<int>(place % count);
  }
  if (device < 0 || device >= count) {
    throw invalid_argument("there is no device " + std::to_string(device) + "; this process sees " +
                           std::to_string(count) + " devices, from 0");
  }
}

device_info rank_context::describe_device() {
  const device_facts facts = devices.facts(device);
  device_info mine;
  fill(mine.uuid, facts.uuid);
  mine.granularity = devices.granularity(device);
  for (const handle_traits& each : handle_kinds) {
    if ((facts.*each.offered).available) mine.handles |= bit_of(each.kind);
    properties.*each.reported = facts.*each.offered;
  }
  mine.pci = facts.pci;
  mine.device = device;

  properties.nvlink_domain = nvlink_domain_of_device(facts.fabric_handles);
  if (properties.nvlink_domain.available) {
    mine.nvlink_domain = name_of_group("NVLink domain " + properties.nvlink_domain.reason);
  }

  properties.device_name = facts.name;
  properties.timing = devices.traits().timing;
  properties.multiprocessors = facts.multiprocessors;
  properties.cuda_ipc = facts.cuda_ipc;
  properties.multicast = facts.multicast;
  properties.pinned_host = facts.pinned_host;
  if (const std::string forbidden = multicast_forbidden(process_variables()); !forbidden.empty()) {
    properties.multicast = {false, forbidden};
  }
  if (!properties.multicast.available) {
    fill(mine.no_multicast, properties.multicast.reason.empty() ? "no reason given" : properties.multicast.reason);
  }
  return mine;
}

capability rank_context::nvlink_domain_of_device(const capability& fabric) const {
  const std::optional<std::string> named = nvlink_domain(process_variables());
  if (ranks_of_host(peers, rank()).size() == peers.size()) return {false, "all ranks are on one host"};
  const std::string start = "memory crosses hosts by fabric handles, and ";
  if (wanted == handle_kind::file_descriptor) return {false, start + "DEVCOMM_MEMORY_HANDLE is file_descriptor"};
  if (!fabric.available) return {false, start + "there are none: " + fabric.reason};
  return named ? capability{true, "DEVCOMM_NVLINK_DOMAIN is " + *named} : devices.nvlink_domain(device);
}

std::vector<reach> rank_context::reachable(std::string& obstacle) {
  const rank_info& me = peers[static_cast<std::size_t>(rank())];
  const bool me_spans = domain.name != me.host;
  const auto why_not = [&](std::size_t i, bool& seen) -> std::string {
    const std::string who = "rank " + std::to_string(i);
    if (static_cast<int>(i) == rank()) return {};
    if (!std::binary_search(domain.ranks.begin(), domain.ranks.end(), static_cast<int>(i)))
      return who + " is on another host" + (me_spans ? ", outside the NVLink domain" : "");
    if (peers[i].clique != me.clique) return who + " is in another LSA team of the parent communicator";
    if (!same_process(static_cast<int>(i)) && handle_with(static_cast<int>(i)) == handle_kind::none) {
      std::string reasons;
      for (const handle_traits& each : handle_kinds) {
        reasons += reasons.empty() ? ": " : "; ";
        reasons += std::string(each.name) + " handles: " + (properties.*each.reported).reason;
      }
      return "memory cannot be handed to " + who + reasons;
    }
    seen = peers[i].host == me.host && devices.sees(text_of(device_infos[i].uuid));
    if (!seen) return {};
    const capability access = devices.peer_access(device, text_of(device_infos[i].uuid));
    return access.available ? std::string() : "the device of " + who + " cannot be reached: " + access.reason;
  };
  std::vector<reach> row(peers.size(), reach::load_store);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    bool seen = true;
    const std::string why = why_not(i, seen);
    if (!seen) row[i] = reach::untried;
    if (why.empty()) continue;
    row[i] = reach::none;
    if (obstacle.empty()) obstacle = why;
  }
  return row;
}

std::uint32_t rank_context::handles_offered(int peer) const {
  const auto at = static_cast<std::size_t>(peer);
  const bool here = peers[at].host == peers[static_cast<std::size_t>(rank())].host;
  return device_infos[at].handles & (here ? ~std::uint32_t{0} : bit_of(handle_kind::fabric));
}

handle_kind rank_context::handle_with(int peer) const {
  return common_handle(handles_offered(rank()) & handles_offered(peer), wanted);
}

void rank_context::join_domain(const std::string& call) {
  struct member {
    rank_info about;
    device_info card;
  };
  domain.name = name_of_domain(peers, device_infos, rank());
  if (properties.nvlink_domain.available && domain.name == peers[static_cast<std::size_t>(rank())].host) {
    properties.nvlink_domain = {
        false, "not all ranks of this host are in that of this rank: " + properties.nvlink_domain.reason};
  }
  const auto found = agree.gather_group(call, domain.name, [&] {
    const auto own = static_cast<std::size_t>(rank());
    return member{peers[own], device_infos[own]};
  });
  domain.ranks = found.ranks;
  for (std::size_t i = 0; i < found.ranks.size(); ++i) {
    const auto at = static_cast<std::size_t>(found.ranks[i]);
    peers[at] = found.parts[i].about;
    device_infos[at] = found.parts[i].card;
  }
}

rank_context::reach_summary rank_context::summarize(const std::vector<reach>& row) const {
  reach_summary mine{};
  mine.granularity = device_infos[static_cast<std::size_t>(rank())].granularity;
  mine.neighbors = static_cast<std::uint32_t>(domain.ranks.size());
  for (const int each : domain.ranks) {
    const reach how = row[static_cast<std::size_t>(each)];
    mine.untried += how == reach::untried ? 1 : 0;
    mine.unreachable += how == reach::none ? 1 : 0;
  }
  return mine;
}

reach_matrix rank_context::whole_domain() const {
  const std::size_t size = domain.ranks.size();
  return {domain.ranks, std::vector<std::vector<bool>>(size, std::vector<bool>(size, true))};
}

reach_matrix rank_context::gather_rows(const std::string& call, const std::vector<reach>& row, std::size_t most) {
  const std::size_t bytes = (most + 7) / 8;
  const auto rows = agree.gather_group_bytes(call, 0, bytes, [&](std::span<std::byte>, std::span<std::byte> mine) {
    for (std::size_t i = 0; i < domain.ranks.size(); ++i) {
      if (row[static_cast<std::size_t>(domain.ranks[i])] == reach::load_store) mine[i / 8] |= std::byte{1} << i % 8;
    }
    return domain.name;
  });
  reach_matrix found = whole_domain();
  for (std::size_t from = 0; from < domain.ranks.size(); ++from) {
    for (std::size_t to = 0; to < domain.ranks.size(); ++to) {
      found.rows[from][to] = (rows.group.parts[from * bytes + to / 8] >> to % 8 & std::byte{1}) != std::byte{0};
    }
  }
  return found;
}

std::vector<int> rank_context::gather_triers(const std::string& call, const std::vector<reach>& row, std::size_t most) {
  const std::vector<int>& neighbors = domain.ranks;
  const auto rows = agree.gather_group_bytes(call, 0, most, [&](std::span<std::byte>, std::span<std::byte> mine) {
    for (std::size_t i = 0; i < neighbors.size(); ++i) {
      mine[i] = static_cast<std::byte>(row[static_cast<std::size_t>(neighbors[i])]);
    }
    return domain.name;
  });
  const auto place = std::find(neighbors.begin(), neighbors.end(), rank()) - neighbors.begin();
  std::vector<int> triers;
  for (std::size_t i = 0; i < neighbors.size(); ++i) {
    const std::byte theirs = rows.group.parts[i * most + static_cast<std::size_t>(place)];
    if (static_cast<reach>(theirs) == reach::untried) triers.push_back(neighbors[i]);
  }
  return triers;
}

void rank_context::try_to_reach(const std::string& call, std::vector<reach>& row, std::size_t most,
                                std::string& obstacle) {
  const std::vector<int>& neighbors = domain.ranks;
  const std::vector<int> triers = gather_triers(call, row, most);
  const deadline until(agree.limit());
  std::size_t bytes = 0;
  for (const device_info& card : device_infos) bytes = std::max(bytes, static_cast<std::size_t>(card.granularity));

  // One granule of each kind of handle that a peer will open. Its fabric handle travels with the agreement.
  std::map<handle_kind, std::unique_ptr<physical_memory>> granules;
  struct offer {
    std::uint32_t count = 0;
    std::array<std::byte, max_handle_bytes> bytes{};
  };
  const auto found = agree.gather_group(call, domain.name, [&] {
    offer mine;
    for (const int peer : triers) {
      const handle_kind common = handle_with(peer);
      std::unique_ptr<physical_memory>& memory = granules[common];
      if (!memory) memory = devices.create_physical(device, bytes, common);
      if (common == handle_kind::file_descriptor) {
        const unique_fd descriptor(memory->export_descriptor());
        // Ranks of one process take a descriptor each.
        process->links().send_memory(peer, static_cast<std::uint64_t>(peer), rank(), descriptor.get(), until,
                                     window_piece::trial);
      } else if (mine.count == 0) {
        const std::vector<std::byte> exported = memory->export_bytes();
        mine.count = static_cast<std::uint32_t>(std::min(exported.size(), mine.bytes.size()));
        std::copy_n(exported.begin(), mine.count, mine.bytes.begin());
      }
    }
    return mine;
  });

  const std::vector<offer> offers = found.spread(size());

  agree.together(call, [&] {
    for (const int peer : neighbors) {
      reach& answer = row[static_cast<std::size_t>(peer)];
      if (answer != reach::untried) continue;
      const handle_kind common = handle_with(peer);
      unique_fd descriptor;
      if (common == handle_kind::file_descriptor) {
        descriptor = process->links().take_memory(static_cast<std::uint64_t>(rank()), peer, until, window_piece::trial);
      }
      const offer& theirs = offers[static_cast<std::size_t>(peer)];
      const auto exported = std::span(theirs.bytes).first(std::min<std::size_t>(theirs.count, theirs.bytes.size()));
      const std::string problem = try_memory(common, descriptor, exported, bytes);
      answer = problem.empty() ? reach::load_store : reach::none;
      if (problem.empty() || !obstacle.empty()) continue;
      const bool is_here = peers[static_cast<std::size_t>(peer)].host == peers[static_cast<std::size_t>(rank())].host;
      obstacle = "the device of rank " + std::to_string(peer) + ", which " +
                 (is_here ? "this process does not see" : "is on another host of the NVLink domain") +
                 ", was tried: " + problem;
    }
  });
}

std::string rank_context::try_memory(handle_kind kind, const unique_fd& descriptor, std::span<const std::byte> exported,
                                     std::size_t bytes) {
  try {
    const auto memory = descriptor ? devices.import_descriptor(device, descriptor.get(), bytes)
                                   : devices.import_bytes(device, kind, exported, bytes);
    const auto range = devices.reserve(bytes);
    range->map(0, *memory, std::span(&device, 1));
    return {};
  } catch (const error& problem) {
    return problem.what();
  }
}

void rank_context::choose_lsa(const std::string& call, const reach_matrix& reached, const std::string& obstacle) {
  const std::vector<team_note> teams = agree.gather(call, [&] {
    for (const std::vector<int>& members : form_teams(reached, options.lsa_size)) {
      if (std::binary_search(members.begin(), members.end(), rank())) lsa_ranks = members;
    }
    lsa = team_of(lsa_ranks, rank());
    std::vector<member_site> sites;
    for (const int each : lsa_ranks) {
      const auto at = static_cast<std::size_t>(each);
      sites.push_back({peers[at].host, device_infos[at].pci});
    }
    lsa_ring = ring_over(sites);
    if (!lsa.has_world_ranks()) {
      const std::vector<std::int32_t> members(lsa_ranks.begin(), lsa_ranks.end());
      const std::size_t bytes = members.size() * sizeof(std::int32_t);
      lsa_table = devices.allocate_device(device, bytes);
      devices.copy(device, lsa_table->data(), members.data(), bytes, agree.limit_of_work());
    }
    return team_note{lsa.size, placement_of(lsa_ranks, size())};
  });
  properties.rail = rails_of(teams);
  placed = teams.front().placed;
  const std::string others = obstacle.empty() ? "" : "; " + obstacle;
  const std::string all = " of " + std::to_string(size()) + " ranks";
  if (lsa.size > 1 && properties.rail.available) {
    properties.lsa = {true, "teams of " + std::to_string(lsa.size) + all + others};
  } else if (lsa.size > 1) {
    properties.lsa = {true, "a team of " + std::to_string(lsa.size) + all + ", " + rank_list(lsa_ranks) + others};
  } else if (size() == 1) {
    properties.lsa = {false, "there is only one rank"};
  } else if (options.lsa_size == 1) {
    properties.lsa = {false, "lsa_size or DEVCOMM_LSA_SIZE is 1"};
  } else {
    properties.lsa = {false, obstacle};
  }
}

capability rank_context::ll128_capability() const {
  if (const std::string forbidden = ll128_forbidden(process_variables()); !forbidden.empty()) return {false, forbidden};
  return nvlink;
}

capability rank_context::nvlink_of_team() const {
  capability answer{true, "one GPU's own memory"};
  for (const int peer : lsa_ranks) {
    if (peer == rank()) continue;
    if (peers[static_cast<std::size_t>(peer)].host != peers[static_cast<std::size_t>(rank())].host) {
      return {false,
              "rank " + std::to_string(peer) + " is on another host, and the driver reports links within a host only"};
    }
    answer = devices.ll128_capability(device, text_of(device_infos[static_cast<std::size_t>(peer)].uuid));
    if (!answer.available) return {false, "to the device of rank " + std::to_string(peer) + ": " + answer.reason};
  }
  return answer;
}

capability rank_context::network_of_world() {
  const std::optional<std::string> named = wanted_provider(process_variables());
  if (!named && local_ranks.size() == static_cast<std::size_t>(size())) {
    network.windows_on_device = !devices.network_from_host().available;
    return devices.network();
  }
  network.needs_libfabric = true;
  const capability reached = devices.network_from_host();
  const std::optional<std::string> payload = wanted_payload(process_variables());
  network.windows_on_device = !reached.available || payload == "staged";
  network.straight_payload =
      payload == "staged" ? capability{false, "DEVCOMM_GIN_PAYLOAD is staged"} : devices.device_from_cards(device);
  network.only_straight = network.windows_on_device && payload == "direct";
  if (network.only_straight && !network.straight_payload.available) {
    return {false, "DEVCOMM_GIN_PAYLOAD is direct, and " + reached.reason + ", nor " + network.straight_payload.reason +
                       "; unset it"};
  }
  std::string way = "payload goes straight: " + reached.reason;
  if (network.windows_on_device) {
    way = "payload goes through pinned host memory: " +
          (reached.available ? network.straight_payload.reason
                             : reached.reason + ", and " + network.straight_payload.reason);
  }
  if (network.windows_on_device && network.straight_payload.available) {
    way =
        "payload goes straight where the provider reaches GPU memory, else through pinned host memory, which "
        "device_communicator::network() says";
  }
  const std::string chosen = named ? *named
                             : is_one_host()
                                 ? default_provider
                                 : std::string("of network cards where all ranks have them, else ") + default_provider;
  return {true, "libfabric's provider " + chosen + ", which is opened with the first contexts; " + way};
}

capability rank_context::multicast_of_team() const {
  if (!properties.multicast.available) return properties.multicast;
  if (lsa.size == 1) return {false, "the LSA team is one rank, and multicast is for several devices"};
  for (const int peer : lsa_ranks) {
    const device_info& theirs = device_infos[static_cast<std::size_t>(peer)];
    if (const std::string why = text_of(theirs.no_multicast); !why.empty()) {
      return {false, "rank " + std::to_string(peer) + ": " + why};
    }
    for (const int before : lsa_ranks) {
      if (before == peer) break;
      if (!share_device(before, peer)) continue;
      return {false, "ranks " + std::to_string(before) + " and " + std::to_string(peer) +
                         " share a GPU, and a multicast object reaches a GPU once"};
    }
  }
  return {true, properties.multicast.reason + "; teams of " + std::to_string(lsa.size) + " devices"};
}

capability rank_context::ipc_of_team() const {
  if (!properties.cuda_ipc.available) return properties.cuda_ipc;
  for (const int peer : lsa_ranks) {
    if (peers[static_cast<std::size_t>(peer)].host != peers[static_cast<std::size_t>(rank())].host) {
      return {false, "rank " + std::to_string(peer) + " is on another host; use communicator::allocate"};
    }
    if (peers[static_cast<std::size_t>(peer)].pid_space == peers[static_cast<std::size_t>(rank())].pid_space) continue;
    return {false, "rank " + std::to_string(peer) +
                       " is in another PID namespace, and its handles name a process of that; let the containers share "
                       "one (docker run --pid=host, shareProcessNamespace of a pod)"};
  }
  return properties.cuda_ipc;
}

capability rank_context::pinned_of_team() const {
  if (!properties.pinned_host.available || handle == handle_kind::none || handle == handle_kind::file_descriptor) {
    return properties.pinned_host;
  }
  return {false, "the processes of the LSA team share memory by " + std::string(traits_of(handle)->name) +
                     " handles, and that of the host by descriptors only; leave DEVCOMM_MEMORY_HANDLE unset, or set "
                     "DEVCOMM_LSA_SIZE to a team of one process"};
}

bool rank_context::share_device(int a, int b) const {
  const auto first = static_cast<std::size_t>(a);
  const auto second = static_cast<std::size_t>(b);
  return peers[first].host == peers[second].host && device_infos[first].uuid == device_infos[second].uuid;
}

capability rank_context::own_device() const {
  std::vector<int> others;
  for (const int peer : ranks_of_host(peers, rank())) {
    if (peer != rank() && share_device(peer, rank())) others.push_back(peer);
  }
  if (others.empty()) return {true, "no other rank uses it"};
  return {false, "it is shared with " + rank_list(others) +
                     ": a kernel that waits for a rank of the same GPU keeps that rank's kernel from running, unless "
                     "both fit on it at once; start one rank a GPU"};
}

std::string rank_context::cause_of_timeouts() const {
  const std::vector<int> neighbors = ranks_of_host(peers, rank());
  const auto uuid = [&](int peer) { return device_infos[static_cast<std::size_t>(peer)].uuid; };
  std::vector<int> sharing;
  std::copy_if(neighbors.begin(), neighbors.end(), std::back_inserter(sharing), [&](int peer) {
    return std::count_if(neighbors.begin(), neighbors.end(), [&](int other) { return uuid(other) == uuid(peer); }) > 1;
  });
  if (sharing.empty()) return {};
  return rank_list(sharing) +
         " share GPUs: a rank's launch may have waited for a kernel on its GPU that waited for that launch. Call "
         "host::prepare(comm, kernel...) and allocate before the first launch, and run no more blocks than fit on the "
         "GPU together; docs/diagnosis.md has all causes";
}

void rank_context::choose_handle() {
  bool one_process = true;
  std::uint32_t offered = ~std::uint32_t{0};
  for (const int peer : lsa_ranks) {
    one_process = one_process && same_process(peer);
    offered &= handles_offered(peer);
  }
  if (one_process) return;
  handle = common_handle(offered, wanted);
  if (handle == handle_kind::none) {
    throw not_supported(
        "the devices of one LSA team share no kind of memory handle; give all processes "
        "devices of one kind, or set DEVCOMM_LSA_SIZE=1");
  }
}

}  // namespace devcomm::host::detail
