#include "communicator/split.hpp"

#include <devcomm/host/error.hpp>

#include "util/environment.hpp"
#include "util/interfaces.hpp"
#include "util/outside_address.hpp"
#include "util/random.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

struct child_address {
  /// `unique_id` of the child whose rank 0 this is; empty within one process. In place of the secret it has the label
  /// from which ranks derive that, where they share one.
  std::array<char, 256> id{};
};

/// Ranks of the parent that give the same `color`, in the child's order: by `key`, then by rank.
std::vector<int> members_of_child(const rank_context& parent, const std::string& call, int color, int key) {
  const auto keys = parent.agree.gather_group(call, name_of_group("color " + std::to_string(color)),
                                              [&] { return static_cast<std::int32_t>(key); });
  std::vector<std::pair<std::int32_t, int>> order;
  for (std::size_t i = 0; i < keys.ranks.size(); ++i) order.emplace_back(keys.parts[i], keys.ranks[i]);
  std::sort(order.begin(), order.end());
  std::vector<int> members;
  members.reserve(order.size());
  for (const auto& [its_key, rank] : order) members.push_back(rank);
  return members;
}

}  // namespace

child_bootstrap plan_child(rank_context& parent, const std::string& call, int color, int key) {
  const std::uint64_t number = ++parent.children;
  const std::vector<int> members = members_of_child(parent, call, color, key);
  const int size = static_cast<int>(members.size());
  const int root = members.front();
  const int rank = static_cast<int>(std::find(members.begin(), members.end(), parent.rank()) - members.begin());
  const child_key child{number, root};
  const auto all = [&](auto holds) { return std::all_of(members.begin(), members.end(), holds); };
  const bool one_process = all([&](int member) { return parent.same_process(member); });

  const auto address = parent.agree.gather_group(call, name_of_group("child of rank " + std::to_string(root)), [&] {
    child_address mine;
    if (color < 0 || rank != 0) return mine;
    if (one_process) {
      auto bootstraps = thread_bootstraps(size);
      for (int i = 0; i < size; ++i) {
        parent.process->store_bootstrap(child, i, std::move(bootstraps[static_cast<std::size_t>(i)]));
      }
      return mine;
    }
    const rank_info& me = parent.peers[static_cast<std::size_t>(parent.rank())];
    const bool one_host =
        all([&](int member) { return parent.peers[static_cast<std::size_t>(member)].host == me.host; });
    const auto outside = [&] {
      return outside_address(process_variables(), parent.agree.local_address(), interface_addresses());
    };
    const auto label = random_value<bootstrap::secret>();
    const unique_id made =
        unique_id::create(one_host ? "127.0.0.1" : outside(), parent.agree.derive_secret(label).value_or(label));
    const std::string id = unique_id(made.host(), made.port(), label).to_string();
    if (id.size() >= mine.id.size()) {
      throw invalid_argument("DEVCOMM_ADDRESS is longer than " + std::to_string(mine.id.size() / 2) +
                             " characters; give a host name or address");
    }
    std::copy(id.begin(), id.end(), mine.id.begin());
    return mine;
  });
  if (color < 0) return {};

  if (one_process) {
    return [process = parent.process, child, rank] { return process->take_bootstrap(child, rank); };
  }
  const auto at_root = std::find(address.ranks.begin(), address.ranks.end(), root) - address.ranks.begin();
  std::array<char, 256> text = address.parts[static_cast<std::size_t>(at_root)].id;
  text.back() = '\0';
  const unique_id sent = unique_id::parse(text.data());
  const auto secret = parent.agree.derive_secret(sent.secret()).value_or(sent.secret());
  return [id = unique_id(sent.host(), sent.port(), secret), rank, size, limit = parent.agree.limit()] {
    return tcp_bootstrap(id, rank, size, limit);
  };
}

}  // namespace devcomm::host::detail
