/// \file packet_all_reduce.cuh
/// All-reduces over packets. Their kernels have a file of their own, as they take long to compile.
#pragma once

#include "perf/packet_algorithm.cuh"

namespace perf {

/// One shot and two shots, over LL, LL128 and Lamport mailboxes.
void add_ll_all_reduces(const rank_context& context, algorithms& made);
void add_ll128_all_reduces(const rank_context& context, algorithms& made);
void add_lamport_all_reduces(const rank_context& context, algorithms& made);
/// One shot, over LL and Lamport mailboxes, by multimem.
void add_multimem_packet_all_reduces(const rank_context& context, algorithms& made);

namespace packets {

struct one_shot {
  static constexpr const char* name = "one_shot";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = false;
  /// Vectors above which the two-shot way is always ahead.
  static constexpr std::uint64_t max_bytes = 16 << 20;
  /// Packs that one round takes of a session whose mailboxes hold `capacity` packets.
  static std::uint64_t packs_in_round(std::uint64_t capacity, std::uint64_t) { return capacity; }

  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_reduce_one_shot<T>(session, packs, produce, consume, sum{});
  }
};

struct two_shot {
  static constexpr const char* name = "two_shot";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = false;
  static constexpr std::uint64_t max_bytes = ~std::uint64_t{0};
  static std::uint64_t packs_in_round(std::uint64_t capacity, std::uint64_t ranks) { return capacity / 2 * ranks; }

  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_reduce_two_shot<T>(session, packs, produce, consume, sum{});
  }
};

}  // namespace packets
}  // namespace perf
