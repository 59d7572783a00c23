/// Time of one LSA barrier: a kernel does many of them, by each kind of group, and NCCL's or that of multimem turn by
/// turn in one run.
///
///     lsa_barrier [--compare nccl|multimem]
///
/// `--compare multimem` makes a multicast object, and fails where there is no multicast.
/// Prints a table and, with DEVCOMM_JSON=FILE, appends a line of JSON for each row. One process, one
/// thread a GPU; `DEVCOMM_RANKS` sets the ranks. Compiled with DEVCOMM_WATCHDOG=1 (benchmark_lsa_barrier_watchdog)
/// or DEVCOMM_TRACE=1 (benchmark_lsa_barrier_trace) it tells what these cost.
#include "common/measure.hpp"
#include "lsa_barrier/nccl_barrier.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cooperative_groups.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr const char* ours_name = DEVCOMM_WATCHDOG ? "watched" : DEVCOMM_TRACE ? "traced" : "devcomm";

/// What to measure; a simulated GPU only shows that the benchmark works.
struct plan {
  std::vector<unsigned> blocks = {1, 16, 32};
  unsigned threads = 512;
  int iterations = 1000;
  int repetitions = 9;
};

template <memory_order Order, class Group>
__device__ void sync_by(const Group& group, const device_comm& comm, int iterations) {
  lsa::barrier_session barrier{group, comm, blockIdx.x};
  for (int i = 0; i < iterations; ++i) barrier.sync(Order);
}
template <memory_order Order>
__global__ void __launch_bounds__(1024) barriers(device_comm comm, int iterations) {
  sync_by<Order>(block{}, comm, iterations);
}
template <memory_order Order>
__global__ void __launch_bounds__(1024) barriers_by_thread_block(device_comm comm, int iterations) {
  sync_by<Order>(cooperative_groups::this_thread_block(), comm, iterations);
}
template <memory_order Order>
__global__ void __launch_bounds__(1024) barriers_by_warp(device_comm comm, int iterations) {
  if (threadIdx.x < 32) sync_by<Order>(warp{}, comm, iterations);
}
/// By the groups of `groups`.
template <memory_order Order>
constexpr std::array kernels{barriers<Order>, barriers_by_thread_block<Order>, barriers_by_warp<Order>};
constexpr std::array groups{ours_name, "cg_block", "warp"};

template <memory_order Order>
__global__ void __launch_bounds__(1024)
    barriers_by_multimem(device_comm comm, multimem::barrier_handle handle, int iterations) {
  multimem::barrier_session barrier{block{}, comm, handle, blockIdx.x};
  for (int i = 0; i < iterations; ++i) barrier.sync(Order);
}

enum class peer { none, nccl, multimem };

struct result {
  std::vector<float> times;  // milliseconds a launch, slowest rank
};

void print(const host::communicator& comm, const plan& shape, const char* implementation, memory_order order,
           unsigned blocks, const result& measured) {
  const char* order_name = order == memory_order::relaxed ? "relaxed" : "acq_rel";
  const double microseconds = benchmark::median(measured.times) * 1e3 / shape.iterations;
  const double best = *std::min_element(measured.times.begin(), measured.times.end()) * 1e3 / shape.iterations;
  std::printf("%-8s %-8s %6d %7u %10.3f %10.3f\n", implementation, order_name, comm.size(), blocks, microseconds, best);
  if (const char* path = std::getenv("DEVCOMM_JSON")) {
    if (std::FILE* file = std::fopen(path, "a")) {
      std::fprintf(file,
                   "{\"op\": \"lsa_barrier\", \"impl\": \"%s\", \"order\": \"%s\", \"ranks\": %d, \"blocks\": %u, "
                   "\"threads\": %u, \"us_median\": %.4f, \"us_min\": %.4f}\n",
                   implementation, order_name, comm.size(), blocks, shape.threads, microseconds, best);
      std::fclose(file);
    }
  }
}

void measure(host::communicator& comm, peer with) {
  const plan shape = !comm.properties().timing.available ? plan{{1, 2}, 32, 20, 2} : plan{};
  const unsigned max_blocks = shape.blocks.back();
  devcomm::requirements needs = comm.requirements().lsa_barriers(max_blocks);
  if (DEVCOMM_TRACE) needs.with(tracing{max_blocks, 256});
  multimem::barrier_handle switched{};
  if (with == peer::multimem) switched = needs.add(multimem::barriers{max_blocks, multimem::policy::required});
  const host::device_communicator device_comm = comm.create_device_comm(needs);
  std::unique_ptr<benchmark::nccl_barrier> nccl;
  if (with == peer::nccl) nccl = benchmark::make_nccl_barrier(comm, static_cast<int>(max_blocks));
  benchmark::stopwatch watch;

  const auto take = [&](result& into, const std::function<void(cudaStream_t)>& launch) {
    into.times.push_back(benchmark::slowest(comm, [&] { return watch.time(launch); }));
  };

  if (comm.rank() == 0)
    std::printf("%-8s %-8s %6s %7s %10s %10s\n", "impl", "order", "ranks", "blocks", "us", "us min");
  for (const memory_order order : {memory_order::acq_rel, memory_order::relaxed}) {
    const auto& by_group =
        order == memory_order::relaxed ? kernels<memory_order::relaxed> : kernels<memory_order::acq_rel>;
    const auto by_multimem = order == memory_order::relaxed ? barriers_by_multimem<memory_order::relaxed>
                                                            : barriers_by_multimem<memory_order::acq_rel>;
    for (const unsigned blocks : shape.blocks) {
      std::array<result, groups.size()> ours;
      result theirs;
      for (int repetition = 0; repetition <= shape.repetitions; ++repetition) {
        for (std::size_t g = 0; g < groups.size(); ++g) {
          take(ours[g], [&](cudaStream_t stream) {
            launch(by_group[g], {.grid = blocks, .block = shape.threads, .stream = stream}, device_comm.get(),
                   shape.iterations);
          });
          device_comm.check();
        }
        if (nccl)
          take(theirs,
               [&](cudaStream_t stream) { nccl->launch(blocks, shape.threads, shape.iterations, order, stream); });
        if (with == peer::multimem)
          take(theirs, [&](cudaStream_t stream) {
            launch(by_multimem, {.grid = blocks, .block = shape.threads, .stream = stream}, device_comm.get(), switched,
                   shape.iterations);
          });
        device_comm.check();
        if (repetition == 0) {  // warm-up
          for (result& each : ours) each.times.clear();
          theirs.times.clear();
        }
      }
      if (comm.rank() == 0) {
        for (std::size_t g = 0; g < groups.size(); ++g) print(comm, shape, groups[g], order, blocks, ours[g]);
        if (with != peer::none) print(comm, shape, with == peer::nccl ? "nccl" : "multimem", order, blocks, theirs);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool compares = argc == 3 && std::strcmp(argv[1], "--compare") == 0;
  peer with = peer::none;
  if (compares && std::strcmp(argv[2], "nccl") == 0) {
    with = peer::nccl;
  } else if (compares && std::strcmp(argv[2], "multimem") == 0) {
    with = peer::multimem;
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: %s [--compare nccl|multimem]\n", argv[0]);
    return 2;
  }
  if (host::launched_by_environment()) {
    std::fprintf(stderr, "%s holds all ranks in one process; start it alone\n", argv[0]);
    return 2;
  }
  try {
    host::run_ranks({}, [with](host::communicator& comm) { measure(comm, with); });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
