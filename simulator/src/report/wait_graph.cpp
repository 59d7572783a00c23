#include "report/wait_graph.hpp"

#include <util/number_list.hpp>
#include <util/wait_text.hpp>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

/// "LSA barrier 3", "__syncthreads".
std::string describe_location(const snapshot& all, const thread_snapshot& t) {
  switch (t.reason) {
    case wait_reason::grid_barrier: return "grid.sync()";
    case wait_reason::block_barrier:
      if (t.barrier == 0 && all.blocks[t.block].barriers[0].threads == 0) return "__syncthreads";
      return "named barrier " + std::to_string(t.barrier);
    case wait_reason::warp_operation: return t.operation;
    case wait_reason::active_lanes: return "a question for the active lanes";
    case wait_reason::sleep: return "sleep";
    case wait_reason::session:
      return host::detail::place_text(t.session.what, t.session.window, std::array{t.session.index});
    case wait_reason::memory: return "a poll of memory";
    case wait_reason::unseen_memory: return "a poll of plain or volatile memory";
    case wait_reason::none:
    case wait_reason::exited: break;
  }
  return "nothing";
}

/// Whether `t` waits for a group of its rank, known by its channel.
bool awaits_group(const thread_snapshot& t) { return t.session.groups != 0; }

/// Whether `t` waits for the group that `other` waits for, and so is not that group.
bool awaits_same_group(const thread_snapshot& t, const thread_snapshot& other) {
  return t.reason == wait_reason::session && t.session.what == other.session.what &&
         t.session.peer == other.session.peer && t.session.groups == other.session.groups &&
         t.session.peer_index == other.session.peer_index;
}

/// The threads that hold the barrier or channel that `t` waits for.
std::vector<size_t> awaited_threads(const snapshot& all, const thread_snapshot& t) {
  std::vector<size_t> found;
  for (const size_t session : t.session.awaited) {
    found.insert(found.end(), all.sessions[session].begin(), all.sessions[session].end());
  }
  return found;
}

std::string describe_awaited_channel(const thread_snapshot& t) {
  return std::string(devcomm::to_string(t.session.what)) + " " + std::to_string(t.session.peer_index);
}

/// "rank 1", "block 0 at LL channel 0" of the same rank, or "the proxy".
std::string describe_peer(const snapshot& all, const thread_snapshot& t) {
  if (t.session.condition == wait_condition::read_by_proxy || t.session.condition == wait_condition::done_by_proxy)
    return "the proxy";
  if (!awaits_group(t)) return host::detail::peer_text(t.session.peer);
  for (const size_t session : t.session.awaited) {
    if (all.sessions[session].empty()) continue;
    const thread_snapshot& first = all.threads[all.sessions[session].front()];
    return "block " + std::to_string(all.blocks[first.block].rank) + " at " + describe_awaited_channel(t);
  }
  return "a group at " + describe_awaited_channel(t) + ", where none is,";
}

std::string describe_wait(const snapshot& all, const thread_snapshot& t) {
  const block_snapshot& b = all.blocks[t.block];
  switch (t.reason) {
    case wait_reason::grid_barrier: {
      const launch_snapshot& launch = all.launches[b.launch];
      return "in grid.sync(), " + std::to_string(launch.arrived) + " of " + std::to_string(launch.live) +
             " threads arrived";
    }
    case wait_reason::block_barrier: {
      const block_snapshot::barrier_state& barrier = b.barriers[t.barrier];
      const uint32_t threads = barrier.threads == 0 ? b.live : barrier.threads;
      const bool named = t.barrier != 0 || barrier.threads != 0;
      return (named ? "at " : "in ") + describe_location(all, t) + ", " + std::to_string(barrier.arrived) + " of " +
             std::to_string(threads) + " arrived";
    }
    case wait_reason::warp_operation: return "in a " + describe_location(all, t) + " of the lanes " + hex(t.mask);
    case wait_reason::active_lanes: return "asks for the active lanes";
    case wait_reason::sleep: return "sleeps";
    case wait_reason::session: {
      std::string text = describe_location(all, t) + ": waits for " + describe_peer(all, t) + " " +
                         host::detail::goal_text(t.session.condition, t.session.expected);
      if (!t.words.empty()) text += ", saw " + std::to_string(t.words.front().value);
      return text;
    }
    case wait_reason::memory: {
      std::string text = "polls";
      for (const polled_word& word : t.words) {
        text += (&word == t.words.data() ? " " : ", ") + word.address;
        if (!word.is_mbarrier) text += ", which stays " + std::to_string(word.value);
      }
      if (t.more_words > 0) text += ", and " + std::to_string(t.more_words) + " words more";
      return text;
    }
    case wait_reason::unseen_memory: return "polls plain or volatile memory, which does not change";
    case wait_reason::none: return "can run";
    case wait_reason::exited: break;
  }
  return "has exited";
}

std::string describe_owner(const snapshot& all, const block_snapshot& b) {
  return b.world_rank >= 0 ? "rank " + std::to_string(b.world_rank)
                           : "device " + std::to_string(all.launches[b.launch].device);
}

/// Collects nodes, then what each waits for.
class builder {
 public:
  explicit builder(const snapshot& all)
      : all_(all),
        of_thread_(all.threads.size()),
        of_block_(all.blocks.size()),
        not_started_(all.launches.size(), none) {}

  wait_graph build() {
    for (size_t b = 0; b < all_.blocks.size(); ++b) add_threads(b);
    for (size_t l = 0; l < all_.launches.size(); ++l) add_missing(l);
    const size_t threads = threads_.size();
    for (size_t node = 0; node < threads; ++node) {
      if (threads_[node].count != 0) connect(node);
    }
    return std::move(graph_);
  }

 private:
  static constexpr size_t none = ~size_t{0};

  /// The threads of a node; none for what is no thread.
  struct range {
    size_t first = 0;
    size_t count = 0;
    [[nodiscard]] size_t end() const { return first + count; }
  };

  size_t add(const std::string& who, const std::string& where, const std::string& what, const std::string& column) {
    graph_.nodes.push_back({who, where, what, column, false});
    threads_.emplace_back();
    return graph_.edges.add_node();
  }

  void add_threads(size_t block) {
    const block_snapshot& b = all_.blocks[block];
    const std::string column = describe_owner(all_, b);
    const size_t end = b.first_thread + b.threads;
    for (size_t first = b.first_thread; first < end;) {
      const thread_snapshot& t = all_.threads[first];
      const std::string what = describe_wait(all_, t);
      size_t last = first;
      while (last + 1 < end && describe_wait(all_, all_.threads[last + 1]) == what) ++last;
      if (t.reason != wait_reason::exited) {
        std::vector<uint32_t> ranks;
        for (size_t i = first; i <= last; ++i) ranks.push_back(all_.threads[i].rank);
        const size_t node =
            add(column + ", block " + std::to_string(b.rank) + ", " + host::detail::number_list("thread", ranks),
                describe_location(all_, t), what, column);
        threads_[node] = {first, last + 1 - first};
        of_block_[block].push_back(node);
        for (const int each : b.ranks) of_rank_[each].push_back(node);
        for (size_t i = first; i <= last; ++i) of_thread_[i] = node;
      }
      first = last + 1;
    }
  }

  /// Blocks that wait for a multiprocessor.
  void add_missing(size_t launch) {
    const launch_snapshot& l = all_.launches[launch];
    if (l.not_started == 0) return;
    const std::string device = "device " + std::to_string(l.device);
    const size_t node = add(device, "blocks that have not started",
                            std::to_string(l.not_started) + " of " + std::to_string(l.blocks) +
                                " blocks have not started, as the GPU is full; blocks that wait for each other need a "
                                "cooperative launch",
                            device);
    not_started_[launch] = node;
    for (size_t b = 0; b < all_.blocks.size(); ++b) {
      if (all_.launches[all_.blocks[b].launch].device == l.device) edges(node, of_block_[b]);
    }
    for (const int rank : l.ranks) of_rank_[rank].push_back(node);
  }

  void edges(size_t from, const std::vector<size_t>& to) {
    for (const size_t node : to) {
      if (node != from) graph_.edges.add_edge(from, node);
    }
  }

  void connect(size_t node) {
    const thread_snapshot& t = all_.threads[threads_[node].first];
    switch (t.reason) {
      case wait_reason::block_barrier:
      case wait_reason::grid_barrier: return connect_barrier(node, t);
      case wait_reason::warp_operation: return connect_warps(node);
      case wait_reason::session: return connect_ranks(node);
      default: return;
    }
  }

  void connect_barrier(size_t node, const thread_snapshot& t) {
    const bool whole_grid = t.reason == wait_reason::grid_barrier;
    const launch_snapshot& launch = all_.launches[all_.blocks[t.block].launch];
    for (size_t b = launch.first_block; b < launch.first_block + launch.running; ++b) {
      if (!whole_grid && b != t.block) continue;
      for (const size_t other : of_block_[b]) {
        const thread_snapshot& o = all_.threads[threads_[other].first];
        if (o.reason != t.reason || (!whole_grid && o.barrier != t.barrier)) edges(node, {other});
      }
    }
    const size_t missing = not_started_[all_.blocks[t.block].launch];
    if (whole_grid && missing != none) edges(node, {missing});
  }

  void connect_warps(size_t node) {
    for (size_t i = threads_[node].first; i < threads_[node].end(); ++i) {
      const thread_snapshot& t = all_.threads[i];
      const block_snapshot& b = all_.blocks[t.block];
      const uint32_t warp = t.rank / 32;
      for (uint32_t rest = t.mask & b.live_lanes[warp]; rest != 0; rest &= rest - 1) {
        const size_t lane = b.first_thread + warp * 32 + static_cast<uint32_t>(__builtin_ctz(rest));
        const thread_snapshot& other = all_.threads[lane];
        if (other.reason != wait_reason::warp_operation || other.mask != t.mask) edges(node, {of_thread_[lane]});
      }
    }
  }

  /// A session waits for its peers' sessions on the same barrier or channel; where a peer has none, for
  /// everything that the peer's threads do instead.
  void connect_ranks(size_t node) {
    for (size_t i = threads_[node].first; i < threads_[node].end(); ++i) {
      const thread_snapshot& t = all_.threads[i];
      std::vector<size_t> found;
      for (const size_t theirs : awaited_threads(all_, t)) found.push_back(of_thread_[theirs]);
      if (found.empty()) found = awaits_group(t) ? of_group(i) : of_peer(t.session.peer);
      edges(node, found);
    }
  }

  /// What the rank's threads outside the group of `thread` do, as some of them may be the group that is not there; not
  /// those that wait for it, too.
  std::vector<size_t> of_group(size_t thread) {
    const thread_snapshot& t = all_.threads[thread];
    std::set<size_t> own{thread};
    if (t.session.own != session_wait::none) {
      own.insert(all_.sessions[t.session.own].begin(), all_.sessions[t.session.own].end());
    }
    std::vector<size_t> others;
    for (const size_t node : of_rank_[t.session.peer]) {
      const range& threads = threads_[node];
      bool outside = threads.count == 0;
      for (size_t i = threads.first; !outside && i < threads.end(); ++i)
        outside = !own.contains(i) && !awaits_same_group(all_.threads[i], t);
      if (outside) others.push_back(node);
    }
    if (!others.empty()) return others;
    const std::string rank = "rank " + std::to_string(t.session.peer);
    const std::string channel = describe_awaited_channel(t);
    std::vector<size_t>& there = of_group_[rank + ", " + channel];
    if (there.empty()) there.push_back(add(rank, channel, "no group is at " + channel, rank));
    return there;
  }

  std::vector<size_t> of_peer(int rank) {
    if (rank < 0) return {};  // any could help, so none is to blame
    std::vector<size_t>& there = of_rank_[rank];
    if (there.empty()) {
      const std::string name = "rank " + std::to_string(rank);
      there.push_back(add(name, "no kernel", "runs no kernel that could arrive", name));
    }
    return there;
  }

  const snapshot& all_;
  wait_graph graph_;
  std::vector<range> threads_;                  // by node
  std::vector<size_t> of_thread_;               // nodes
  std::vector<std::vector<size_t>> of_block_;   // nodes
  std::map<int, std::vector<size_t>> of_rank_;  // nodes
  std::map<std::string, std::vector<size_t>> of_group_;
  std::vector<size_t> not_started_;  // by launch, its node
};

}  // namespace

wait_graph make_wait_graph(const snapshot& all) {
  wait_graph graph = builder(all).build();
  constexpr size_t looked_at = 256;  // starting points
  size_t shortest = host::detail::waits_for_graph::none;
  for (size_t start = 0; start < graph.nodes.size() && start < looked_at; ++start) {
    std::vector<size_t> cycle = graph.edges.cycle_through(start, shortest);
    if (cycle.empty()) continue;
    shortest = cycle.size();
    graph.cycle = std::move(cycle);
  }
  for (const size_t node : graph.cycle) graph.nodes[node].in_cycle = true;
  return graph;
}

}  // namespace devcomm::simulator::detail
