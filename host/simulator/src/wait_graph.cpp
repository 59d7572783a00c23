#include "wait_graph.hpp"

#include "engine.hpp"
#include "failure.hpp"
#include "grid.hpp"
#include "memory.hpp"
#include "session.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace devcomm::simulator::detail {
namespace {

constexpr uint32_t of_grid = 16;  // as a fiber's barrier index

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

const char* name_of(warp_operation operation) {
  switch (operation) {
    case warp_operation::sync: return "__syncwarp";
    case warp_operation::ballot: return "vote";
    case warp_operation::shuffle: return "shuffle";
    case warp_operation::match: return "__match";
    case warp_operation::gather: return "an access to whole lines";
  }
  return "warp operation";
}

/// "LSA barrier 3", "__syncthreads".
std::string describe_place(const fiber& f) {
  const block& b = *f.home;
  switch (f.state) {
    case fiber_state::at_barrier:
      if (f.barrier >= of_grid) return "grid.sync()";
      if (f.barrier == 0 && b.barriers[0].threads == 0) return "__syncthreads";
      return "named barrier " + std::to_string(f.barrier);
    case fiber_state::at_warp: return name_of(f.operation);
    case fiber_state::at_converge: return "a question for the active lanes";
    case fiber_state::sleeping: return "sleep";
    case fiber_state::polling:
      if (f.label != nullptr)
        return std::string(devcomm::to_string(f.label->what)) + " " + std::to_string(f.label->index);
      return "a poll of memory";
    case fiber_state::runnable:
    case fiber_state::finished: break;
  }
  return "nothing";
}

/// Whether `f` waits for a group of its rank, known by its channel.
bool awaits_group(const fiber& f) { return f.label->groups != 0; }

/// Whether `f` waits for the group that `other` waits for, and so is not that group.
bool awaits_same_group(const fiber& f, const fiber& other) {
  return f.state == fiber_state::polling && f.label != nullptr && f.label->what == other.label->what &&
         f.label->peer == other.label->peer && f.label->groups == other.label->groups &&
         f.label->peer_index == other.label->peer_index;
}

/// The threads that hold the barrier or channel that `f` waits for.
std::vector<const fiber*> awaited_threads(const fiber& f) {
  std::vector<const fiber*> found;
  const session* const own = session_of(f, *f.label);
  if (own == nullptr) return found;
  for (const session* theirs : sessions_of_peer(*own, f.label->peer, f.label->peer_index)) {
    for (const session::member& m : theirs->members) {
      if (m.thread != nullptr && !m.left) found.push_back(m.thread);
    }
  }
  return found;
}

std::string describe_awaited_channel(const fiber& f) {
  return std::string(devcomm::to_string(f.label->what)) + " " + std::to_string(f.label->peer_index);
}

/// "rank 1", or "block 0 at LL mailbox 0" of the same rank.
std::string describe_peer(const fiber& f) {
  if (!awaits_group(f)) return "rank " + std::to_string(f.label->peer);
  const std::vector<const fiber*> threads = awaited_threads(f);
  if (threads.empty()) return "a group at " + describe_awaited_channel(f) + ", where none is,";
  return "block " + std::to_string(threads.front()->home->rank) + " at " + describe_awaited_channel(f);
}

std::string describe_wait(const fiber& f) {
  const block& b = *f.home;
  switch (f.state) {
    case fiber_state::at_barrier: {
      if (f.barrier >= of_grid) {
        return "in grid.sync(), " + std::to_string(b.launch.arrived) + " of " + std::to_string(b.launch.live) +
               " threads arrived";
      }
      const named_barrier& barrier = b.barriers[f.barrier];
      const uint32_t all = barrier.threads == 0 ? b.live : barrier.threads;
      const bool named = f.barrier != 0 || barrier.threads != 0;
      return (named ? "at " : "in ") + describe_place(f) + ", " + std::to_string(barrier.arrived) + " of " +
             std::to_string(all) + " arrived";
    }
    case fiber_state::at_warp: return "in a " + describe_place(f) + " of the lanes " + hex(f.mask);
    case fiber_state::at_converge: return "asks for the active lanes";
    case fiber_state::sleeping: return "sleeps";
    case fiber_state::polling: {
      if (f.label != nullptr) {
        std::string text = describe_place(f) + ": waits for " + describe_peer(f) + " to reach epoch " +
                           std::to_string(f.label->expected);
        if (!f.watches.entries.empty()) text += ", saw " + std::to_string(f.watches.entries[0].value);
        return text;
      }
      std::string text = "polls";
      constexpr size_t most = 8;
      const std::vector<watch>& all = f.watches.entries;
      for (size_t i = 0; i < std::min(all.size(), most); ++i) {
        text +=
            (i == 0 ? " " : ", ") + describe_address(all[i].address) + ", which stays " + std::to_string(all[i].value);
      }
      if (all.size() > most) text += ", and " + std::to_string(all.size() - most) + " words more";
      return text;
    }
    case fiber_state::runnable: return "can run";
    case fiber_state::finished: break;
  }
  return "has exited";
}

/// Collects nodes, then what each waits for.
class builder {
 public:
  wait_graph build() {
    for (const grid* g : the_engine().grids) {
      for (const block* b : g->running) add_threads(*b);
    }
    for (const grid* g : the_engine().grids) add_missing(*g);
    const size_t threads = first_.size();
    for (size_t i = 0; i < threads; ++i) {
      if (first_[i] != nullptr) connect(i);
    }
    for (waiting_threads& node : graph_.nodes) {
      std::sort(node.waits_for.begin(), node.waits_for.end());
      node.waits_for.erase(std::unique(node.waits_for.begin(), node.waits_for.end()), node.waits_for.end());
    }
    return std::move(graph_);
  }

 private:
  size_t add(const std::string& who, const std::string& where, const std::string& what, const std::string& column) {
    graph_.nodes.push_back({who, where, what, column, {}, false});
    first_.push_back(nullptr);
    last_.push_back(nullptr);
    return graph_.nodes.size() - 1;
  }

  void add_threads(const block& b) {
    const size_t count = b.fibers.size();
    const int rank = rank_of(b);
    const std::string column = rank >= 0 ? "rank " + std::to_string(rank) : "device " + std::to_string(b.launch.device);
    for (size_t first = 0; first < count;) {
      const std::string what = describe_wait(b.fibers[first]);
      size_t last = first;
      while (last + 1 < count && describe_wait(b.fibers[last + 1]) == what) ++last;
      if (b.fibers[first].state != fiber_state::finished) {
        const std::string threads =
            first == last ? " " + std::to_string(first) : "s " + std::to_string(first) + ".." + std::to_string(last);
        const size_t node =
            add(describe_block(b) + ", thread" + threads, describe_place(b.fibers[first]), what, column);
        first_[node] = &b.fibers[first];
        last_[node] = &b.fibers[last];
        of_block_[&b].push_back(node);
        for (const int each : ranks_of(b)) of_rank_[each].push_back(node);
        for (size_t i = first; i <= last; ++i) of_fiber_[&b.fibers[i]] = node;
      }
      first = last + 1;
    }
  }

  /// Blocks that wait for room.
  void add_missing(const grid& g) {
    const uint64_t missing = g.shape.blocks() - g.next_block;
    if (missing == 0) return;
    const std::string device = "device " + std::to_string(g.device);
    const size_t node = add(device, "blocks that have not started",
                            std::to_string(missing) + " of " + std::to_string(g.shape.blocks()) +
                                " blocks have not started, as the GPU is full; blocks that wait for each other need a "
                                "cooperative launch",
                            device);
    not_started_[&g] = node;
    for (const grid* other : the_engine().grids) {
      if (other->device != g.device) continue;
      for (const block* b : other->running) edges(node, of_block_[b]);
    }
    for (const int rank : ranks_of_grid(g)) of_rank_[rank].push_back(node);
  }

  /// Whose kernel it may be.
  static std::set<int> ranks_of(const block& b) {
    const int rank = rank_of(b);
    return rank >= 0 ? std::set{rank} : the_engine().ranks_of_device[b.launch.device];
  }
  static std::set<int> ranks_of_grid(const grid& g) {
    return g.running.empty() ? the_engine().ranks_of_device[g.device] : ranks_of(*g.running.front());
  }

  void edges(size_t from, const std::vector<size_t>& to) {
    auto& all = graph_.nodes[from].waits_for;
    for (const size_t node : to) {
      if (node != from) all.push_back(node);
    }
  }

  void connect(size_t node) {
    const fiber& f = *first_[node];
    if (f.state == fiber_state::at_barrier) {
      connect_barrier(node, f);
    } else if (f.state == fiber_state::at_warp) {
      connect_warps(node);
    } else if (f.state == fiber_state::polling && f.label != nullptr) {
      connect_ranks(node);
    }
  }

  void connect_barrier(size_t node, const fiber& f) {
    const bool whole_grid = f.barrier >= of_grid;
    const grid& g = f.home->launch;
    for (const block* b : g.running) {
      if (!whole_grid && b != f.home) continue;
      for (const size_t other : of_block_[b]) {
        const fiber& o = *first_[other];
        if (o.state != fiber_state::at_barrier || o.barrier != f.barrier) edges(node, {other});
      }
    }
    if (whole_grid && not_started_.count(&g) != 0) edges(node, {not_started_[&g]});
  }

  void connect_warps(size_t node) {
    for (const fiber* f = first_[node]; f <= last_[node]; ++f) {
      block& b = *f->home;
      const uint32_t warp = f->rank / 32;
      for (uint32_t rest = f->mask & b.warps[warp].live; rest != 0; rest &= rest - 1) {
        const fiber& other = b.lane(warp, static_cast<uint32_t>(__builtin_ctz(rest)));
        if (other.state != fiber_state::at_warp || other.mask != f->mask) edges(node, {of_fiber_[&other]});
      }
    }
  }

  /// A session waits for its peers' sessions on the same barrier or channel; where a peer has none, for whatever that
  /// peer's threads do instead.
  void connect_ranks(size_t node) {
    for (const fiber* f = first_[node]; f <= last_[node]; ++f) {
      std::vector<size_t> found;
      for (const fiber* theirs : awaited_threads(*f)) found.push_back(of_fiber_[theirs]);
      if (found.empty()) found = awaits_group(*f) ? of_group(*f) : of_peer(f->label->peer);
      edges(node, found);
    }
  }

  /// What the rank's threads outside the group of `f` do, as some of them may be the group that is not there; not
  /// those that wait for it, too.
  std::vector<size_t> of_group(const fiber& f) {
    std::set<const fiber*> own{&f};
    if (const session* const s = session_of(f, *f.label); s != nullptr) {
      for (const session::member& m : s->members) own.insert(m.thread);
    }
    std::vector<size_t> others;
    for (const size_t node : of_rank_[f.label->peer]) {
      bool outside = first_[node] == nullptr;
      for (const fiber* each = first_[node]; !outside && each <= last_[node]; ++each)
        outside = !own.contains(each) && !awaits_same_group(*each, f);
      if (outside) others.push_back(node);
    }
    if (!others.empty()) return others;
    const std::string rank = "rank " + std::to_string(f.label->peer);
    const std::string channel = describe_awaited_channel(f);
    std::vector<size_t>& there = of_group_[rank + ", " + channel];
    if (there.empty()) there.push_back(add(rank, channel, "no group is at " + channel, rank));
    return there;
  }

  std::vector<size_t> of_peer(int rank) {
    std::vector<size_t>& there = of_rank_[rank];
    if (there.empty()) {
      const std::string name = "rank " + std::to_string(rank);
      there.push_back(add(name, "no kernel", "runs no kernel that could arrive", name));
    }
    return there;
  }

  wait_graph graph_;
  // By node; null for what is no thread.
  std::vector<const fiber*> first_;
  std::vector<const fiber*> last_;
  std::unordered_map<const fiber*, size_t> of_fiber_;
  std::map<const block*, std::vector<size_t>> of_block_;
  std::map<int, std::vector<size_t>> of_rank_;
  std::map<std::string, std::vector<size_t>> of_group_;
  std::map<const grid*, size_t> not_started_;
};

/// A shortest cycle through `start` that is shorter than `limit`; empty when there is none.
std::vector<size_t> cycle_through(const wait_graph& graph, size_t start, size_t limit) {
  constexpr size_t unseen = ~size_t{0};
  std::vector<size_t> before(graph.nodes.size(), unseen);
  std::vector<size_t> layer = {start};
  for (size_t length = 1; !layer.empty() && length < limit; ++length) {
    std::vector<size_t> next;
    for (const size_t node : layer) {
      for (const size_t to : graph.nodes[node].waits_for) {
        if (to == start) {
          std::vector<size_t> cycle;
          for (size_t n = node; n != start; n = before[n]) cycle.push_back(n);
          cycle.push_back(start);
          std::reverse(cycle.begin(), cycle.end());
          return cycle;
        }
        if (before[to] != unseen) continue;
        before[to] = node;
        next.push_back(to);
      }
    }
    layer.swap(next);
  }
  return {};
}

}  // namespace

wait_graph make_wait_graph() {
  wait_graph graph = builder().build();
  constexpr size_t looked_at = 256;  // starting points
  size_t shortest = ~size_t{0};
  for (size_t start = 0; start < graph.nodes.size() && start < looked_at; ++start) {
    std::vector<size_t> cycle = cycle_through(graph, start, shortest);
    if (cycle.empty()) continue;
    shortest = cycle.size();
    graph.cycle = std::move(cycle);
  }
  for (const size_t node : graph.cycle) graph.nodes[node].in_cycle = true;
  return graph;
}

}  // namespace devcomm::simulator::detail
