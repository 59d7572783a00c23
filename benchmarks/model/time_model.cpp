#include "model/time_model.hpp"

#include <devcomm/tree.hpp>

#include <algorithm>
#include <limits>

namespace model {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr double smallest_chunk = 4096;

const link& link_of(const machine& on, protocol how) {
  switch (how) {
    case protocol::loads: return on.loads;
    case protocol::packets: return on.packets;
    case protocol::lines: return on.lines;
    case protocol::flags: break;
  }
  return on.flags;
}

/// Every one of `members` sends `bytes` to every other at once.
double all_pairs(const link& over, int members, double bytes) {
  if (members == 1) return 0;
  return over.latency + (members - 1) * (over.message + bytes / over.rate);
}

/// The same between all ranks of the machine: links inside hosts and network cards work side by side. The message count
/// matters on the network only: inside a host, blocks send side by side.
double all_pairs(const machine& on, const link& inside, double bytes) {
  const link local{inside.latency, inside.rate};
  const int outside = on.ranks() - on.ranks_per_host;
  const double network =
      outside == 0 ? 0 : on.network.latency + outside * (on.network.message + bytes / on.network.rate);
  return std::max(all_pairs(local, on.ranks_per_host, bytes), network);
}

double one_shot(const machine& on, protocol how, double bytes) {
  const int ranks = on.ranks();
  if (ranks == 1) return on.launch;
  if (how != protocol::loads) return on.launch + all_pairs(on, link_of(on, how), bytes);
  if (on.hosts > 1) return never;
  // Loads, sums and stores of a thread follow each other: what a rank's memory serves to all adds to the links' time.
  return on.launch + all_pairs(on, on.loads, bytes) + (ranks + 1) * bytes / on.memory;
}

/// One half of a two-shot all-reduce over `on`.
double shot(const machine& on, protocol how, double bytes) {
  return on.ranks() == 1 ? 0 : all_pairs(on, link_of(on, how), bytes / on.ranks());
}

double two_shot(const machine& on, protocol how, double bytes) {
  if (on.ranks() == 1) return on.launch;
  const double both = on.launch + 2 * shot(on, how, bytes);
  if (how != protocol::loads) return both;
  if (on.hosts > 1) return never;
  return both + (3 + 1.0 / on.ranks()) * bytes / on.memory;
}

/// `hops` between `members`, of which each sends `bytes / members` in each. A chunk makes all hops one after the other.
double around_ring(double hops, double crossing, const link& inside, const link& outside, double rate, int members,
                   double bytes) {
  return (hops - crossing) * inside.latency + crossing * (outside.latency + outside.message) +
         hops * bytes / members / rate;
}

double ring(const machine& on, protocol how, double bytes) {
  if (how == protocol::loads) return never;
  const link& inside = link_of(on, how);
  const int ranks = on.ranks();
  const double hops = 2.0 * (ranks - 1);
  const double crossing = on.hosts == 1 ? 0 : on.ranks_per_host == 1 ? hops : hops * on.hosts / ranks;
  double rate = on.ranks_per_host == 1 ? never : inside.rate;
  if (on.hosts > 1) rate = std::min(rate, on.ranks_per_host * on.network.rate);
  return on.launch + (ranks == 1 ? 0 : around_ring(hops, crossing, inside, on.network, rate, ranks, bytes));
}

/// Up and down a pipelined double binary tree, in as many chunks as are best. Each level has its latency, each chunk
/// takes the busiest member's time.
struct tree_level {
  int depth;
  int messages;
  link over;
};
double up_and_down(const std::vector<tree_level>& levels, double bytes) {
  double best = never;
  for (double chunks = 1; chunks == 1 || bytes / 2 / chunks >= smallest_chunk; chunks *= 2) {
    const double chunk = bytes / 2 / chunks;
    double path = 0;
    double busiest = 0;
    for (const tree_level& level : levels) {
      if (level.depth == 0) continue;
      // On its way down a chunk waits for the one that goes to the other child.
      path += level.depth * (2 * (level.over.latency + level.over.message) + 3 * chunk / level.over.rate);
      busiest = std::max(busiest, level.messages * chunk / level.over.rate + level.over.message);
    }
    best = std::min(best, path + (chunks - 1) * busiest);
  }
  return best;
}

double tree(const machine& on, protocol how, double bytes) {
  if (how == protocol::loads) return never;
  link network = on.network;
  network.rate *= on.ranks_per_host;  // each host's share is spread over its cards
  const link inside = link_of(on, how);
  return on.launch + up_and_down({{tree_depth(on.hosts), tree_messages(on.hosts), network},
                                  {tree_depth(on.ranks_per_host), tree_messages(on.ranks_per_host), inside}},
                                 bytes);
}

/// Reduce-scatter and all-gather in each host around what `between` does with a shard.
double over_rails(const machine& on, protocol how, double bytes, double between) {
  machine host = on;
  host.hosts = 1;
  const double memory = how == protocol::loads && on.ranks_per_host > 1 ? 3 * bytes / on.memory : 0;
  return on.launch + 2 * shot(host, how, bytes) + memory + between;
}

double rail_ring(const machine& on, protocol how, double bytes) {
  const double hops = 2.0 * (on.hosts - 1);
  const double shard = bytes / on.ranks_per_host;
  return over_rails(on, how, bytes, around_ring(hops, hops, on.network, on.network, on.network.rate, on.hosts, shard));
}

double rail_tree(const machine& on, protocol how, double bytes) {
  const double shard = bytes / on.ranks_per_host;
  return over_rails(on, how, bytes, up_and_down({{tree_depth(on.hosts), tree_messages(on.hosts), on.network}}, shard));
}

}  // namespace

machine h200(int hosts, int ranks_per_host) {
  constexpr double gigabytes = 1000;     // bytes a microsecond
  constexpr double relaxed_flag = 0.61;  // one way, and with release and acquire:
  constexpr double ordered_flag = 1.17;
  constexpr double stores = 345;  // to a peer, both directions at once, 32 blocks of 512
  constexpr double loads = 326;
  machine on;
  on.hosts = hosts;
  on.ranks_per_host = ranks_per_host;
  on.launch = 0.57;
  on.memory = 3900 * gigabytes;
  on.loads = {ordered_flag + 2 * relaxed_flag, loads * gigabytes};
  on.packets = {0.70, stores / 2 * gigabytes};  // ping-pong of LL packets
  on.lines = {0.70, stores * 15 / 16 * gigabytes};
  on.flags = {1.86, stores * gigabytes, ordered_flag - relaxed_flag};  // put with signal
  on.network = {5, 48 * gigabytes, 0.5};
  return on;
}

std::vector<algorithm> algorithms_of(const machine& on) {
  std::vector<algorithm> all = {algorithm::one_shot, algorithm::two_shot, algorithm::ring, algorithm::tree};
  if (on.hosts > 1) all.insert(all.end(), {algorithm::rail_ring, algorithm::rail_tree});
  return all;
}

std::string name_of(algorithm which) {
  switch (which) {
    case algorithm::one_shot: return "one_shot";
    case algorithm::two_shot: return "two_shot";
    case algorithm::ring: return "ring";
    case algorithm::tree: return "tree";
    case algorithm::rail_ring: return "rail_ring";
    case algorithm::rail_tree: break;
  }
  return "rail_tree";
}

std::string name_of(protocol how) {
  switch (how) {
    case protocol::loads: return "loads";
    case protocol::packets: return "packets";
    case protocol::lines: return "lines";
    case protocol::flags: break;
  }
  return "flags";
}

double predict(const machine& on, algorithm which, protocol inside, double bytes) {
  switch (which) {
    case algorithm::one_shot: return one_shot(on, inside, bytes);
    case algorithm::two_shot: return two_shot(on, inside, bytes);
    case algorithm::ring: return ring(on, inside, bytes);
    case algorithm::tree: return tree(on, inside, bytes);
    case algorithm::rail_ring: return rail_ring(on, inside, bytes);
    case algorithm::rail_tree: break;
  }
  return rail_tree(on, inside, bytes);
}

prediction predict(const machine& on, algorithm which, double bytes) {
  prediction best{never, protocol::flags};
  for (const protocol how : {protocol::loads, protocol::packets, protocol::lines, protocol::flags}) {
    const double us = predict(on, which, how, bytes);
    if (us < best.us) best = {us, how};
  }
  return best;
}

int tree_depth(int members) {
  int depth = 0;
  while (members >> (depth + 1) != 0) ++depth;
  return depth;
}

int tree_messages(int members) {
  int most = 0;
  for (int rank = 0; rank < members; ++rank) {
    int messages = 0;
    for (const int tree : {0, 1}) {
      const devcomm::tree_node node = devcomm::double_tree(devcomm::world_team(rank, members), tree);
      messages += (node.is_root() ? 0 : 1) + (node.left >= 0 ? 1 : 0) + (node.right >= 0 ? 1 : 0);
    }
    most = std::max(most, messages);
  }
  return most;
}

}  // namespace model
