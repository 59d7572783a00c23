#include "perf/limits.hpp"

#include "common/measure.hpp"
#include "perf/exchange.hpp"

#include <devcomm/devcomm.cuh>

#include <cstdio>
#include <functional>

namespace perf {
namespace {

using namespace devcomm;

constexpr unsigned threads = 512;

__global__ void empty() {}

/// Each block stores its part of every one of `peers` slices, to the next members in turn.
__global__ void store_to_peers(sym_ptr<float> to, int self, int ranks, int peers, std::uint64_t count) {
  const collective::slice part = collective::slice_of_block(collective::packs_of<float>(count));
  const pack<float> value{};
  for (int p = 1; p <= peers; ++p) {
    float* target = to.lsa((self + p) % ranks) + static_cast<std::uint64_t>(self) * count;
    for (std::uint64_t i = part.begin + threadIdx.x; i < part.end; i += blockDim.x)
      store_pack_streaming(target + i * pack<float>::size, value);
  }
}

/// The same with loads; what is loaded goes nowhere, which the compiler cannot know.
__global__ void load_from_peers(sym_ptr<float> from, float* sink, int self, int ranks, int peers, std::uint64_t count) {
  const collective::slice part = collective::slice_of_block(collective::packs_of<float>(count));
  float total = 0;
  for (int p = 1; p <= peers; ++p) {
    const float* source = from.lsa((self + p) % ranks) + static_cast<std::uint64_t>(self) * count;
    constexpr int unroll = 4;
    for (std::uint64_t i = part.begin + threadIdx.x; i + (unroll - 1) * blockDim.x < part.end;
         i += unroll * blockDim.x) {
      pack<float> values[unroll];
      DEVCOMM_UNROLL
      for (int u = 0; u < unroll; ++u)
        values[u] = load_pack(source + (i + static_cast<unsigned>(u) * blockDim.x) * pack<float>::size);
      DEVCOMM_UNROLL
      for (int u = 0; u < unroll; ++u) total += values[u][0] + values[u][3];
    }
  }
  if (total == 12345.0f) *sink = total;
}

/// A flag goes back and forth between two ranks.
template <memory_order Store, memory_order Load>
__global__ void ping_pong(sym_ptr<std::uint32_t> flags, int self, std::uint32_t first, std::uint32_t rounds) {
  std::uint32_t* theirs = flags.lsa(1 - self);
  const std::uint32_t* mine = flags.local();
  for (std::uint32_t i = first; i < first + rounds; ++i) {
    if (self == 0) devcomm::detail::arch::store<Store, scope::system>(theirs, i);
    while (devcomm::detail::arch::load<Load, scope::system>(mine) != i) {
    }
    if (self == 1) devcomm::detail::arch::store<Store, scope::system>(theirs, i);
  }
}

class limits {
 public:
  explicit limits(devcomm::host::communicator& comm)
      : comm_(comm),
        simulated_(!comm.properties().timing.available),
        bytes_(simulated_ ? 1 << 14 : 64 << 20),
        window_(comm.allocate(bytes_ * static_cast<std::uint64_t>(comm.size()))),
        exchange_(comm) {}

  void run() {
    if (is_first()) std::printf("# limits of %d x %s\n", comm_.size(), comm_.properties().device_name.c_str());
    print("empty kernel in a graph", "us", empty_kernel());
    print("local copy, read and written", "GB/s", local_copy());
    if (comm_.size() < 2) return;
    print("flag one way, relaxed", "us", flag<memory_order::relaxed, memory_order::relaxed>());
    print("flag one way, release and acquire", "us", flag<memory_order::release, memory_order::acquire>());
    print("copy engine to the next GPU", "GB/s", copy_engine());
    for (const int peers : {1, comm_.size() - 1}) {
      for (const unsigned blocks : simulated_ ? std::vector<unsigned>{1} : std::vector<unsigned>{16, 32, 66, 132}) {
        print_blocks("stores", peers, blocks, links(true, peers, blocks));
        print_blocks("loads", peers, blocks, links(false, peers, blocks));
      }
      if (comm_.size() == 2) break;
    }
  }

 private:
  [[nodiscard]] bool is_first() const { return comm_.rank() == 0; }
  void print(const char* what, const char* unit, double value) const {
    if (is_first()) std::printf("%-48s %9.2f %s\n", what, value, unit);
  }
  void print_blocks(const char* what, int peers, unsigned blocks, double value) const {
    if (is_first())
      std::printf("%-6s %d peer%s, all GPUs at once, %3u blocks of %3u  %9.2f GB/s out of each\n", what, peers,
                  peers == 1 ? " " : "s", blocks, threads, value);
  }

  /// Milliseconds of the slowest rank, the median of some.
  double time(const std::function<void(cudaStream_t)>& start) {
    std::vector<float> times;
    for (int i = 0; i < (simulated_ ? 2 : 8); ++i) {
      comm_.barrier();
      const float mine = watch_.time(start);
      const float slowest = exchange_.largest(mine);
      if (i > 0) times.push_back(slowest);
    }
    return benchmark::median(times);
  }

  double empty_kernel() {
    constexpr int launches = 100;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    check_cuda(cudaStreamBeginCapture(watch_.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < launches; ++i) launch(empty, {.grid = 1, .block = 32, .stream = watch_.stream()});
    check_cuda(cudaStreamEndCapture(watch_.stream(), &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    const double milliseconds =
        time([&](cudaStream_t stream) { check_cuda(cudaGraphLaunch(replay, stream), "cudaGraphLaunch"); });
    check_cuda(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return milliseconds * 1e3 / launches;
  }

  double local_copy() {
    auto* data = static_cast<std::byte*>(window_.data());
    const std::uint64_t half = bytes_ * static_cast<std::uint64_t>(comm_.size()) / 2;
    const double milliseconds = time([&](cudaStream_t stream) {
      check_cuda(cudaMemcpyAsync(data + half, data, half, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    });
    return 2.0 * static_cast<double>(half) / milliseconds * 1e-6;
  }

  double copy_engine() {
    const int next = (comm_.rank() + 1) % comm_.size();
    const std::uint64_t place = static_cast<std::uint64_t>(comm_.rank()) * bytes_;
    char* to = window_.window().lsa_pointer(next, place);
    const char* from = static_cast<const char*>(window_.data()) + place;  // which no peer writes
    const double milliseconds = time([&](cudaStream_t stream) {
      check_cuda(cudaMemcpyAsync(to, from, bytes_, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    });
    return static_cast<double>(bytes_) / milliseconds * 1e-6;
  }

  double links(bool stores, int peers, unsigned blocks) {
    const std::uint64_t count = bytes_ / sizeof(float);
    const sym_ptr<float> data = window_.pointer<float>();
    const double milliseconds = time([&](cudaStream_t stream) {
      const launch_config shape{.grid = blocks, .block = simulated_ ? 32 : threads, .stream = stream};
      if (stores) {
        launch(store_to_peers, shape, data, comm_.rank(), comm_.size(), peers, count);
      } else {
        launch(load_from_peers, shape, data, data.local(), comm_.rank(), comm_.size(), peers, count);
      }
    });
    return static_cast<double>(bytes_) * peers / milliseconds * 1e-6;
  }

  template <memory_order Store, memory_order Load>
  double flag() {
    const std::uint32_t rounds = simulated_ ? 10 : 1000;
    check_cuda(cudaMemsetAsync(window_.data(), 0, 64, watch_.stream()), "cudaMemsetAsync");
    check_cuda(cudaStreamSynchronize(watch_.stream()), "cudaMemsetAsync");  // before a peer's first flag
    std::uint32_t next = 1;
    const double milliseconds = time([&](cudaStream_t stream) {
      if (comm_.rank() < 2)
        launch(ping_pong<Store, Load>, {.grid = 1, .block = 1, .stream = stream}, window_.pointer<std::uint32_t>(),
               comm_.rank(), next, rounds);
      next += rounds;
    });
    return milliseconds * 1e3 / (2.0 * rounds);
  }

  devcomm::host::communicator& comm_;
  bool simulated_;
  std::uint64_t bytes_;
  devcomm::host::symmetric_memory window_;
  exchange exchange_;
  benchmark::stopwatch watch_;
};

}  // namespace

void measure_limits(devcomm::host::communicator& comm) { limits(comm).run(); }

}  // namespace perf
