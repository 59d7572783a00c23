/// All-gather and broadcast, which only move elements. In one file: most of the time to compile either goes into the
/// headers.
#include "perf/multimem_collectives.hpp"
#include "perf/nccl_algorithms.hpp"
#include "perf/packets_or_windows.cuh"
#include "perf/random_data.hpp"

namespace perf {
namespace {

using namespace devcomm;

constexpr int root = 0;

struct gather_packets {
  static constexpr const char* name = "one_shot";
  static constexpr shards in_shards = shards::of_output;
  static constexpr bool only_moves = true;
  static constexpr std::uint64_t max_bytes = ~std::uint64_t{0};

  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_gather<T>(session, packs, produce, consume);
  }
};

struct gather_direct {
  static constexpr const char* name = "zero_copy";
  static constexpr shards in_shards = shards::of_output;
  static constexpr bool only_moves = true;

  template <class T, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::all_gather_zero_copy<T>(barrier, input.local(), output, count);
  }
};

class all_gather final : public packets_or_windows<gather_packets, gather_direct> {
 public:
  [[nodiscard]] std::string name() const override { return "all_gather"; }
  [[nodiscard]] std::string about() const override { return "bytes of each rank's output, of which a shard goes in"; }
  [[nodiscard]] double bus_factor(int ranks) const override { return (ranks - 1.0) / ranks; }
  [[nodiscard]] std::uint64_t granularity(const work& what) const override { return granularity_of_shards(what); }
  void place(work& call) const override {
    if (call.in_place) call.input = call.shard_of(call.output);
  }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made = packets_or_windows::make_algorithms(context);
    add_multimem_all_gathers(context, made);
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::all_gather, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    fill_random(what.input, what.shard(), what.type, what.rank, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_shards(what, what.shard(), seed);
  }

 protected:
  [[nodiscard]] link_load load(const work& what) const override { return load_of_shards(what); }
};

struct broadcast_packets {
  static constexpr const char* name = "one_shot";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = true;
  /// Above, the root's links are what counts, and windows share its work out.
  static constexpr std::uint64_t max_bytes = 16 << 20;

  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::broadcast<T>(session, root, packs, produce, consume);
  }
};

struct broadcast_zero_copy {
  static constexpr const char* name = "zero_copy";
  static constexpr shards in_shards = shards::none;
  static constexpr bool only_moves = true;

  template <class T, class Barrier>
  __device__ static void run(Barrier& barrier, sym_ptr<T> input, sym_ptr<T> output, std::uint64_t count) {
    collective::broadcast_zero_copy<T>(barrier, root, input.local(), output, count);
  }
};

class broadcast final : public packets_or_windows<broadcast_packets, broadcast_zero_copy> {
 public:
  [[nodiscard]] std::string name() const override { return "broadcast"; }
  [[nodiscard]] std::string about() const override { return "bytes of the vector of rank 0, the root"; }
  [[nodiscard]] double bus_factor(int) const override { return 1; }
  [[nodiscard]] algorithms make_algorithms(const rank_context& context) const override {
    algorithms made = packets_or_windows::make_algorithms(context);
    add_multimem_broadcasts(context, made);
    return made;
  }
  [[nodiscard]] algorithms make_nccl_algorithms(const rank_context& context) const override {
    return make_nccl(nccl_call::broadcast, context);
  }
  void fill(const work& what, std::uint64_t seed) const override {
    if (what.rank == root) fill_random(what.input, what.count(), what.type, root, seed, what.stream);
  }
  [[nodiscard]] std::uint64_t count_wrong(const work& what, std::uint64_t seed) const override {
    return count_wrong_shards(what, what.count(), seed);
  }

 protected:
  [[nodiscard]] link_load load(const work& what) const override {
    const auto bytes = static_cast<double>(what.bytes);
    const double others = what.ranks - 1;
    return {.of_packets = others * bytes, .of_windows = 2 * others / what.ranks * bytes, .barriers = 3};
  }
};

const bool are_registered =
    register_operation(std::make_unique<all_gather>()) && register_operation(std::make_unique<broadcast>());

}  // namespace
}  // namespace perf
