/// \file packets_or_windows.cuh
/// Operations that take one trip over packets, or go through windows between barriers.
#pragma once

#include "perf/packet_algorithm.cuh"
#include "perf/window_algorithm.cuh"

#include <algorithm>
#include <cstdio>

namespace perf {

/// Bytes that the busiest rank puts on its links, or reads over them, and the barriers of the way through windows.
struct link_load {
  double of_packets;  ///< of Lamport; LL packets take twice that
  double of_windows;
  int barriers;              ///< that release and acquire
  int relaxed_barriers = 0;  ///< that do not
};

/// Microseconds that no call takes less than, and bytes a microsecond, on H200s; docs/internals/performance_notes.md
/// has their sources.
namespace floors {
inline constexpr double link = 340e3;
inline constexpr double link_by_packets = 310e3;
inline constexpr double launch_and_trip = 2.0;
inline constexpr double further_round = 1.0;
inline constexpr double launch = 0.6;
inline constexpr double barrier = 2.0;
inline constexpr double relaxed_barrier = 0.8;
}  // namespace floors

/// For a collective of `packs` packs, for which there is no table of measured times: the way with the lower floor, with
/// as many threads as packs, up to all of `blocks` blocks.
inline choice choose_by_floor(const work& what, const link_load& load, std::uint64_t packs, unsigned blocks) {
  const bool lamport = with_type(what.type, []<class T>(T) { return devcomm::lsa::is_lamport_type<T>; });
  choice best;
  for (const unsigned threads : {64u, 128u, 256u, max_threads}) {
    best.shape.threads = threads;
    best.shape.blocks = static_cast<unsigned>(std::clamp<std::uint64_t>((packs + threads - 1) / threads, 1, blocks));
    if (best.shape.blocks < blocks) break;
  }
  const auto of_block = std::max<std::uint64_t>(1, devcomm::collective::packs_per_block(packs, best.shape.blocks));
  const double by_packets = floors::launch_and_trip + (lamport ? 1 : 2) * load.of_packets / floors::link_by_packets +
                            floors::further_round * static_cast<double>((of_block - 1) / packets::channel_room);
  const double by_windows = floors::launch + floors::barrier * load.barriers +
                            floors::relaxed_barrier * load.relaxed_barriers + load.of_windows / floors::link;
  best.algorithm = by_packets <= by_windows ? "one_shot" : "zero_copy";
  // Stores to a peer are as fast from fewer threads, which are nearer to each other in memory.
  if (by_packets > by_windows && best.shape.threads == max_threads)
    best.shape = {std::min(best.shape.blocks, 128u), max_threads / 2};
  best.protocol = by_packets > by_windows ? "simple" : lamport ? "lamport" : "ll";
  char why[160];
  std::snprintf(why, sizeof why, "%s %s, %u x %u: no less than %.2f us by packets, %.2f us through windows",
                best.algorithm.c_str(), best.protocol.c_str(), best.shape.blocks, best.shape.threads, by_packets,
                by_windows);
  best.why = why;
  return best;
}

/// Pieces of whole packs, as nccl-tests make them, where there are as many bytes.
inline std::uint64_t granularity_of_shards(const work& what) {
  const auto ranks = static_cast<std::uint64_t>(what.ranks);
  return ranks * (what.bytes >= 16 * ranks ? 16 : bytes_of(what.type));
}

/// Every rank sends or reads the others' shards.
inline link_load load_of_shards(const work& what) {
  const double others = static_cast<double>(what.bytes) * (what.ranks - 1) / what.ranks;
  return {.of_packets = others, .of_windows = others, .barriers = 2};
}

template <class OneShot, class Direct>
class packets_or_windows : public operation {
 public:
  [[nodiscard]] choice choose(const work& what, unsigned blocks) const override {
    return choose_by_floor(what, load(what), packs_of_call<OneShot>(what), blocks);
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made;
    made.push_back(std::make_unique<packets::packet_algorithm<OneShot, packets::lamport>>(context));
    made.push_back(std::make_unique<packets::packet_algorithm<OneShot, packets::ll>>(context));
    made.push_back(std::make_unique<windows::window_algorithm<Direct>>(context));
    return made;
  }

 protected:
  [[nodiscard]] virtual link_load load(const work& what) const = 0;
};

}  // namespace perf
