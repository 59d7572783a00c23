// All-reduce over several LSA teams with a ring along each rail: results, what is touched around, waits that fail, and
// when the ring is taken. Each against a reference on the host.
#include <devcomm/devcomm.cuh>

#include <devcomm/host/error.hpp>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned max_blocks = 2;
constexpr std::uint64_t margin = 8;  // elements around vectors, which nobody may write

launch_config config(unsigned blocks) { return {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}; }

struct shape {
  int hosts;
  int inside;
};
std::string text(const shape& s) { return std::to_string(s.hosts) + " hosts of " + std::to_string(s.inside); }

host::communicator_options options_of(const shape& s) {
  host::communicator_options options;
  options.lsa_size = s.inside;
  return options;
}

/// What a test asks for: small chunks, so that small vectors take many. `own_signals` are the kernel's.
struct job {
  job(host::communicator& comm, const collective::rail_rings& asked, std::uint64_t max_elements,
      std::uint32_t own_signals = 0)
      : needs(comm.requirements().lsa_barriers(max_blocks)),
        rings(needs.add(asked)),
        slots(needs.add(collective::network_slots{.members = comm.rail(), .groups = max_blocks, .slot_bytes = 1000})),
        contexts(needs.add(gin::contexts{
            .world = comm.world(), .count = 1, .signals = own_signals, .depth = 16, .barriers = max_blocks})),
        scratch(needs.add(
            gin::buffer<char>{collective::hierarchical_scratch<char>(8 * max_elements, comm.size(), comm.lsa().size)})),
        device_comm(comm.create_device_comm(needs)) {}

  template <class T>
  [[nodiscard]] collective::rail_memory<T> memory(collective::rail_exchange exchange) const {
    const sym_ptr<char> bytes = device_comm.memory_of(scratch);
    return {exchange, {bytes.memory, bytes.offset}, rings, slots};
  }

  requirements needs;
  collective::rail_ring_handle rings;
  collective::network_slot_handle slots;
  gin::context_handle contexts;
  gin::buffer_handle<char> scratch;
  host::device_communicator device_comm;
};

/// Vectors that lie one after the other, with margins between.
struct vectors {
  static constexpr int most = 6;
  std::uint64_t counts[most];
  int number;

  __host__ __device__ constexpr std::uint64_t first(int k) const {
    std::uint64_t before = margin;
    for (int i = 0; i < k; ++i) before += counts[i] + margin + counts[i] % 4;  // so that not all are aligned alike
    return before;
  }
  __host__ __device__ constexpr std::uint64_t elements() const { return first(number) + margin; }
};

/// One call for each vector, one behind the other, without a sync of the grid between.
template <class T, class Operator>
__global__ void reduce_all(device_comm comm, gin::context_handle contexts, collective::rail_memory<T> rails,
                           sym_ptr<T> in, sym_ptr<T> out, vectors all, Operator op, status* outcome) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
  for (int k = 0; k < all.number; ++k) {
    const auto first = static_cast<std::int64_t>(all.first(k));
    collective::all_reduce_hierarchical<T>(barrier, in + first, out + first, rails, all.counts[k], op);
  }
  outcome[blockIdx.x * threads + threadIdx.x] = barrier.agree();
}

/// Small, so that sums over all ranks are exact.
template <class T>
T element(int rank, std::uint64_t i, int round) {
  return static_cast<T>((static_cast<unsigned>(rank) * 131u + static_cast<unsigned>(round) * 17u + i * 7 + i / 97) %
                        15);
}

/// As `element`, but such that the order of a sum shows in its last bits.
float rough(int rank, std::uint64_t i) {
  return 1.0f / static_cast<float>(3 + (static_cast<unsigned>(rank) * 29u + i * 13) % 1009);
}

template <class T>
constexpr auto untouched = static_cast<T>(113);

template <class T>
void copy(T* to, const T* from, std::size_t count) {
  check_cuda(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, cudaStreamPerThread), "cudaMemcpyAsync");
  test::finish("cudaMemcpyAsync");
}

/// Launches once in `blocks` blocks and returns the output, of all vectors. `value(rank, vector, i)` is an input.
template <class T, class Operator, class Value>
std::vector<T> run(host::communicator& comm, job& with, collective::rail_exchange exchange, unsigned blocks,
                   const vectors& all, bool in_place, Operator op, const Value& value) {
  const std::size_t elements = all.elements();
  std::vector<T> values(elements, untouched<T>);
  const auto in = comm.allocate(elements * sizeof(T));
  const auto other = comm.allocate(elements * sizeof(T));
  const auto& out = in_place ? in : other;
  copy(static_cast<T*>(other.data()), values.data(), elements);
  for (int k = 0; k < all.number; ++k)
    for (std::uint64_t i = 0; i < all.counts[k]; ++i) values[all.first(k) + i] = value(comm.rank(), k, i);
  copy(static_cast<T*>(in.data()), values.data(), elements);
  const test::device_array<status> outcome(blocks * threads);
  comm.barrier();
  launch(reduce_all<T, Operator>, config(blocks), with.device_comm.get(), with.contexts, with.memory<T>(exchange),
         in.pointer<T>(), out.pointer<T>(), all, op, outcome.get());
  test::finish("reduce_all");
  with.device_comm.check();
  for (const status each : outcome.read()) test::require(each == status::success, to_string(each));
  copy(values.data(), static_cast<const T*>(out.data()), elements);
  comm.barrier();
  return values;
}

/// Requires `right(vector, i)` of each vector's elements, and that nothing between them was written.
template <class T, class Right>
void require_output(const std::vector<T>& values, const vectors& all, const Right& right) {
  std::uint64_t at = 0;
  for (int k = 0; k <= all.number; ++k) {
    const std::uint64_t first = k < all.number ? all.first(k) : values.size();
    for (; at < first; ++at)
      test::require(values[at] == untouched<T>, [&] { return "element " + std::to_string(at) + " was written"; });
    for (std::uint64_t i = 0; k < all.number && i < all.counts[k]; ++i, ++at) {
      test::require(values[at] == right(k, i), [&] {
        return "vector " + std::to_string(k) + " of " + std::to_string(all.counts[k]) + ", element " +
               std::to_string(i) + " is " + std::to_string(static_cast<double>(values[at])) + ", not " +
               std::to_string(static_cast<double>(right(k, i)));
      });
    }
  }
}

template <class T>
void check_sums(host::communicator& comm, job& with, collective::rail_exchange exchange, const vectors& all,
                unsigned blocks, bool in_place) {
  const auto values = run<T>(comm, with, exchange, blocks, all, in_place, sum{},
                             [](int rank, int k, std::uint64_t i) { return element<T>(rank, i, k); });
  require_output(values, all, [&](int k, std::uint64_t i) {
    T total = 0;
    for (int r = 0; r < comm.size(); ++r) total = static_cast<T>(total + element<T>(r, i, k));
    return total;
  });
}

using collective::rail_exchange;

}  // namespace

TEST_CASE("an all-reduce round the rails is right for any count, again and again, and touches nothing around") {
  for (const shape& s : {shape{1, 2}, {2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2}, {4, 1}, {5, 2}}) {
    INFO(text(s));
    test::on_ranks(
        s.hosts * s.inside,
        [&](host::communicator& comm) {
          // Slots of 4 packs: the largest vector goes round in many rounds, the others in few, part of one or none.
          job with(comm, {.groups = max_blocks, .chunk_bytes = 64, .slots = 2u + static_cast<unsigned>(s.hosts) % 3},
                   2000);
          const std::uint64_t large = comm.size() <= 4 ? 1501 : 603;
          check_sums<float>(comm, with, rail_exchange::ring, {{1, 0, 65, large, 5, 130}, 6}, 2, s.hosts % 2 == 0);
          check_sums<std::int16_t>(comm, with, rail_exchange::ring, {{700, 7}, 2}, 1, true);
          check_sums<double>(comm, with, rail_exchange::ring, {{0, 257}, 2}, 2, false);
        },
        options_of(s));
  }
}

TEST_CASE("an all-reduce round the rails takes chunks of any size, slots and signals") {
  for (const unsigned slots : {1u, 3u, 8u}) {
    INFO(slots << " slots");
    test::on_ranks(
        3,
        [&](host::communicator& comm) {
          job with(comm, {.groups = max_blocks, .chunk_bytes = 40, .slots = slots}, 1000, 3);
          for (const unsigned blocks : {2u, 1u, 2u})
            check_sums<float>(comm, with, rail_exchange::ring, {{999, 4}, 2}, blocks, false);
        },
        options_of({3, 1}));
  }
}

TEST_CASE("a small all-reduce over hosts is right for any count, again and again, in as many trips as slots need") {
  for (const shape& s : {shape{1, 2}, {2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2}, {4, 1}, {4, 2}}) {
    INFO(text(s));
    test::on_ranks(
        s.hosts * s.inside,
        [&](host::communicator& comm) {
          // Slots of 63 packs.
          job with(comm, {.groups = max_blocks, .chunk_bytes = 64, .slots = 2}, 2000);
          check_sums<float>(comm, with, rail_exchange::one_shot, {{1, 0, 65, 252, 5, 130}, 6}, 2, s.hosts % 2 == 0);
          check_sums<float>(comm, with, rail_exchange::one_shot, {{253, 1501, 3}, 3}, 1, s.hosts % 2 != 0);
          check_sums<char>(comm, with, rail_exchange::one_shot, {{700, 7}, 2}, 1, true);
          check_sums<double>(comm, with, rail_exchange::one_shot, {{0, 257}, 2}, 2, false);
        },
        options_of(s));
  }
}

TEST_CASE("sums of small vectors over hosts are the same bits on all ranks, and those of the direct exchange") {
  test::on_ranks(
      6,
      [&](host::communicator& comm) {
        const vectors one{{411}, 1};
        job with(comm, {.groups = max_blocks, .chunk_bytes = 64}, one.counts[0]);
        const auto value = [](int rank, int, std::uint64_t i) { return rough(rank, i); };
        const auto direct = run<float>(comm, with, rail_exchange::direct, 1, one, false, sum{}, value);
        for (const unsigned blocks : {1u, 2u})
          require_output(run<float>(comm, with, rail_exchange::one_shot, blocks, one, true, sum{}, value), one,
                         [&](int, std::uint64_t i) { return direct[one.first(0) + i]; });
      },
      options_of({3, 2}));
}

TEST_CASE("an all-reduce over hosts crosses as it is told, and each way leaves the other as it was") {
  test::on_ranks(
      4,
      [](host::communicator& comm) {
        job with(comm, {.groups = max_blocks, .chunk_bytes = 256}, 1000);
        for (const rail_exchange exchange : {rail_exchange::ring, rail_exchange::one_shot, rail_exchange::direct,
                                             rail_exchange::one_shot, rail_exchange::ring})
          check_sums<float>(comm, with, exchange, {{997, 3}, exchange == rail_exchange::direct ? 1 : 2}, 2, true);
      },
      options_of({2, 2}));
}

TEST_CASE("an all-reduce over hosts prepares each input once, and finishes the result once") {
  for (const rail_exchange exchange : {rail_exchange::direct, rail_exchange::ring, rail_exchange::one_shot}) {
    INFO("exchange " << static_cast<int>(exchange));
    test::on_ranks(
        6,
        [&](host::communicator& comm) {
          job with(comm, {.groups = max_blocks, .chunk_bytes = 256}, 1000);
          const vectors one{{501}, 1};
          const auto total = [&](std::uint64_t i) {
            std::int32_t all = 0;
            for (int r = 0; r < comm.size(); ++r) all += element<std::int32_t>(r, i, 0);
            return all;
          };
          const auto averages =
              run<std::int32_t>(comm, with, exchange, 2, one, false, average{},
                                [](int rank, int, std::uint64_t i) { return element<std::int32_t>(rank, i, 0); });
          require_output(averages, one, [&](int, std::uint64_t i) { return total(i) / comm.size(); });
          const auto scaled = run<float>(comm, with, exchange, 2, one, false, scaled_sum{3.0f},
                                         [](int rank, int, std::uint64_t i) { return element<float>(rank, i, 0); });
          require_output(scaled, one, [&](int, std::uint64_t i) { return 3 * static_cast<float>(total(i)); });
        },
        options_of({3, 2}));
  }
}

TEST_CASE("sums round the rails are the same bits on all ranks, whatever the grid, the chunks and the slots") {
  constexpr shape s{3, 2};
  test::on_ranks(
      s.hosts * s.inside,
      [&](host::communicator& comm) {
        const vectors one{{811}, 1};
        const std::uint64_t piece = collective::packs_of_piece<float>(one.counts[0], comm.size()) * 4;
        // From the team after the one that a piece belongs to, around to that.
        const auto right = [&](int, std::uint64_t i) {
          const int owner = static_cast<int>(i / piece) % s.hosts;
          float total = 0;
          for (int step = 1; step <= s.hosts; ++step)
            for (int member = 0; member < s.inside; ++member)
              total += rough((owner + step) % s.hosts * s.inside + member, i);
          return total;
        };
        for (const collective::rail_rings& asked : {collective::rail_rings{.groups = 2, .chunk_bytes = 16, .slots = 2},
                                                    collective::rail_rings{.groups = 2, .chunk_bytes = 100000}}) {
          job with(comm, asked, one.counts[0]);
          for (const unsigned blocks : {1u, 2u})
            require_output(run<float>(comm, with, rail_exchange::ring, blocks, one, false, sum{},
                                      [](int rank, int, std::uint64_t i) { return rough(rank, i); }),
                           one, right);
        }
      },
      options_of(s));
}

TEST_CASE("an all-reduce round the rails that waits in vain says for whom, and writes no results it lacks") {
  auto impatient = options_of({3, 1});
  impatient.kernel_timeout = std::chrono::milliseconds(40);
  test::on_ranks(
      3,
      [](host::communicator& comm) {
        job with(comm, {.groups = max_blocks, .chunk_bytes = 64, .slots = 4}, 1000);
        constexpr std::uint64_t count = 900;
        const vectors one{{count}, 1};
        const auto in = comm.allocate(one.elements() * sizeof(float));
        const auto out = comm.allocate(one.elements() * sizeof(float));
        check_cuda(cudaMemsetAsync(out.data(), 3, out.bytes(), cudaStreamPerThread), "cudaMemsetAsync");
        test::finish("cudaMemsetAsync");
        comm.barrier();
        if (comm.rank() != 1) {
          for (int call = 0; call < 2; ++call) {  // the second one returns at once
            const test::device_array<status> outcome(threads);
            launch(reduce_all<float, sum>, config(1), with.device_comm.get(), with.contexts,
                   with.memory<float>(rail_exchange::ring), in.pointer<float>(), out.pointer<float>(), one, sum{},
                   outcome.get());
            test::finish("reduce_all");
            for (const status each : outcome.read()) test::require(each != status::success, "the call fails");
          }
          const auto records = with.device_comm.failures();
          test::require(records.size() == 1, "one wait leaves a record");
          const std::string said = host::describe(records[0]);
          // Rank 0 sends to rank 1, which gives no credits; rank 2 gets nothing from it.
          const std::uint32_t first = with.contexts.first_signal(with.rings.signals);
          const std::string right = "rank " + std::to_string(comm.rank()) + ", block 0: GIN signal " +
                                    std::to_string(comm.rank() == 2 ? first : first + 4) +
                                    " of context 0 waited for rank 1 to bring it to at least 1 and last saw 0: timeout";
          test::require(said == right || (comm.rank() == 0 && said.find("waited for rank 2") != std::string::npos),
                        "the record says: " + said);
          std::vector<unsigned char> bytes(out.bytes());
          copy(bytes.data(), static_cast<const unsigned char*>(out.data()), bytes.size());
          for (const unsigned char each : bytes) test::require(each == 3, "no output was written");
        }
        comm.barrier();
      },
      impatient);
}

TEST_CASE(
    "a small all-reduce over hosts that waits in vain says for whom, fails on its whole LSA team and writes nothing") {
  auto impatient = options_of({2, 2});
  impatient.kernel_timeout = std::chrono::milliseconds(100);
  test::on_ranks(
      4,
      [](host::communicator& comm) {
        constexpr std::uint64_t count = 200;
        job with(comm, {.groups = max_blocks, .chunk_bytes = 64, .slots = 2}, 1000);
        constexpr vectors one{{count}, 1};
        const auto in = comm.allocate(one.elements() * sizeof(float));
        const auto out = comm.allocate(one.elements() * sizeof(float));
        check_cuda(cudaMemsetAsync(out.data(), 3, out.bytes(), cudaStreamPerThread), "cudaMemsetAsync");
        test::finish("cudaMemsetAsync");
        // Rank 3 is missing: rank 2 waits for it inside, rank 1 across, and rank 0 for rank 1, which does not go on.
        comm.barrier();
        if (comm.rank() != 3) {
          for (int call = 0; call < 2; ++call) {  // the second one returns at once
            const test::device_array<status> outcome(threads);
            launch(reduce_all<float, sum>, config(1), with.device_comm.get(), with.contexts,
                   with.memory<float>(rail_exchange::one_shot), in.pointer<float>(), out.pointer<float>(), one, sum{},
                   outcome.get());
            test::finish("reduce_all");
            for (const status each : outcome.read()) test::require(each != status::success, "the call fails");
          }
          const auto records = with.device_comm.failures();
          test::require(records.size() == 1, "one wait leaves a record");
          const std::string said = host::describe(records[0]);
          const std::string right =
              comm.rank() == 1 ? "GIN signal " + std::to_string(with.contexts.first_signal(with.slots.signals) + 1) +
                                     " of context 0 waited for rank 3 to bring it to at least 1 and last saw 0: timeout"
              : comm.rank() == 2 ? std::string("LSA barrier 0 waited for rank 3")
                                 : std::string("waited for rank");  // 1 inside, or 2 across
          test::require(said.find(right) != std::string::npos, "the record says: " + said);
          std::vector<unsigned char> bytes(out.bytes());
          copy(bytes.data(), static_cast<const unsigned char*>(out.data()), bytes.size());
          for (const unsigned char each : bytes) test::require(each == 3, "no output was written");
        }
        comm.barrier();
      },
      impatient);
}

TEST_CASE("a ring is taken where what it does at once is more than the trips that it adds") {
  using collective::rail_costs;
  using collective::rail_exchange_for;
  CHECK(rail_exchange_for(1 << 30, 1, 8) == rail_exchange::direct);
  const rail_costs no_chunks{.chunk = 0};
  CHECK(rail_exchange_for(0, 2, 1, no_chunks) == rail_exchange::ring);
  // As measured between two ranks over sockets: chunk by chunk takes longer at every size.
  for (const std::uint64_t bytes : {std::uint64_t{1} << 10, std::uint64_t{1} << 16, std::uint64_t{1} << 26})
    CHECK(rail_exchange_for(bytes, 2, 1) == rail_exchange::direct);
  // Chunks that cost 1 us each are worth it where more than that is done inside meanwhile.
  const rail_costs chunks{.network_bytes_per_us = 10000, .inside_bytes_per_us = 50000, .chunk = 1000};
  CHECK(rail_exchange_for(std::uint64_t{1} << 30, 2, 8, chunks) == rail_exchange::ring);
  CHECK(rail_exchange_for(std::uint64_t{1} << 30, 2, 2, chunks) == rail_exchange::ring);
  CHECK(rail_exchange_for(std::uint64_t{1} << 30, 2, 1, chunks) == rail_exchange::direct);
  CHECK(rail_exchange_for(std::uint64_t{1} << 40, 3, 1) == rail_exchange::direct);
  // 3 hosts of 4: one trip more, of 10 us. Inside takes 2 * 3 / 4 of the bytes at 100 bytes/ns.
  const rail_costs costs{.latency = 10000, .network_bytes_per_us = 10000, .inside_bytes_per_us = 100000, .chunk = 0};
  CHECK(rail_exchange_for(600000, 3, 4, costs) == rail_exchange::direct);
  CHECK(rail_exchange_for(700000, 3, 4, costs) == rail_exchange::ring);
  // A network as fast as the inside is what counts: 2 * 2 / 3 of a quarter of the bytes.
  const rail_costs fast{.latency = 10000, .network_bytes_per_us = 100000, .inside_bytes_per_us = 100000, .chunk = 0};
  CHECK(rail_exchange_for(2900000, 3, 4, fast) == rail_exchange::direct);
  CHECK(rail_exchange_for(3100000, 3, 4, fast) == rail_exchange::ring);
  CHECK(rail_exchange_for(700000, 4, 4, costs) == rail_exchange::direct);
  // One shot, where there are slots, while it takes no more trips than a direct exchange.
  const rail_costs slots{.slot_bytes = 8192};
  CHECK(rail_exchange_for(0, 2, 1, slots) == rail_exchange::one_shot);
  CHECK(rail_exchange_for(8191, 4, 8, slots) == rail_exchange::one_shot);
  CHECK(rail_exchange_for(20000, 2, 1, slots) == rail_exchange::direct);
  CHECK(rail_exchange_for(1000, 1, 8, slots) == rail_exchange::direct);
  // A slot that is full takes no trip more.
  CHECK(rail_exchange_for(16384, 2, 1, slots) == rail_exchange::one_shot);
  CHECK(rail_exchange_for(16385, 2, 1, slots) == rail_exchange::direct);
}

TEST_CASE("rings and slots that no memory holds ask for too much, not for too little") {
  constexpr team lsa{.rank = 0, .size = 1, .first = 0, .stride = 1};
  requirements rings(lsa);
  rings.add(collective::rail_rings{.groups = 2, .chunk_bytes = ~0u, .slots = 1u << 31});
  CHECK(rings.network_bytes() >= std::uint64_t{1} << 60);
  requirements slots(lsa);
  slots.add(collective::network_slots{.members = {0, 1 << 30, 0, 1}, .groups = ~0u, .slot_bytes = ~0u});
  CHECK(slots.network_bytes() >= std::uint64_t{1} << 60);
}

namespace {

/// Rounds in which each block tells the next rank a number by a signal of the kernel's own, meets all ranks, reduces
/// one vector by ring and another one by slots. The first one is of number `first`.
__global__ void use_all(device_comm comm, gin::context_handle contexts, collective::rail_ring_handle rings,
                        collective::network_slot_handle slots, sym_ptr<std::uint64_t> told, sym_ptr<float> large,
                        std::uint64_t large_count, sym_ptr<float> small, std::uint64_t small_count, int rounds,
                        std::uint64_t first, status* outcome, unsigned* wrong) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
  auto net = barrier.context(block{});
  const auto mine = told + static_cast<std::int64_t>(blockIdx.x);
  const auto number_of = [&](int rank, std::uint64_t round) { return static_cast<std::uint64_t>(rank) * 1000 + round; };
  for (std::uint64_t round = first; round < first + static_cast<std::uint64_t>(rounds); ++round) {
    net.put_value((comm.rank + 1) % comm.size, mine, number_of(comm.rank, round), gin::signal_add{blockIdx.x});
    net.wait_signal(blockIdx.x, round + 1);
    if (threadIdx.x == 0 && *mine.local() != number_of((comm.rank + comm.size - 1) % comm.size, round))
      wrong[blockIdx.x] += 1;
    barrier.sync(round % 2 == 0 ? gin::fence_level::none : gin::fence_level::put_and_get);
    collective::all_reduce_hierarchical_ring<float>(barrier, large, large, rings, large_count, average{});
    collective::all_reduce_hierarchical_one_shot<float>(barrier, small, small, slots, small_count, average{});
  }
  outcome[blockIdx.x * threads + threadIdx.x] = barrier.agree();
}

}  // namespace

TEST_CASE("rings, slots, barriers and signals of the kernel's own share contexts, each with signals of its own") {
  for (const shape& s : {shape{3, 1}, {2, 2}}) {
    INFO(text(s));
    test::on_ranks(
        s.hosts * s.inside,
        [](host::communicator& comm) {
          const std::uint64_t counts[] = {301, 77};
          job with(comm, {.groups = max_blocks, .chunk_bytes = 64, .slots = 3}, 2000, max_blocks);
          const auto told = comm.allocate(max_blocks * sizeof(std::uint64_t));
          const auto large = comm.allocate(counts[0] * sizeof(float));
          const auto small = comm.allocate(counts[1] * sizeof(float));
          const test::device_array<status> outcome(max_blocks * threads);
          const test::device_array<unsigned> wrong(max_blocks);
          for (int call = 0; call < 3; ++call) {
            std::vector<float> values[2];
            for (int k = 0; k < 2; ++k) {
              for (std::uint64_t i = 0; i < counts[k]; ++i)
                values[k].push_back(static_cast<float>(comm.size()) * element<float>(comm.rank(), i, call + k));
              copy(static_cast<float*>((k == 0 ? large : small).data()), values[k].data(), values[k].size());
            }
            comm.barrier();
            launch(use_all, config(max_blocks), with.device_comm.get(), with.contexts, with.rings, with.slots,
                   told.pointer<std::uint64_t>(), large.pointer<float>(), counts[0], small.pointer<float>(), counts[1],
                   5, static_cast<std::uint64_t>(5 * call), outcome.get(), wrong.get());
            test::finish("use_all");
            with.device_comm.check();
            for (const status each : outcome.read()) test::require(each == status::success, to_string(each));
            for (const unsigned each : wrong.read()) test::require(each == 0, "numbers of the previous rank are right");
            for (int k = 0; k < 2; ++k) {
              copy(values[k].data(), static_cast<const float*>((k == 0 ? large : small).data()), values[k].size());
              for (std::uint64_t i = 0; i < counts[k]; ++i) {
                float right = 0;  // the average of the first round, which later ones keep
                for (int r = 0; r < comm.size(); ++r) right += element<float>(r, i, call + k);
                test::require(values[k][i] == right, [&] { return "vector " + std::to_string(k); });
              }
            }
          }
          comm.barrier();
        },
        options_of(s));
  }
}

#if defined(DEVCOMM_SIMULATOR)

#  include <devcomm/simulator/simulator.hpp>

namespace {

__global__ void reduce_small(device_comm comm, gin::context_handle contexts, collective::network_slot_handle slots,
                             sym_ptr<float> tensor, std::uint64_t count) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
  collective::all_reduce_hierarchical_one_shot<float>(barrier, tensor, tensor, slots, count, sum{});
}

__global__ void reduce_round(device_comm comm, gin::context_handle contexts, collective::rail_ring_handle rings,
                             sym_ptr<float> tensor, std::uint64_t count) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
  collective::all_reduce_hierarchical_ring<float>(barrier, tensor, tensor, rings, count, sum{});
}

/// Changes a signal of this rank.
__global__ void change_signal(device_comm comm, gin::context_handle contexts, std::uint32_t signal) {
  gin::context net{block{}, comm, contexts, 0};
  net.signal(comm.rank, gin::signal_add{signal, 100});
  net.wait_signal(signal, 100);
}

__global__ void flush_all(device_comm comm, gin::context_handle contexts) {
  gin::context{block{}, comm, contexts, 0}.flush();
}

}  // namespace

TEST_CASE("slots whose signals are those of others, or of another device communicator, are misuse") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto tensor = comm.allocate(64 * sizeof(float));
        auto needs = comm.requirements().lsa_barriers(1);
        const collective::network_slots asked{.members = comm.rail(), .groups = 1};
        const auto first = needs.add(asked);
        auto second = needs.add(asked);
        second.signals = first.signals;
        const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .barriers = 1});
        const auto device_comm = comm.create_device_comm(needs);
        auto fewer = comm.requirements().lsa_barriers(1);
        fewer.add(gin::buffer<float>{1});
        const auto same = fewer.add(gin::contexts{.world = comm.world(), .signals = 8, .barriers = 1});
        const auto other = comm.create_device_comm(fewer);
        auto none = comm.requirements().lsa_barriers(1);
        none.add(gin::buffer<float>{1});
        const auto without = none.add(gin::contexts{.world = comm.world(), .signals = 3, .barriers = 1});
        const auto lacks = comm.create_device_comm(none);
        const auto reduce = [&](const host::device_communicator& of, const gin::context_handle& over,
                                const collective::network_slot_handle& slots) {
          launch(reduce_small, config(1), of.get(), over, slots, tensor.pointer<float>(), std::uint64_t{64});
          const bool ended_well = cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess;
          return ended_well ? std::string() : simulator::last_failure();
        };
        for (int call = 0; call < 3; ++call)  // so that signals are past what others wait for first
          test::require(reduce(device_comm, contexts, first).empty(), "slots of one's own are right");
        comm.barrier();
        test::require(reduce(device_comm, contexts, second).find("changed by others") != std::string::npos,
                      "it said: " + simulator::last_failure());
        launch(flush_all, config(1), device_comm.get(), contexts);  // before a rank destroys what is put to
        test::finish("flush_all");
        comm.barrier();
        test::require(reduce(other, same, first).find("a handle of another device communicator") != std::string::npos,
                      "it said: " + simulator::last_failure());
        comm.barrier();
        auto of_nobody = first;  // as of requirements that the program made by itself
        of_nobody.owner = 0;
        test::require(reduce(other, same, of_nobody).find("another device communicator") != std::string::npos,
                      "it said: " + simulator::last_failure());
        comm.barrier();
        test::require(reduce(lacks, without, of_nobody).find("added to the same requirements") != std::string::npos,
                      "it said: " + simulator::last_failure());
        comm.barrier();
      },
      options_of({2, 1}));
}

TEST_CASE("rings whose signals are changed by others are misuse") {
  enum class user { another_ring, arrival, credit, none };
  for (const user other : {user::another_ring, user::arrival, user::credit, user::none}) {
    INFO("case " << static_cast<int>(other));
    test::on_ranks(
        2,
        [&](host::communicator& comm) {
          const auto tensor = comm.allocate(512 * sizeof(float));
          auto needs = comm.requirements().lsa_barriers(1);
          const collective::rail_rings asked{.groups = 1, .chunk_bytes = 64, .slots = 4};
          const auto first = needs.add(asked);
          auto second = needs.add(asked);
          const auto contexts =
              needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .barriers = 1});
          const auto device_comm = comm.create_device_comm(needs);
          const auto reduce = [&](const collective::rail_ring_handle& rings) {
            launch(reduce_round, config(1), device_comm.get(), contexts, rings, tensor.pointer<float>(),
                   std::uint64_t{512});
            const bool ended_well = cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess;
            return ended_well ? std::string() : simulator::last_failure();
          };
          for (int call = 0; call < 2; ++call) test::require(reduce(first).empty(), "rings of one's own are right");
          comm.barrier();
          if (other == user::another_ring) {
            second.signals = first.signals;
          } else if (other != user::none) {
            const std::uint32_t signal = contexts.first_signal(second.signals);
            launch(change_signal, config(1), device_comm.get(), contexts,
                   signal + (other == user::credit ? second.slots : 0));
            test::finish("change_signal");
          }
          comm.barrier();
          const std::string said = reduce(second);
          test::require(other == user::none ? said.empty() : said.find("changed by others") != std::string::npos,
                        "it said: " + said);
          launch(flush_all, config(1), device_comm.get(), contexts);  // before a rank destroys what is put to
          test::finish("flush_all");
          comm.barrier();
        },
        options_of({2, 1}));
  }
}

namespace {

__global__ void reduce_over(device_comm comm, gin::context_handle contexts, std::uint32_t context,
                            collective::rail_ring_handle rings, collective::network_slot_handle slots, bool round,
                            sym_ptr<float> tensor) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(context), blockIdx.x};
  if (round) {
    collective::all_reduce_hierarchical_ring<float>(barrier, tensor, tensor, rings, 64, sum{});
  } else {
    collective::all_reduce_hierarchical_one_shot<float>(barrier, tensor, tensor, slots, 64, sum{});
  }
}

}  // namespace

TEST_CASE("rings and slots stay with the context of their first call") {
  for (const bool round : {true, false}) {
    test::on_ranks(
        2,
        [&](host::communicator& comm) {
          const auto tensor = comm.allocate(64 * sizeof(float));
          auto needs = comm.requirements().lsa_barriers(1);
          const auto rings = needs.add(collective::rail_rings{.groups = 1});
          const auto slots = needs.add(collective::network_slots{.members = comm.rail(), .groups = 1});
          const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .barriers = 1});
          const auto device_comm = comm.create_device_comm(needs);
          const auto said = [&](std::uint32_t context) {
            launch(reduce_over, config(1), device_comm.get(), contexts, context, rings, slots, round,
                   tensor.pointer<float>());
            const bool ended_well = cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess;
            return ended_well ? std::string() : simulator::last_failure();
          };
          test::require(said(1).empty() && said(1).empty(), "one context is right");
          comm.barrier();
          const std::string misuse = said(0);
          test::require(misuse.find("stay with the context of their first call") != std::string::npos,
                        "it said: " + misuse);
          comm.barrier();
        },
        options_of({2, 1}));
  }
}

#endif
