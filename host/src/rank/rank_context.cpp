#include "rank/rank_context.hpp"

#include <devcomm/host/error.hpp>

#include "rank/settings.hpp"
#include "util/number_list.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <span>

namespace devcomm::host::detail {
namespace {

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return std::string(text.data(), ::strnlen(text.data(), N));
}

template <std::size_t N>
void fill(std::array<char, N>& to, const std::string& from) {
  std::memcpy(to.data(), from.data(), std::min(from.size(), N - 1));
}

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
    // The others fail in the same step, each with its own error, so this end is none that they need to be told of.
    if (process) process->remove(rank(), first_lost(), text_of_loss());
    throw;
  }
}

void rank_context::start(const std::string& call, const communicator_options& given, const rank_context* parent) {
  require_one_version(agree, call, given.layout_version);
  peers = agree.gather(call, [&] { return describe_rank(given, parent); });
  require_agreement(peers, call, rank());
  local_ranks = ranks_of_process(peers, rank());
  aborts = std::make_shared<abort_state>(rank(), size());
  objects = std::make_shared<live_objects>(rank(), size());
  agree.end_with(aborts);
  process = process_ranks::join(peers[0].identity);

  device_infos = agree.gather(call, [&] {
    choose_device();
    if (parent == nullptr) devices.name_rank(device, rank());
    device_info mine = describe_device();
    if (local_ranks.front() == rank()) {
      process->open_links();
      mine.links = process->links().address();
    }
    return mine;
  });

  std::string obstacle;
  const auto rows = agree.gather_bytes(call, static_cast<std::size_t>(size()), [&](std::span<std::byte> mine) {
    process->add(rank(), aborts);
    if (local_ranks.front() == rank()) {
      const std::vector<link_peer> processes = processes_of_host(peers, device_infos, rank());
      const auto own = std::find_if(processes.begin(), processes.end(),
                                    [&](const link_peer& p) { return p.ranks.front() == rank(); });
      // Half of the limit: the other ranks still wait for this one, and get its error with the ranks that it missed.
      process->links().connect(processes, static_cast<std::size_t>(own - processes.begin()), agree.limit() / 2);
    }
    const std::vector<reach> row = reachable(obstacle);
    std::memcpy(mine.data(), row.data(), row.size());
  });
  std::vector<reach> reaches(rows.size());
  std::memcpy(reaches.data(), rows.data(), rows.size());
  try_to_reach(call, reaches, obstacle);

  agree.together(call, [&] {
    choose_lsa(reaches, obstacle);
    choose_handle();
    properties.ll128 = whole_lines();
    properties.multicast = multicast_of_team();
    devices.make_current(device);
  });
}

rank_context::~rank_context() {
  if (objects) objects->report_left();
  if (!process) return;
  if (watch_.unwinding()) leave({});  // the first farewell counts
  const bool aborted = first_lost() < 0 && aborts->aborted();
  process->remove(rank(), aborted ? rank() : first_lost(),
                  aborted ? name() + " aborted its communicator and left" : text_of_loss());
}

std::string rank_context::name() const { return "rank " + std::to_string(rank()); }

std::string rank_context::text_of_loss() const {
  const int lost = first_lost();
  return lost < 0 ? std::string() : name() + " left because rank " + std::to_string(lost) + " was lost";
}

int rank_context::first_lost() const noexcept {
  const int lost = aborts->lost_rank();
  return lost >= 0 ? lost : agree.lost_rank();
}

void rank_context::leave(const std::string& reason) noexcept {
  const int lost = first_lost();
  aborts->abort();
  try {
    if (lost >= 0) {
      process->remove(rank(), lost, text_of_loss());
    } else {
      process->remove(rank(), rank(), name() + " left because of an exception" + (reason.empty() ? "" : ": " + reason));
    }
  } catch (const std::exception&) {
    process->remove(rank(), rank(), {});  // out of memory
  }
}

rank_info rank_context::describe_rank(const communicator_options& given, const rank_context* parent) {
  properties.backend = devices.name();
  int clique = 0;
  if (parent == nullptr) {
    const environment variables = process_variables();
    communicator_options defaults = given;
    if (devices.traits().checks_launches) defaults.check_launch = true;
    options = apply_environment(defaults, variables);
    wanted = wanted_handle(variables);
  } else {
    // A limit on the parent's teams models hosts of that size, so teams of its children stay within them.
    const bool limited = parent->options.lsa_size != 0;
    clique = limited ? parent->lsa.first : parent->peers[static_cast<std::size_t>(parent->rank())].clique;
    options.device = parent->device;
    options.lsa_size = 0;
    wanted = parent->wanted;
  }
  return make_rank_info(options, wanted, clique, properties.backend);
}

bool rank_context::same_process(int other) const {
  return std::find(local_ranks.begin(), local_ranks.end(), other) != local_ranks.end();
}

void rank_context::choose_device() {
  const int count = devices.device_count();
  device = options.device;
  if (device == -1) {
    const std::vector<int> neighbours = ranks_of_host(peers, rank());
    const auto place = std::find(neighbours.begin(), neighbours.end(), rank()) - neighbours.begin();
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
  mine.device = device;

  properties.device_name = facts.name;
  properties.timing = devices.traits().timing;
  properties.multiprocessors = facts.multiprocessors;
  properties.cuda_ipc = facts.cuda_ipc;
  properties.multicast = facts.multicast;
  if (const std::string forbidden = multicast_forbidden(process_variables()); !forbidden.empty()) {
    properties.multicast = {false, forbidden};
  }
  if (!properties.multicast.available) {
    fill(mine.no_multicast, properties.multicast.reason.empty() ? "no reason given" : properties.multicast.reason);
  }
  properties.network = {false, "this version has no network transport"};
  return mine;
}

std::vector<reach> rank_context::reachable(std::string& obstacle) {
  const rank_info& me = peers[static_cast<std::size_t>(rank())];
  const auto why_not = [&](std::size_t i, bool& seen) -> std::string {
    const std::string who = "rank " + std::to_string(i);
    if (static_cast<int>(i) == rank()) return {};
    if (peers[i].host != me.host) return who + " is on another host";
    if (peers[i].clique != me.clique) return who + " is in another LSA team of the parent communicator";
    if (!same_process(static_cast<int>(i)) && handle_with(static_cast<int>(i)) == handle_kind::none) {
      std::string reasons;
      for (const handle_traits& each : handle_kinds) {
        reasons += reasons.empty() ? ": " : "; ";
        reasons += std::string(each.name) + " handles: " + (properties.*each.reported).reason;
      }
      return "memory cannot be handed to " + who + reasons;
    }
    seen = devices.sees(text_of(device_infos[i].uuid));
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

handle_kind rank_context::handle_with(int peer) const {
  const auto offered = [&](int one) { return device_infos[static_cast<std::size_t>(one)].handles; };
  return common_handle(offered(rank()) & offered(peer), wanted);
}

void rank_context::try_to_reach(const std::string& call, std::vector<reach>& reaches, std::string& obstacle) {
  if (std::find(reaches.begin(), reaches.end(), reach::untried) == reaches.end()) return;
  const auto entry = [&](int from, int to) -> reach& {
    return reaches[static_cast<std::size_t>(from) * peers.size() + static_cast<std::size_t>(to)];
  };
  const deadline until(agree.limit());
  std::size_t bytes = 0;
  for (const device_info& card : device_infos) bytes = std::max(bytes, static_cast<std::size_t>(card.granularity));

  // One granule of each kind of handle that a peer will open. Its fabric handle travels with the agreement.
  std::map<handle_kind, std::unique_ptr<physical_memory>> granules;
  struct offer {
    std::uint32_t count = 0;
    std::array<std::byte, most_handle_bytes> bytes{};
  };
  const std::vector<offer> offers = agree.gather(call, [&] {
    offer mine;
    for (int peer = 0; peer < size(); ++peer) {
      if (entry(peer, rank()) != reach::untried) continue;
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

  const auto rows = agree.gather_bytes(call, peers.size(), [&](std::span<std::byte> mine) {
    for (int peer = 0; peer < size(); ++peer) {
      if (entry(rank(), peer) != reach::untried) continue;
      const handle_kind common = handle_with(peer);
      unique_fd descriptor;
      if (common == handle_kind::file_descriptor) {
        descriptor = process->links().take_memory(static_cast<std::uint64_t>(rank()), peer, until, window_piece::trial);
      }
      try {
        const offer& theirs = offers[static_cast<std::size_t>(peer)];
        const auto bytes_of_handle =
            std::span(theirs.bytes).first(std::min<std::size_t>(theirs.count, theirs.bytes.size()));
        const auto memory = descriptor ? devices.import_descriptor(device, descriptor.get(), bytes)
                                       : devices.import_bytes(device, common, bytes_of_handle, bytes);
        const auto range = devices.reserve(bytes);
        range->map(0, *memory, std::span(&device, 1));
        entry(rank(), peer) = reach::load_store;
      } catch (const error& e) {
        entry(rank(), peer) = reach::none;
        if (obstacle.empty()) {
          obstacle = "the device of rank " + std::to_string(peer) +
                     ", which this process does not see, was tried: " + std::string(e.what());
        }
      }
    }
    std::memcpy(mine.data(), &entry(rank(), 0), peers.size());
  });
  std::memcpy(reaches.data(), rows.data(), rows.size());
}

void rank_context::choose_lsa(const std::vector<reach>& reaches, const std::string& obstacle) {
  const int team_size = choose_lsa_size(reaches, size(), options.lsa_size);
  lsa = inner_factor(world_team(rank(), size()), team_size);
  for (const device_info& card : device_infos) {
    granularity = std::max(granularity, static_cast<std::size_t>(card.granularity));
  }
  if (team_size > 1) {
    properties.lsa = {true, "teams of " + std::to_string(team_size) + " of " + std::to_string(size()) + " ranks" +
                                (obstacle.empty() ? "" : "; " + obstacle)};
  } else if (size() == 1) {
    properties.lsa = {false, "there is only one rank"};
  } else if (options.lsa_size == 1) {
    properties.lsa = {false, "lsa_size or DEVCOMM_LSA_SIZE is 1"};
  } else {
    properties.lsa = {false, obstacle.empty() ? "no number of ranks above 1 divides " + std::to_string(size()) +
                                                    " such that every team can reach all of its members"
                                              : obstacle};
  }
}

capability rank_context::whole_lines() const {
  if (const std::string forbidden = ll128_forbidden(process_variables()); !forbidden.empty()) return {false, forbidden};
  capability answer{true, "one GPU's own memory"};
  for (int member = 0; member < lsa.size; ++member) {
    const int peer = lsa.world_rank(member);
    if (peer == rank()) continue;
    answer = devices.whole_lines(device, text_of(device_infos[static_cast<std::size_t>(peer)].uuid));
    if (!answer.available) return {false, "to the device of rank " + std::to_string(peer) + ": " + answer.reason};
  }
  return answer;
}

capability rank_context::multicast_of_team() const {
  if (!properties.multicast.available) return properties.multicast;
  if (lsa.size == 1) return {false, "the LSA team is one rank, and multicast is for several devices"};
  for (int member = 0; member < lsa.size; ++member) {
    const int peer = lsa.world_rank(member);
    const device_info& theirs = device_infos[static_cast<std::size_t>(peer)];
    if (const std::string why = text_of(theirs.no_multicast); !why.empty()) {
      return {false, "rank " + std::to_string(peer) + ": " + why};
    }
    for (int other = 0; other < member; ++other) {
      const int before = lsa.world_rank(other);
      if (device_infos[static_cast<std::size_t>(before)].uuid != theirs.uuid) continue;
      return {false, "ranks " + std::to_string(before) + " and " + std::to_string(peer) +
                         " share a GPU, and a multicast object reaches a GPU once"};
    }
  }
  return {true, properties.multicast.reason + "; teams of " + std::to_string(lsa.size) + " devices"};
}

void rank_context::choose_handle() {
  bool one_process = true;
  std::uint32_t offered = ~std::uint32_t{0};
  for (int member = 0; member < lsa.size; ++member) {
    const int peer = lsa.world_rank(member);
    one_process = one_process && same_process(peer);
    offered &= device_infos[static_cast<std::size_t>(peer)].handles;
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
