/// Time of a one-shot LL all-reduce, bf16, out of place: many launches in one CUDA graph, replayed.
///
///     all_reduce_ll
///
/// Prints microseconds a launch, the median of the replays on the slowest rank, for each size and launch shape,
/// and the best shape of each size; with DEVCOMM_JSON=FILE a line of JSON for that one. One process, one thread
/// a GPU; `DEVCOMM_RANKS` sets the ranks.
#include "common/measure.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

using namespace devcomm;
using element = __nv_bfloat16;

namespace {

__global__ void all_reduce(device_comm comm, ll_handle channels, const element* input, element* output,
                           std::uint64_t count) {
  const collective::from_memory<element> source{input, count};
  const collective::to_memory<element> destination{output, count};
  const collective::slice packs = collective::slice_of_block(collective::packs_of<element>(count));
  lsa::ll_session channel{block{}, comm, channels, blockIdx.x};
  collective::all_reduce_ll<element>(
      channel, packs.size(), [&](std::uint64_t i) { return source(packs.begin + i); },
      [&](std::uint64_t i, const pack<element>& sums) { destination(packs.begin + i, sums); }, sum{});
}

/// What to measure; a simulated GPU only shows that the benchmark works.
struct plan {
  std::vector<std::uint64_t> sizes = {1024, 4096, 16384, 65536, 131072};
  std::vector<unsigned> blocks = {1, 2, 4, 8, 16, 32, 64};
  std::vector<unsigned> threads = {64, 128, 256, 512};
  int launches = 50;
  int replays = 7;
};

class bench {
 public:
  bench(host::communicator& comm, const plan& what) : comm_(comm), plan_(what) {
    const std::uint64_t most = what.sizes.back();
    requirements needs = comm.requirements();
    channels_ = needs.add_ll_channels(comm.lsa(), what.blocks.back(), collective::all_reduce_ll_packets(2048));
    device_comm_ = comm.create_device_comm(needs);
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&input_), most), "cudaMalloc");
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&output_), most), "cudaMalloc");
    check_cuda(cudaMemsetAsync(input_, 0, most, watch_.stream()), "cudaMemsetAsync");
    check_cuda(cudaStreamSynchronize(watch_.stream()), "cudaMemsetAsync");
  }
  bench(const bench&) = delete;
  bench& operator=(const bench&) = delete;
  ~bench() {
    cudaFree(input_);
    cudaFree(output_);
  }

  void run() {
    for (const std::uint64_t bytes : plan_.sizes) {
      float best = 0;
      launch_config best_shape;
      if (comm_.rank() == 0) std::printf("%8llu bytes:", static_cast<unsigned long long>(bytes));
      for (const unsigned blocks : plan_.blocks) {
        for (const unsigned threads : plan_.threads) {
          const std::uint64_t packs = bytes / 16;
          const bool idle = std::uint64_t{blocks} * threads > 2 * packs;
          if (idle && !(blocks == 1 && threads == plan_.threads.front())) continue;
          const launch_config shape{.grid = blocks, .block = threads, .stream = watch_.stream()};
          const float microseconds = measure(shape, bytes);
          if (comm_.rank() == 0) std::printf(" %ux%u=%.2f", blocks, threads, microseconds);
          if (best == 0 || microseconds < best) {
            best = microseconds;
            best_shape = shape;
          }
        }
      }
      if (comm_.rank() == 0) print(bytes, best, best_shape);
    }
  }

 private:
  float measure(const launch_config& shape, std::uint64_t bytes) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    check_cuda(cudaStreamBeginCapture(watch_.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < plan_.launches; ++i)
      launch(all_reduce, shape, device_comm_->get(), channels_, static_cast<const element*>(input_), output_,
             bytes / sizeof(element));
    check_cuda(cudaStreamEndCapture(watch_.stream(), &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    std::vector<float> times;
    for (int r = 0; r <= plan_.replays; ++r) {
      const float milliseconds = benchmark::slowest(comm_, [&] {
        return watch_.time(
            [&](cudaStream_t stream) { check_cuda(cudaGraphLaunch(replay, stream), "cudaGraphLaunch"); });
      });
      if (r > 0) times.push_back(milliseconds * 1000 / static_cast<float>(plan_.launches));  // 0: warm-up
    }
    device_comm_->check();
    check_cuda(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return benchmark::median(times);
  }

  void print(std::uint64_t bytes, float microseconds, const launch_config& shape) const {
    std::printf("\n%8llu bytes: best %.2f us with %u x %u\n", static_cast<unsigned long long>(bytes), microseconds,
                shape.grid.x, shape.block.x);
    const char* path = std::getenv("DEVCOMM_JSON");
    if (path == nullptr) return;
    if (std::FILE* file = std::fopen(path, "a")) {
      std::fprintf(file,
                   "{\"op\": \"all_reduce\", \"impl\": \"devcomm\", \"algo\": \"one_shot\", \"protocol\": \"ll\", "
                   "\"ranks\": %d, \"bytes\": %llu, \"dtype\": \"bf16\", \"in_place\": false, \"blocks\": %u, "
                   "\"threads\": %u, \"us_median\": %.3f}\n",
                   comm_.size(), static_cast<unsigned long long>(bytes), shape.grid.x, shape.block.x, microseconds);
      std::fclose(file);
    }
  }

  host::communicator& comm_;
  plan plan_;
  ll_handle channels_{};
  std::optional<host::device_communicator> device_comm_;
  benchmark::stopwatch watch_;
  element* input_ = nullptr;
  element* output_ = nullptr;
};

}  // namespace

int main() {
  try {
    host::run_ranks({}, [](host::communicator& comm) {
      plan what;
      if (comm.properties().backend == "simulator") what = {{1024}, {1, 2}, {32}, 2, 1};
      if (comm.rank() == 0) std::printf("%d ranks, microseconds for blocks x threads\n", comm.size());
      bench(comm, what).run();
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
