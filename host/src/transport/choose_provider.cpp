#include "transport/choose_provider.hpp"

#include <devcomm/host/error.hpp>

#include "rank/settings.hpp"
#include "util/call_text.hpp"
#include "util/environment.hpp"
#include "util/fixed_text.hpp"
#include "util/interfaces.hpp"
#include "util/outside_address.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace devcomm::host::detail {
namespace {

/// What each rank publishes to the others.
struct preference {
  std::array<char, 64> named{};                    ///< empty: none
  std::array<std::array<char, 32>, 4> of_cards{};  ///< that it can use, the best first; where none is named
  std::array<char, 256> obstacle{};                ///< why there are none

  [[nodiscard]] bool has(std::string_view provider) const {
    return std::any_of(of_cards.begin(), of_cards.end(), [&](const auto& each) { return text_of(each) == provider; });
  }
};

/// How many ranks below this one are on its host.
unsigned rank_on_host(const rank_context& context) {
  const auto rank = static_cast<std::size_t>(context.rank());
  const auto is_here = [&](const auto& peer) { return peer.host == context.peers[rank].host; };
  return static_cast<unsigned>(std::count_if(context.peers.begin(), context.peers.begin() + context.rank(), is_here));
}

/// Where peers reach this rank: an address of this host, or empty for providers that have none.
std::string local_node(const rank_context& context) {
  constexpr std::array by_address{"tcp", "net", "sockets", "udp"};
  const std::string core = context.network.provider.substr(0, context.network.provider.find(';'));
  if (std::find(by_address.begin(), by_address.end(), core) == by_address.end()) return {};
  const environment variables = process_variables();
  const bool names_address = variables("DEVCOMM_ADDRESS") || variables("DEVCOMM_INTERFACE");
  if (!wanted_card(variables).empty() && (context.is_one_host() || !names_address)) return {};  // the card's
  if (context.is_one_host()) return "127.0.0.1";
  return outside_address(variables, context.agree.local_address(), interface_addresses());
}

preference own_preference(const rank_context& context) {
  preference own;
  const std::string named = wanted_provider(process_variables()).value_or("");
  if (named.size() >= own.named.size()) {
    throw not_supported("libfabric has no provider \"" + named + "\"; unset DEVCOMM_GIN_PROVIDER");
  }
  fill(own.named, named);
  if (!named.empty() || context.is_one_host()) return own;
  std::string obstacle;
  std::vector<std::string> usable = usable_card_providers(wish_of(context), obstacle);
  std::erase_if(usable, [&](const std::string& each) { return each.size() >= own.of_cards[0].size(); });
  for (std::size_t i = 0; i < std::min(usable.size(), own.of_cards.size()); ++i) fill(own.of_cards[i], usable[i]);
  fill(own.obstacle, obstacle);
  return own;
}

/// `named` of a rank, as an error says it.
std::string name_of(const preference& given) { return given.named[0] == '\0' ? "(unset)" : text_of(given.named); }

}  // namespace

endpoint_wish wish_of(const rank_context& context) {
  endpoint_wish wish;
  wish.provider = context.network.provider;
  wish.address = local_node(context);
  wish.card = wanted_card(process_variables());
  wish.peers = static_cast<std::size_t>(context.size());
  wish.pci = context.device_infos[static_cast<std::size_t>(context.rank())].pci;
  wish.turn = rank_on_host(context);
  return wish;
}

void choose_provider(rank_context& context, const std::string& call) {
  if (!context.network.provider.empty()) return;
  const std::vector<preference> all = context.agree.gather(call, [&] { return own_preference(context); });
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].named == all[0].named) continue;
    throw invalid_argument(call_text(call, context.rank(), context.size()) + ": rank " + std::to_string(rank) +
                           " has libfabric's provider " + name_of(all[rank]) + " and rank 0 has " + name_of(all[0]) +
                           "; set DEVCOMM_GIN_PROVIDER alike on all ranks");
  }
  if (all[0].named[0] != '\0') {
    context.network.provider = text_of(all[0].named);
    return;
  }
  std::size_t without = all.size();  // the first rank that lacks what rank 0 would take
  for (const auto& each : all[0].of_cards) {
    if (each[0] == '\0') break;
    const auto lacks = std::find_if(all.begin(), all.end(), [&](const preference& p) { return !p.has(text_of(each)); });
    if (lacks == all.end()) {
      context.network.provider = text_of(each);
      context.network.why_this_provider = "all ranks have network cards of it";
      return;
    }
    without = std::min(without, static_cast<std::size_t>(lacks - all.begin()));
  }
  context.network.provider = default_provider;
  if (context.is_one_host()) return;
  if (without == all.size()) without = 0;
  const std::string obstacle = text_of(all[without].obstacle);
  context.network.why_this_provider =
      "no network cards serve all ranks: rank " + std::to_string(without) + " has " +
      (all[without].of_cards[0][0] == '\0' ? "none: " + obstacle : "those of other providers");
}

}  // namespace devcomm::host::detail
