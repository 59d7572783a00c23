/// What a late peer costs: chains of collectives in which the last rank starts late once, for every kind of wait.
///
///     late_peer [--check]
///
/// Prints the time of the whole chain, a graph's, as the rank sees it that waits. A late peer may cost its lateness and
/// nothing more: the median is held to that of starting together plus the lateness plus 2 %, and 3 us for a single
/// call. With --check the exit status is 1 where one is not held; without it where a chain takes twice as long as it
/// should, as it does when what waits holds up what it waits for. One process, one thread a GPU; `DEVCOMM_RANKS` sets
/// the ranks.
#include "common/captured_graph.hpp"
#include "common/measure.hpp"
#include "late_peer/chains.cuh"
#include "perf/chunk_groups.cuh"
#include "perf/start_line.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

using namespace devcomm;
using namespace late_peer;

namespace {

/// What to measure; a simulated GPU only shows that the benchmark works.
struct plan {
  struct size {
    std::uint64_t bytes;
    perf::launch_shape shape;
  };
  std::vector<size> packets = {{8 << 10, {8, 64}}, {64 << 10, {64, 64}}, {1 << 20, {128, 512}}};
  size direct = {1 << 20, {128, 512}};
  size chunked = {16 << 20, {64, 512}};
  perf::launch_shape barrier = {128, 512};
  std::uint64_t chunk_bytes = 32 << 20;
  std::vector<int> calls = {1, 200};
  std::vector<int> calls_of_chunked = {1, 20};
  std::vector<int> late = {0, 20, 50, 100, 500, 10000};  // microseconds; 0 is first
  int replays = 15;

  static plan simulated() {
    plan small;
    small.packets = {{1 << 10, {1, 32}}};
    small.direct = {1 << 10, {1, 32}};
    small.chunked = {16 << 10, {2, 32}};
    small.barrier = {2, 32};
    small.chunk_bytes = 1 << 15;
    small.calls = small.calls_of_chunked = {1, 2};
    small.late = {0, 20};
    small.replays = 1;
    return small;
  }
};

__global__ void __launch_bounds__(max_threads)
    chunked(device_comm comm, collective::chunk_buffers buffers, std::uint32_t chunk_packs, const element* input,
            element* output, std::uint64_t count, std::uint64_t group_packs, unsigned groups) {
  const perf::chunk_group part(groups);
  lsa::barrier_session barrier{part.group, comm, part.index};
  collective::all_reduce_two_shot_chunked<element>(
      barrier, collective::chunk_scratch::of_group(comm, buffers, chunk_packs, part.index),
      collective::shard_of_length(collective::packs_of<element>(count), group_packs, static_cast<int>(part.index)),
      collective::from_memory<element>{input, count}, collective::to_memory<element>{output, count}, sum{});
}

std::string named(const char* what, std::uint64_t bytes, const perf::launch_shape& shape) {
  // The literal is never first in a sum: GCC 12 then warns of a copy that overlaps (GCC bug 105651).
  std::string size;
  if (bytes >= (1 << 20)) {
    size = std::string(" ") + std::to_string(bytes >> 20) + " MiB";
  } else if (bytes != 0) {
    size = std::string(" ") + std::to_string(bytes >> 10) + " KiB";
  }
  return what + size + ", " + std::to_string(shape.blocks) + " x " + std::to_string(shape.threads);
}

/// One rank's part of the measurement.
class measurement {
 public:
  explicit measurement(host::communicator& comm)
      : comm_(comm),
        plan_(!comm.properties().timing.available ? plan::simulated() : plan{}),
        max_bytes_(std::max({plan_.packets.back().bytes, plan_.direct.bytes, plan_.chunked.bytes})),
        window_(comm.allocate(2 * max_bytes_)),
        exchange_(comm),
        start_line_(exchange_) {
    check_cuda(cudaMemset(window_.data(), 0, 2 * max_bytes_), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  }

  struct verdict {
    bool holds;
    bool collapses;
  };
  /// Whether all times were held, and whether a chain took twice as long as it should. *Collective*.
  verdict run() {
    if (is_first())
      std::printf("%-32s %5s %8s %10s %10s %10s  %s\n", "chain", "calls", "us late", "us median", "us max", "us lost",
                  "held");
    measure_packets<lsa::ll_session<block>>("LL");
    if (const host::capability& lines = comm_.properties().ll128; lines.available) {
      measure_packets<lsa::ll128_session<block>>("LL128");
    } else if (is_first()) {
      std::printf("LL128 is left out: %s\n", lines.reason.c_str());
    }
    measure_packets<lsa::lamport_session<block>>("Lamport");
    measure_barriers();
    measure_chunked();
    return {holds_, collapses_};
  }

 private:
  [[nodiscard]] bool is_first() const { return comm_.rank() == 0; }
  [[nodiscard]] element* input() const { return static_cast<element*>(window_.data()); }
  [[nodiscard]] element* output() const { return input() + max_bytes_ / sizeof(element); }
  [[nodiscard]] launch_config config(const perf::launch_shape& shape) const {
    return {.grid = shape.blocks, .block = shape.threads, .stream = watch_.stream()};
  }

  template <class Session>
  void measure_packets(const char* protocol) {
    unsigned max_blocks = 0;
    std::uint32_t capacity = 0;
    for (const auto& [bytes, shape] : plan_.packets) {
      max_blocks = std::max(max_blocks, shape.blocks);
      capacity =
          std::max(capacity, collective::one_shot_capacity(collective::packs_per_block(bytes / 16, shape.blocks)));
    }
    devcomm::requirements needs = comm_.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(needs.lsa(), max_blocks, capacity));
    const host::device_communicator device_comm = comm_.create_device_comm(needs);
    for (const auto& [bytes, shape] : plan_.packets)
      measure(named(protocol, bytes, shape), device_comm, plan_.calls, [&, bytes = bytes, shape = shape] {
        launch(one_shot<Session>, config(shape), device_comm.get(), mailboxes, input(), output(),
               bytes / sizeof(element));
      });
  }

  void measure_barriers() {
    const unsigned max_blocks = std::max(plan_.direct.shape.blocks, plan_.barrier.blocks);
    const host::device_communicator device_comm =
        comm_.create_device_comm(comm_.requirements().lsa_barriers(max_blocks));
    const sym_ptr<element> in_window = window_.pointer<element>();
    measure(named("direct", plan_.direct.bytes, plan_.direct.shape), device_comm, plan_.calls, [&] {
      launch(direct<element>, config(plan_.direct.shape), device_comm.get(), in_window,
             in_window + static_cast<std::int64_t>(max_bytes_ / sizeof(element)), plan_.direct.bytes / sizeof(element));
    });
    measure(named("barrier", 0, plan_.barrier), device_comm, plan_.calls,
            [&] { launch(only_barrier<memory_order::acq_rel>, config(plan_.barrier), device_comm.get()); });
  }

  void measure_chunked() {
    const auto& [bytes, shape] = plan_.chunked;
    const unsigned groups_of_block = perf::groups_of_block(shape);
    const unsigned groups = shape.blocks * groups_of_block;
    devcomm::requirements needs = comm_.requirements().lsa_barriers(groups);
    const auto buffers = needs.add(collective::chunk_buffer_bytes{plan_.chunk_bytes});
    const host::device_communicator device_comm = comm_.create_device_comm(needs);
    const std::uint64_t count = bytes / sizeof(element);
    measure(named("chunked", bytes, shape), device_comm, plan_.calls_of_chunked, [&, shape = shape] {
      launch(chunked, config(shape), device_comm.get(), buffers, buffers.packs_for(groups, comm_.lsa().size), input(),
             output(), count, collective::packs_per_block(collective::packs_of<element>(count), groups),
             groups_of_block);
    });
  }

  /// Prints a line for every number of calls and every lateness.
  void measure(const std::string& name, const host::device_communicator& device_comm, const std::vector<int>& numbers,
               const std::function<void()>& call) {
    for (const int calls : numbers) {
      const benchmark::captured_graph chain(
          watch_.stream(), [&](cudaStream_t) { call(); }, calls);
      double together = 0;
      for (const int late : plan_.late) {
        const std::vector<float> times = replay(chain, device_comm, late);
        const double median = benchmark::median(times);
        if (late == 0) together = median;
        print(name, calls, late, median, *std::max_element(times.begin(), times.end()), together);
      }
    }
  }

  /// Microseconds of the slowest rank, which waits for the late one.
  std::vector<float> replay(const benchmark::captured_graph& chain, const host::device_communicator& device_comm,
                            int late) {
    const std::chrono::microseconds mine(comm_.rank() == comm_.size() - 1 ? late : 0);
    std::vector<float> times;
    for (int i = 0; i <= plan_.replays; ++i) {
      const double milliseconds = start_line_.slowest(mine, [&] {
        const float took = watch_.time([&](cudaStream_t stream) { chain.start(stream); });
        device_comm.check();
        return took;
      });
      if (i > 0) times.push_back(static_cast<float>(milliseconds * 1e3));  // 0: warm-up
    }
    return times;
  }

  void print(const std::string& name, int calls, int late, double median, double most, double together) {
    const double expected = together + late;
    const bool holds = median <= expected * 1.02 + (calls == 1 ? 3 : 0);
    holds_ = holds_ && holds;
    collapses_ = collapses_ || (comm_.properties().timing.available && calls > 1 && median > 2 * expected);
    if (!is_first()) return;
    std::printf("%-32s %5d %8d %10.1f %10.1f %10.1f  %s\n", name.c_str(), calls, late, median, most, median - expected,
                late == 0 ? ""
                : holds   ? "yes"
                          : "NO");
    std::fflush(stdout);
  }

  host::communicator& comm_;
  plan plan_;
  std::uint64_t max_bytes_;
  host::symmetric_memory window_;
  perf::exchange exchange_;
  perf::start_line start_line_;
  benchmark::stopwatch watch_;
  bool holds_ = true;
  bool collapses_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const bool checks = argc == 2 && std::strcmp(argv[1], "--check") == 0;
  if (argc != 1 && !checks) {
    std::fprintf(stderr, "usage: %s [--check]\n", argv[0]);
    return 2;
  }
  if (host::launched_by_environment()) {
    std::fprintf(stderr, "%s holds all ranks in one process; start it alone\n", argv[0]);
    return 2;
  }
  try {
    measurement::verdict result{true, false};
    int ranks = 2;
    host::run_ranks({}, [&result, &ranks](host::communicator& comm) {
      if (comm.size() == 1) {
        ranks = 1;
        return;
      }
      const measurement::verdict mine = measurement(comm).run();
      if (comm.rank() == 0) result = mine;
    });
    if (ranks == 1) {
      std::fprintf(stderr, "skipped: a late peer takes two ranks; DEVCOMM_RANKS=2 puts them on one GPU\n");
      return 77;
    }
    if (!result.holds) std::printf("a late peer costs more than its lateness\n");
    if (result.collapses) std::printf("a chain collapses when a peer is late\n");
    return result.collapses || (checks && !result.holds) ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
