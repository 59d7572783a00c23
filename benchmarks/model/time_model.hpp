/// \file time_model.hpp
/// How long an all-reduce takes on a machine of given links: closed forms of latency, bytes and hops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace model {

/// One way between two ranks. Microseconds and bytes a microsecond (1 GB/s is 1,000).
struct link {
  double latency;      ///< from the sender's first store until the receiver may use the data
  double rate;         ///< payload that a rank sends, in both directions at once
  double message = 0;  ///< time of the sender that each message takes beside its bytes
};

/// Hosts with as many ranks each. In a host every rank reaches every other by one hop; between hosts, each rank has a
/// network card of its own.
struct machine {
  int hosts = 1;
  int ranks_per_host = 8;
  double launch = 0;  ///< an empty kernel
  double memory = 0;  ///< bytes a microsecond that a rank's own memory reads and writes
  link loads{};  ///< data that the receiver loads; its latency is that of a barrier and of a load's way there and back
  link packets{};  ///< 8 bytes at a time with their flags: half of what is stored is payload (LL, Lamport)
  link lines{};    ///< 128 bytes at a time with a flag (LL128)
  link flags{};    ///< plain stores, and a flag behind them (Simple)
  link network{};

  [[nodiscard]] int ranks() const { return hosts * ranks_per_host; }
};

/// GPUs of one NVLink switch, by the limits that were measured on H200s, and network cards of 400 Gb/s whose figures
/// are assumptions.
[[nodiscard]] machine h200(int hosts, int ranks_per_host);

enum class algorithm {
  one_shot,   ///< every rank sends all of its data to every other
  two_shot,   ///< reduce-scatter and all-gather, each by direct messages between all ranks
  ring,       ///< as many rings as a host has cards, so that each crosses hosts by another one
  tree,       ///< double binary tree over all ranks: over hosts first, inside a host below that
  rail_ring,  ///< two-shot inside each host, around a ring over the hosts for each card
  rail_tree,  ///< the same around a double binary tree
};
/// Those that differ on a machine: rails need several hosts.
[[nodiscard]] std::vector<algorithm> algorithms_of(const machine& on);
[[nodiscard]] std::string name_of(algorithm which);

enum class protocol { loads, packets, lines, flags };
[[nodiscard]] std::string name_of(protocol how);

struct prediction {
  double us;
  protocol inside;  ///< between ranks of a host
};

/// Of an all-reduce of `bytes`, by the fastest protocol or a given one; a protocol that the algorithm does not have
/// takes for ever.
[[nodiscard]] prediction predict(const machine& on, algorithm which, double bytes);
[[nodiscard]] double predict(const machine& on, algorithm which, protocol inside, double bytes);

/// Edges of the longest path in a double binary tree over `members`.
[[nodiscard]] int tree_depth(int members);
/// Messages that the busiest member of a double binary tree sends for one chunk in each of the two trees.
[[nodiscard]] int tree_messages(int members);

}  // namespace model
