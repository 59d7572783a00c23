#include "rank/rank_context.hpp"

#include <devcomm/host/error.hpp>

#include "rank/settings.hpp"
#include "util/number_list.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace devcomm::host::detail {
namespace {

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return std::string(text.data(), ::strnlen(text.data(), N));
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
      agree(std::move(ranks), given.limit) {
  peers = agree.gather(call, [&] { return describe_rank(given, parent); });
  require_agreement(peers, call, rank());
  local_ranks = ranks_of_process(peers, rank());
  aborts = std::make_shared<abort_state>(rank(), size());
  objects = std::make_shared<live_objects>(rank(), size());
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

  agree.together(call, [&] {
    choose_lsa(reaches, obstacle);
    choose_handle();
    properties.ll128 = whole_lines();
    devices.make_current(device);
  });
}

rank_context::~rank_context() {
  if (objects) objects->report_left();
  if (!process) return;
  const int lost = aborts->lost_rank() >= 0 ? aborts->lost_rank() : agree.lost_rank();
  process->remove(rank(), lost >= 0 ? lost : aborts->aborted() ? rank() : -1);
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
  std::memcpy(mine.uuid.data(), facts.uuid.data(), std::min(facts.uuid.size(), mine.uuid.size() - 1));
  mine.granularity = devices.granularity(device);
  mine.file_descriptors = facts.file_descriptor_handles.available ? 1 : 0;
  mine.fabric = facts.fabric_handles.available ? 1 : 0;
  mine.device = device;

  properties.device_name = facts.name;
  properties.timing = devices.traits().timing;
  properties.multiprocessors = facts.multiprocessors;
  properties.file_descriptor_handles = facts.file_descriptor_handles;
  properties.fabric_handles = facts.fabric_handles;
  properties.cuda_ipc = facts.cuda_ipc;
  properties.multicast = facts.multicast;
  if (const std::string forbidden = multicast_forbidden(process_variables()); !forbidden.empty()) {
    properties.multicast = {false, forbidden};
  }
  properties.network = {false, "this version has no network transport"};
  return mine;
}

std::vector<reach> rank_context::reachable(std::string& obstacle) {
  const rank_info& me = peers[static_cast<std::size_t>(rank())];
  const device_info& mine = device_infos[static_cast<std::size_t>(rank())];
  const auto why_not = [&](std::size_t i) -> std::string {
    const std::string who = "rank " + std::to_string(i);
    if (static_cast<int>(i) == rank()) return {};
    if (peers[i].host != me.host) return who + " is on another host";
    if (peers[i].clique != me.clique) return who + " is in another LSA team of the parent communicator";
    if (!same_process(static_cast<int>(i)) && common_handle(mine, device_infos[i], wanted) == handle_kind::none) {
      return "memory cannot be handed to " + who + ": file descriptors: " + properties.file_descriptor_handles.reason +
             "; fabric handles: " + properties.fabric_handles.reason;
    }
    const capability access = devices.peer_access(device, text_of(device_infos[i].uuid));
    return access.available ? std::string() : "the device of " + who + " cannot be reached: " + access.reason;
  };
  std::vector<reach> row(peers.size(), reach::load_store);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const std::string why = why_not(i);
    if (why.empty()) continue;
    row[i] = reach::none;
    if (obstacle.empty()) obstacle = why;
  }
  return row;
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

void rank_context::choose_handle() {
  const auto every = [&](auto holds) {
    for (int member = 0; member < lsa.size; ++member) {
      if (!holds(lsa.world_rank(member))) return false;
    }
    return true;
  };
  const auto card = [&](int peer) -> const device_info& { return device_infos[static_cast<std::size_t>(peer)]; };
  if (every([&](int peer) { return same_process(peer); })) {
    handle = handle_kind::none;
  } else if (wanted != handle_kind::fabric && every([&](int peer) { return card(peer).file_descriptors != 0; })) {
    handle = handle_kind::file_descriptor;
  } else if (wanted != handle_kind::file_descriptor && every([&](int peer) { return card(peer).fabric != 0; })) {
    handle = handle_kind::fabric;
  } else {
    throw not_supported(
        "the devices of one LSA team share no kind of memory handle; give all processes "
        "devices of one kind, or set DEVCOMM_LSA_SIZE=1");
  }
}

}  // namespace devcomm::host::detail
