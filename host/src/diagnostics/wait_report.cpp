#include "diagnostics/wait_report.hpp"

#include "util/number_list.hpp"

#include "diagnostics/waits_for_graph.hpp"
#include "util/wait_text.hpp"

#include <algorithm>
#include <compare>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

namespace devcomm::host::detail {
namespace {

constexpr std::size_t max_lines = 64;

using number_set = std::set<std::uint64_t>;

/// A rank, or one of the groups of a rank that wait for each other, known by its channel.
struct party {
  int rank;                          ///< -1: any
  operation what = operation::none;  ///< of a group
  std::uint32_t groups = 0;          ///< as `wait_record::groups`
  std::uint32_t index = 0;

  [[nodiscard]] bool is_group() const { return groups != 0; }
  [[nodiscard]] bool is_any() const { return rank < 0; }
  auto operator<=>(const party&) const = default;
};

/// What one rank waits for from one peer, at all of its blocks.
struct wait_kind {
  int rank;
  party peer;
  operation what;
  std::uint32_t window;  ///< as `wait_record::window`
  wait_condition condition;
  std::uint64_t expected;
  std::uint64_t seen;

  auto operator<=>(const wait_kind&) const = default;
};

struct wait_places_of_kind {
  number_set indices, blocks, threads;
  std::chrono::nanoseconds longest{0};
};

using wait_kinds = std::map<wait_kind, wait_places_of_kind>;

/// Waits that one sentence describes: all of `ranks` wait for all of `peers`, which are ranks or, where `groups` is
/// not 0, channels of the same rank.
struct wait_group {
  number_set ranks, peers;
  std::uint32_t groups;  ///< as `wait_record::groups`
  operation what;
  std::uint32_t window;  ///< as `wait_record::window`
  wait_condition condition;
  std::uint64_t expected;
  std::uint64_t seen;
  wait_places_of_kind places;
};

std::string seconds(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

party peer_of(const wait_record& record, int rank) {
  return record.groups != 0 ? party{rank, record.what, record.groups, record.peer_index} : party{record.peer};
}

wait_kinds collect(const observed_comm& comm) {
  wait_kinds kinds;
  for (const observed_rank& one : comm.ranks) {
    for (const observed_wait& wait : one.waits) {
      const wait_record& record = wait.record;
      wait_places_of_kind& places = kinds[{one.rank, peer_of(record, one.rank), record.what, record.window,
                                           record.condition, record.expected, record.seen}];
      places.indices.insert(record.index);
      places.blocks.insert(record.block);
      places.threads.insert(record.thread);
      places.longest = std::max(places.longest, wait.age);
    }
  }
  return kinds;
}

/// Merges `group` into the first of `groups` for which `alike` holds, or appends it.
template <class Alike>
void merge(std::vector<wait_group>& groups, const wait_group& group, Alike alike) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const wait_group& other) {
    return other.what == group.what && other.window == group.window && other.condition == group.condition &&
           other.groups == group.groups && other.expected == group.expected && other.seen == group.seen &&
           other.places.indices == group.places.indices && other.places.blocks == group.places.blocks && alike(other);
  });
  if (found == groups.end()) return groups.push_back(group);
  found->ranks.insert(group.ranks.begin(), group.ranks.end());
  found->peers.insert(group.peers.begin(), group.peers.end());
  found->places.threads.insert(group.places.threads.begin(), group.places.threads.end());
  found->places.longest = std::max(found->places.longest, group.places.longest);
}

/// First the peers of a rank together, then the ranks that wait for the same peers.
std::vector<wait_group> group(const wait_kinds& kinds) {
  std::vector<wait_group> by_rank;
  for (const auto& [kind, places] : kinds) {
    const auto rank = static_cast<std::uint64_t>(kind.rank);
    const auto peer =
        kind.peer.is_group() ? std::uint64_t{kind.peer.index} : static_cast<std::uint64_t>(kind.peer.rank);
    merge(by_rank,
          {{rank}, {peer}, kind.peer.groups, kind.what, kind.window, kind.condition, kind.expected, kind.seen, places},
          [&](const wait_group& other) { return other.ranks.contains(rank); });
  }
  std::vector<wait_group> groups;
  for (const wait_group& one : by_rank) {
    merge(groups, one, [&](const wait_group& other) { return other.peers == one.peers; });
  }
  return groups;
}

constexpr auto any = static_cast<std::uint64_t>(-1);  ///< among numbers of ranks

/// "ranks 1 and 2", or "any rank".
std::string rank_text(const number_set& ranks) {
  return ranks.contains(any) ? peer_text(-1) : number_list("rank", ranks);
}

/// Which ranks of a device communicator, and which groups of a rank, wait for which.
class wait_graph {
 public:
  wait_graph(const observed_comm& comm, const wait_kinds& kinds) : kinds_(kinds) {
    for (const observed_rank& one : comm.ranks) here_.insert(one.rank);
    for (const auto& [kind, places] : kinds) {
      peers_[{kind.rank}].insert(kind.peer);
      if (!kind.peer.is_group()) continue;
      handles_.insert(kind.peer.groups);
      for (const std::uint64_t index : places.indices) peers_[group_of(kind.peer, kind.rank, index)].insert(kind.peer);
    }
    number_parties();
  }

  /// " of the handle at 512 bytes" where groups of several handles, whose channels may have the same numbers, wait.
  [[nodiscard]] std::string of_handle(std::uint32_t groups) const {
    if (handles_.size() < 2 || groups == 0) return "";
    return " of the handle at " + std::to_string((groups - std::uint64_t{1}) * 128) + " bytes";
  }

  /// "; rank 3 itself waits at LSA barrier 2 for rank 0": what each of `ranks` does, equal waits merged.
  [[nodiscard]] std::string own_waits(const number_set& ranks) const {
    std::map<std::string, number_set> doing;
    for (const std::uint64_t rank : ranks) {
      if (rank != any) doing[own_wait(static_cast<int>(rank))].insert(rank);
    }
    std::string text;
    for (const auto& [what, those] : doing) {
      const bool several = those.size() > 1;
      text += "; " + number_list("rank", those);
      if (what == nobody || what == elsewhere) {
        text += what == nobody ? (several ? " wait" : " waits") : (several ? " are" : " is");
      } else {
        text += several ? " themselves wait" : " itself waits";
      }
      text += what;
    }
    return text;
  }

  /// The same of groups of each of `ranks`: "; LL mailbox 1, of block 1, itself waits for LL mailbox 3". Ranks are
  /// named where their groups do not do the same.
  [[nodiscard]] std::string own_waits(const wait_group& group) const {
    std::map<std::pair<std::string, number_set>, number_set> doing;  // by what is done, by which ranks' groups
    for (const std::uint64_t index : group.peers) {
      std::map<std::string, number_set> by_rank;
      for (const std::uint64_t rank : group.ranks)
        by_rank[own_wait(group_of({0, group.what, group.groups}, static_cast<int>(rank), index))].insert(rank);
      for (const auto& [wait, ranks] : by_rank) doing[{wait, ranks}].insert(index);
    }
    std::string text;
    for (const auto& [what, those] : doing) {
      const auto& [wait, ranks] = what;
      std::string channels = number_list(to_string(group.what), those) + of_handle(group.groups);
      if (ranks != group.ranks) channels += " of " + number_list("rank", ranks);
      text += wait == nobody ? "; nobody waits at " + channels : "; " + channels + wait;
    }
    return text;
  }

  /// Ranks that wait for nobody and for which others wait in the end.
  [[nodiscard]] std::string culprits() const {
    std::string text;
    std::map<party, number_set> victims;
    for (const auto& [one, peers] : peers_) {
      if (one.is_group()) continue;
      for (const party& end : ends_of(one)) victims[end].insert(static_cast<std::uint64_t>(one.rank));
    }
    for (const auto& [culprit, ranks] : victims) {
      if (culprit.is_any()) continue;  // who could have helped is not known
      text += "\n  " + number_list("rank", ranks) + (ranks.size() > 1 ? " wait" : " waits") + " in the end for " +
              name(culprit);
      if (culprit.is_group()) {
        text += ", where nobody waits: its group has not started, is over, waits elsewhere, or is busy";
      } else {
        text += here_.contains(culprit.rank)
                    ? ", which waits for nobody: its kernel has not started, is over, or is busy with something else"
                    : ", which is in another process: ask that one";
      }
    }
    return text;
  }

  /// Those that wait for themselves, and those that wait for each other, each such set once, by a shortest way round.
  [[nodiscard]] std::string cycles() const {
    std::string text;
    std::vector<bool> reported(graph_.size());
    for (std::size_t one = 0; one < graph_.size(); ++one) {
      if (graph_.waits_for_itself(one)) text += "\n  " + name(parties_[one]) + " waits for itself";
      if (reported[one]) continue;
      const std::vector<std::size_t> cycle = graph_.cycle_through(one);
      if (cycle.empty()) continue;
      text += "\n  these wait for each other: ";
      for (const std::size_t step : cycle) text += name(parties_[step]) + " -> ";
      text += name(parties_[one]);
      for (const std::size_t step : graph_.reachable(one)) {
        const std::vector<std::size_t> back = graph_.reachable(step);
        if (std::binary_search(back.begin(), back.end(), one)) reported[step] = true;
      }
    }
    return text;
  }

 private:
  static constexpr const char* nobody = " for nobody";
  static constexpr const char* elsewhere = " in another process";

  /// The group at channel `index` of those that `like` is one of, on `rank`.
  [[nodiscard]] static party group_of(const party& like, int rank, std::uint64_t index) {
    return {rank, like.what, like.groups, static_cast<std::uint32_t>(index)};
  }

  [[nodiscard]] std::string name(const party& one) const {
    std::string rank = peer_text(one.rank);
    if (!one.is_group()) return rank;
    return std::string(to_string(one.what)) + " " + std::to_string(one.index) + of_handle(one.groups) + " of " + rank;
  }

  /// What follows "rank N itself waits", or one of the two texts above. A wait for ranks is preferred to one among
  /// groups, as it leads on to others.
  [[nodiscard]] std::string own_wait(int rank) const {
    if (!here_.contains(rank)) return elsewhere;
    const auto find = [&](bool group) {
      return std::find_if(kinds_.begin(), kinds_.end(),
                          [&](const auto& k) { return k.first.rank == rank && k.first.peer.is_group() == group; });
    };
    if (const auto first = find(false); first != kinds_.end()) {
      number_set ranks;  // that it waits for there
      for (const auto& [kind, places] : kinds_) {
        if (kind.rank == rank && !kind.peer.is_group() && kind.what == first->first.what &&
            kind.window == first->first.window && places.indices == first->second.indices)
          ranks.insert(static_cast<std::uint64_t>(kind.peer.rank));
      }
      return " at " + place_text(first->first.what, first->first.window, first->second.indices) + " for " +
             rank_text(ranks);
    }
    const auto first = find(true);
    if (first == kinds_.end()) return nobody;
    return " at " + number_list(to_string(first->first.what), first->second.indices) + " for " +
           name(first->first.peer);
  }

  /// What follows "LL mailbox 3", or `nobody`.
  [[nodiscard]] std::string own_wait(const party& group) const {
    const auto peers = peers_.find(group);
    if (peers == peers_.end()) return nobody;
    number_set blocks;
    for (const auto& [kind, places] : kinds_) {
      if (kind.rank != group.rank || kind.peer.groups != group.groups || kind.what != group.what) continue;
      if (places.indices == number_set{group.index}) blocks.insert(places.blocks.begin(), places.blocks.end());
    }
    number_set indices;
    for (const party& peer : peers->second) indices.insert(peer.index);
    return (blocks.empty() ? "" : ", of " + number_list("block", blocks) + ",") + " itself waits for " +
           number_list(to_string(group.what), indices);
  }

  /// Numbers the parties in their order, so that a search goes the same way in every report.
  void number_parties() {
    std::set<party> all;
    for (const auto& [one, peers] : peers_) {
      all.insert(one);
      all.insert(peers.begin(), peers.end());
    }
    parties_.assign(all.begin(), all.end());
    graph_ = waits_for_graph(parties_.size());
    for (const auto& [one, peers] : peers_) {
      for (const party& peer : peers) graph_.add_edge(index_of(one), index_of(peer));
    }
  }

  [[nodiscard]] std::size_t index_of(const party& one) const {
    return static_cast<std::size_t>(std::lower_bound(parties_.begin(), parties_.end(), one) - parties_.begin());
  }

  /// The parties that `one`, in the end, waits for, and that wait for nobody.
  [[nodiscard]] std::set<party> ends_of(const party& one) const {
    std::set<party> ends;
    for (const std::size_t other : graph_.reachable(index_of(one))) {
      if (graph_.waits_for(other).empty()) ends.insert(parties_[other]);
    }
    return ends;
  }

  const wait_kinds& kinds_;
  std::set<int> here_;
  std::set<std::uint32_t> handles_;  // of groups that wait
  std::map<party, std::set<party>> peers_;
  std::vector<party> parties_;  // ascending; an index is a node of `graph_`
  waits_for_graph graph_;
};

std::string sentence(const wait_group& group, const wait_graph& graph) {
  const wait_places_of_kind& at = group.places;
  const bool one = group.ranks.size() == 1 && at.blocks.size() == 1 && at.threads.size() == 1;
  return "\n  " + number_list("rank", group.ranks) + ", " + number_list("block", at.blocks) + ", " +
         number_list("thread", at.threads) + (one ? " waits at " : " wait at ") +
         place_text(group.what, group.window, at.indices) + " for " +
         (group.groups != 0
              ? number_list(to_string(group.what), group.peers) + graph.of_handle(group.groups) + " of the same rank"
              : rank_text(group.peers)) +
         " " + goal_text(group.condition, group.expected) + " and last saw " + std::to_string(group.seen) + ", for " +
         seconds(at.longest) + (group.groups != 0 ? graph.own_waits(group) : graph.own_waits(group.peers));
}

}  // namespace

std::string report_waits(const std::vector<observed_comm>& comms) {
  std::string text;
  for (const observed_comm& comm : comms) {
    const wait_kinds kinds = collect(comm);
    if (kinds.empty()) continue;
    if (comms.size() > 1) text += "\n" + comm.name + ":";
    const wait_graph graph(comm, kinds);
    std::size_t lines = 0;
    for (const wait_group& one : group(kinds)) {
      if (lines++ < max_lines) text += sentence(one, graph);
    }
    if (lines > max_lines) text += "\n  and " + std::to_string(lines - max_lines) + " more of such lines";
    for (const observed_rank& one : comm.ranks) {
      if (one.full)
        text += "\n  rank " + std::to_string(one.rank) + " has more waits than the " +
                std::to_string(wait_table::capacity) + " that its table holds";
    }
    text += graph.culprits() + graph.cycles();
  }
  return text.empty() ? text : text.substr(1);
}

}  // namespace devcomm::host::detail
