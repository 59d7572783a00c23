#include "perf/limits.hpp"

#include "common/measure.hpp"
#include "perf/exchange.hpp"

#include <devcomm/devcomm.cuh>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

namespace perf {
namespace {

using namespace devcomm;

constexpr unsigned threads = 512;

__global__ void __launch_bounds__(threads) empty() {}

/// Each block stores its part of every one of `peers` slices, to the next members in turn.
__global__ void __launch_bounds__(threads)
    store_to_peers(sym_ptr<float> to, int self, int ranks, int peers, std::uint64_t count) {
  const collective::slice part = collective::slice_of_block(collective::packs_of<float>(count));
  const pack<float> value{};
  for (int p = 1; p <= peers; ++p) {
    float* target = to.lsa((self + p) % ranks) + static_cast<std::uint64_t>(self) * count;
    for (std::uint64_t i = part.begin + threadIdx.x; i < part.end; i += blockDim.x)
      store_pack_streaming(target + i * pack<float>::size, value);
  }
}

/// The same with loads; what is loaded goes nowhere, which the compiler cannot know.
__global__ void __launch_bounds__(threads)
    load_from_peers(sym_ptr<float> from, float* sink, int self, int ranks, int peers, std::uint64_t count) {
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
__global__ void __launch_bounds__(threads)
    ping_pong(sym_ptr<std::uint32_t> flags, int self, std::uint32_t first, std::uint32_t rounds) {
  std::uint32_t* theirs = flags.lsa(1 - self);
  const std::uint32_t* mine = flags.local();
  for (std::uint32_t i = first; i < first + rounds; ++i) {
    if (self == 0) devcomm::arch::store<Store, scope::system>(theirs, i);
    while (devcomm::arch::load<Load, scope::system>(mine) != i) {
    }
    if (self == 1) devcomm::arch::store<Store, scope::system>(theirs, i);
  }
}

/// Words of host memory between a kernel and a thread of the host, each in lines of its own.
constexpr int to_kernel = 0;
constexpr int to_host = 32;

/// Answers each word of the host's. `latest`, where it is not null, has when a thread last had a turn: then loads take
/// turns as those of contexts do.
__global__ void __launch_bounds__(threads)
    answer_host(std::uint64_t* words, std::uint64_t* latest, std::uint64_t rounds) {
  namespace arch = devcomm::arch;
  const auto load = [&] { return arch::load<memory_order::acquire, scope::system>(words + to_kernel); };
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    devcomm::detail::turns_at_words turns(latest);
    for (std::uint64_t word = 0; word != i;) {
      if (latest == nullptr) {
        word = load();
      } else if (turns.take()) {
        word = turns.in_turn(load);
      }
    }
    arch::store<memory_order::release, scope::system>(words + to_host, i);
  }
}

/// Pinned memory of the host.
class pinned {
 public:
  explicit pinned(std::size_t bytes) {
    check_cuda(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  }
  ~pinned() { cudaFreeHost(data_); }
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

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
    if (!simulated_ && is_first()) steps_of_network();
    comm_.barrier();
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

  /// What each operation of the network passes between kernel and proxy, of rank 0.
  void steps_of_network() {
    print("word of the host to a kernel and back", "us", host_word(false));
    print("the same, polled as contexts do", "us", host_word(true));
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{65536}, std::size_t{262144}, std::size_t{1} << 20}) {
      for (const bool to_device : {false, true}) {
        const std::string what = std::string(to_device ? "copy to" : "copy from") + " the device, " +
                                 std::to_string(bytes) + " B, call to event seen";
        const copy_times times = host_copy(bytes, to_device);
        print(what.c_str(), "us", times.whole);
        if (bytes == 8) print("  of that the calls", "us", times.calls);
      }
    }
  }

  /// Microseconds of the median of some laps of a word, in one kernel.
  double host_word(bool in_turns) {
    using clock = std::chrono::steady_clock;
    constexpr std::uint64_t rounds = 2000;
    const pinned memory(64 * sizeof(std::uint64_t));
    auto* const words = static_cast<std::uint64_t*>(memory.data());
    std::fill(words, words + 64, 0);
    auto* const last = static_cast<std::uint64_t*>(window_.data());
    check_cuda(cudaMemsetAsync(last, 0, sizeof *last, watch_.stream()), "cudaMemsetAsync");
    launch(answer_host, {.grid = 1, .block = 1, .stream = watch_.stream()}, words, in_turns ? last : nullptr, rounds);
    std::vector<float> times;
    const std::atomic_ref<std::uint64_t> asked(words[to_kernel]);
    const std::atomic_ref<std::uint64_t> answered(words[to_host]);
    for (std::uint64_t i = 1; i <= rounds; ++i) {
      const clock::time_point begin = clock::now();
      asked.store(i, std::memory_order_release);
      while (answered.load(std::memory_order_acquire) != i) {
      }
      times.push_back(std::chrono::duration<float, std::micro>(clock::now() - begin).count());
    }
    check_cuda(cudaStreamSynchronize(watch_.stream()), "words between host and kernel");
    return benchmark::median(times);
  }

  /// Microseconds.
  struct copy_times {
    float whole;
    float calls;  ///< until the host may go on
  };
  copy_times host_copy(std::size_t bytes, bool to_device) {
    using clock = std::chrono::steady_clock;
    using microseconds = std::chrono::duration<float, std::micro>;
    const pinned memory(bytes);
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    std::vector<float> whole;
    std::vector<float> calls;
    for (int i = 0; i < 200; ++i) {
      const clock::time_point begin = clock::now();
      check_cuda(to_device
                     ? cudaMemcpyAsync(window_.data(), memory.data(), bytes, cudaMemcpyHostToDevice, watch_.stream())
                     : cudaMemcpyAsync(memory.data(), window_.data(), bytes, cudaMemcpyDeviceToHost, watch_.stream()),
                 "cudaMemcpyAsync");
      check_cuda(cudaEventRecord(event, watch_.stream()), "cudaEventRecord");
      calls.push_back(microseconds(clock::now() - begin).count());
      cudaError_t outcome = cudaErrorNotReady;
      while ((outcome = cudaEventQuery(event)) == cudaErrorNotReady) {
      }
      check_cuda(outcome, "cudaEventQuery");
      whole.push_back(microseconds(clock::now() - begin).count());
    }
    check_cuda(cudaEventDestroy(event), "cudaEventDestroy");
    return {benchmark::median(whole), benchmark::median(calls)};
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
