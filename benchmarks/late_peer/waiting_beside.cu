/// What waits cost their neighbours: a table for each question.
///
///     waiting_beside [A] [B] [C] [D] [E] [F]
///
/// A: how long an arrival takes to be seen by one thread while many others of its GPU wait in vain
/// B: how fast a peer's stores arrive in a GPU whose threads wait in vain
/// C: chains of collectives on two streams at once
/// D: a chain behind a kernel that fills the last rank's GPU
/// E: blocks that wait to become resident while others wait for peers
/// F: a rank that is slow before every call
///
/// Each row has what is expected if waits cost nothing. Two ranks in one process, a thread a GPU. Waits in vain are
/// hot for the first 200 us and more, see `devcomm::detail::check_wait`; then they sleep between looks.
#include "common/measure.hpp"
#include "late_peer/chains.cuh"
#include "late_peer/in_vain.cuh"
#include "perf/algorithm.hpp"
#include "perf/lateness.hpp"
#include "perf/start_line.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

using namespace devcomm;
using namespace late_peer;

namespace {

/// What to measure; a simulated GPU only shows that the benchmark works.
struct plan {
  std::vector<unsigned> waiting = {0, 1024, 8192, 32768, 65536, 131072};  // threads of a rank; 0 is first
  unsigned threads_of_wait = most_waiting_threads;
  unsigned stamps = 125;  // of ping-pong,
  unsigned trips = 8;     // with so many round trips from one to the next
  perf::launch_shape stores = {32, 512};
  std::uint64_t stored_bytes = 64 << 20;
  std::uint64_t bytes = 64 << 10;  // of an all-reduce
  perf::launch_shape all_reduce = {64, 64};
  int calls = 200;
  perf::launch_shape compute = {2, 1024};  // blocks of a multiprocessor
  double compute_us = 500;
  unsigned waves = 4;
  unsigned threads_of_wave = 1024;
  int calls_of_waves = 20;
  int late = 50;  // us
  int slow = 5;   // us
  int replays = 15;

  static plan simulated() {
    plan small;
    small.waiting = {0, 64};
    small.threads_of_wait = small.threads_of_wave = 32;
    small.stamps = 3;
    small.trips = 2;
    small.stores = {2, 32};
    small.stored_bytes = small.bytes = 1 << 10;
    small.all_reduce = {1, 32};
    small.calls = small.calls_of_waves = 2;
    small.compute = {1, 32};
    small.compute_us = 0;
    small.replays = 1;
    return small;
  }
};

/// Fills the device and waits for nothing.
__global__ void __launch_bounds__(1024, 2) compute(float* sink, unsigned rounds) {
  float a = static_cast<float>(threadIdx.x), b = a + 1;
  for (unsigned i = 0; i < rounds; ++i) {
    a = a * 1.0001f + b;
    b = b * 0.9999f + a;
  }
  if (a + b == 12345.0f) *sink = a;
}

constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

/// One rank's part of the measurement.
class waiting_beside {
 public:
  explicit waiting_beside(host::communicator& comm)
      : comm_(comm),
        plan_(simulated() ? plan::simulated() : plan{}),
        multiprocessors_(multiprocessors()),
        data_(comm.allocate(3 * plan_.bytes)),
        stored_(comm.allocate(plan_.stored_bytes)),
        control_(comm.allocate(sizeof(control))),
        exchange_(comm),
        start_line_(exchange_),
        urgent_(greatest_priority()),
        waves_(plan_.waves * (simulated() ? 1 : resident(only_barrier<memory_order::acq_rel>, plan_.threads_of_wave))),
        device_comm_(comm.create_device_comm(needs())),
        barriers_comm_(
            comm.create_device_comm(comm.requirements().lsa_barriers(std::max(waves_, plan_.all_reduce.blocks)))) {
    check_cuda(cudaMemset(control_.data(), 0, sizeof(control)), "cudaMemset");
    std::vector<element> input(count());
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_at(i, comm.rank() + 1, 0);
    check_cuda(cudaMemcpy(data_.data(), input.data(), plan_.bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    // Loaded now: a kernel may not be able to be loaded while another one spins.
    if (resident(ping_pong, 1) == 0 || resident(answer, plan_.threads_of_wait) == 0 ||
        resident(store_to_peer, plan_.stores.threads) == 0)
      throw std::runtime_error("a kernel does not fit");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  }

  /// *Collective*; throws where results are wrong.
  void run(const std::string& parts) {
    const auto asked = [&](char part) { return parts.find(part) != std::string::npos; };
    if (asked('A')) measure_arrival();
    if (asked('B')) measure_stores();
    if (asked('C')) measure_two_streams();
    if (asked('D')) measure_compute();
    if (asked('E')) measure_waves();
    if (asked('F')) measure_slow_rank();
  }

 private:
  // A and B.

  void measure_arrival() {
    title("A. arrival seen by one thread, us one way");
    double alone[2] = {no_value, no_value};
    for (const unsigned threads : waiting()) {
      std::vector<float> hot, all;
      for (int i = 0; i <= plan_.replays; ++i) {
        std::uint32_t last = 0;
        beside_waits(threads, 2, [&](const begun_counts& begun) {
          last = ball_;
          ball_ += plan_.stamps * plan_.trips;
          launch(ping_pong, {.stream = watch_.stream()}, control_.pointer<control>(), comm_.rank(), begun, last,
                 plan_.stamps, plan_.trips);
        });
        if (i == 0) continue;  // warm-up
        const control seen = results();
        for (unsigned s = 1; s < plan_.stamps; ++s) {  // the first trips have the ranks' different starts
          const auto one_way =
              static_cast<float>(static_cast<double>(seen.stamps[s] - seen.stamps[s - 1]) * 1e-3 / (2 * plan_.trips));
          all.push_back(one_way);
          if (s == 1 || seen.stamps[s] - seen.stamps[0] < 150000) hot.push_back(one_way);
        }
      }
      const double found[] = {benchmark::median(hot), benchmark::median(all)};
      print(std::to_string(threads) + " threads wait, first 150 us", alone[0], found[0]);
      print(std::to_string(threads) + " threads wait, " + std::to_string(plan_.stamps * plan_.trips) + " trips",
            alone[1], found[1]);
      if (threads == 0) std::copy(found, found + 2, alone);
    }
  }

  void measure_stores() {
    for (const int ways : {1, 2}) {
      title(ways == 1 ? "B. stores of rank 1 to rank 0, which waits, GB/s" : "B. stores both ways, both wait, GB/s");
      double alone = no_value;
      for (const unsigned threads : waiting()) {
        std::vector<float> speeds;
        for (int i = 0; i <= plan_.replays; ++i) {
          const double nanoseconds = exchange_.largest(store_once(threads, ways));
          if (i > 0) speeds.push_back(static_cast<float>(static_cast<double>(plan_.stored_bytes) / nanoseconds));
        }
        const double speed = benchmark::median(speeds);
        print(std::to_string(threads) + " threads wait", alone, speed);
        if (threads == 0) alone = speed;
      }
    }
  }

  /// Nanoseconds of this rank's stores, or 0 where it stores nothing.
  double store_once(unsigned waiting, int ways) {
    const std::uint64_t packs = plan_.stored_bytes / 16;
    const bool stores = comm_.rank() == 1 || ways == 2;
    ++salt_;
    beside_waits(waiting, ways, [&](const begun_counts& begun) {
      if (stores)
        launch(store_to_peer, config(plan_.stores, watch_), control_.pointer<control>(), stored_.pointer<char>(),
               comm_.rank(), begun, packs, salt_);
    });
    if (comm_.rank() == 0 || ways == 2)
      launch(check_stored, config(plan_.stores, watch_), static_cast<const char*>(stored_.data()), packs, salt_,
             static_cast<control*>(control_.data()));
    const control seen = results();
    if (!stores) return 0;
    std::uint64_t begin = seen.stamps[0], end = seen.stamps[1];
    for (unsigned b = 1; b < plan_.stores.blocks; ++b) {
      begin = std::min(begin, seen.stamps[2 * b]);
      end = std::max(end, seen.stamps[2 * b + 1]);
    }
    return static_cast<double>(end - begin);
  }

  /// The numbers of threads that are resident beside what is measured.
  std::vector<unsigned> waiting() const {
    std::vector<unsigned> fits;
    const unsigned room = resident(wait_in_vain, plan_.threads_of_wait);
    for (const unsigned threads : plan_.waiting) {
      if (simulated() || threads / plan_.threads_of_wait + plan_.stores.blocks <= room) {
        fits.push_back(threads);
      } else if (!is_last()) {
        std::printf("  %u threads are left out: no more than %u blocks are resident\n", threads, room);
      }
    }
    return fits;
  }

  /// Runs what `start` puts on the stream of `watch_` while `waiting` threads of the first `ranks` ranks wait.
  void beside_waits(unsigned waiting, int ranks, const std::function<void(const begun_counts&)>& start) {
    const unsigned blocks = waiting / plan_.threads_of_wait;
    const perf::launch_shape shape{blocks, plan_.threads_of_wait};
    start_line_.slowest(std::chrono::microseconds(0), [&] {
      for (int rank = 0; rank < ranks; ++rank) begun_.of[rank] += blocks;
      start(begun_);
      const int self = comm_.rank();
      if (blocks != 0 && self < ranks)
        launch(wait_in_vain, config(shape, second_), device_comm_.get(), in_vain_[self], 1 - self,
               static_cast<control*>(control_.data()));
      if (blocks != 0 && 1 - self < ranks)
        launch(answer, config(shape, watch_), device_comm_.get(), in_vain_[1 - self], 1 - self);
      synchronize();
      return 0;
    });
  }

  /// What the kernels left here, when nothing was wrong on either rank.
  control results() {
    synchronize();
    control seen;
    check_cuda(cudaMemcpy(&seen, control_.data(), sizeof seen, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (exchange_.largest(seen.wrong) != 0) throw std::runtime_error("packets or stores did not arrive as they should");
    return seen;
  }

  // C to F.

  void measure_two_streams() {
    title("C. chains on two streams, us");
    const graph lamport = lamport_chain(watch_), other_chain = direct_chain(second_);
    const double first = print("Lamport alone", no_value, time(watch_, both({&lamport}), {1}));
    const double other = print("direct alone", no_value, time(watch_, both({nullptr, &other_chain}), {2}));
    const double longer = std::max(first, other);
    const auto start = both({&lamport, &other_chain});
    print("both at once, against the longer", longer, time(watch_, start, {1, 2}));
    print("both, " + std::to_string(plan_.late) + " us late", longer + plan_.late,
          time(watch_, start, {1, 2}, plan_.late));
  }

  /// Starts the first on the stream, the second on that of `second_`; the stream waits for that.
  std::function<void(cudaStream_t)> both(std::vector<const graph*> chains) {
    return [this, chains](cudaStream_t stream) {
      if (chains.size() > 1) follow(second_.stream(), stream);
      if (chains[0] != nullptr) chains[0]->start(stream);
      if (chains.size() < 2) return;
      chains[1]->start(second_.stream());
      follow(stream, second_.stream());
    };
  }
  void follow(cudaStream_t behind, cudaStream_t ahead) const {
    check_cuda(cudaEventRecord(fork_.event, ahead), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(behind, fork_.event), "cudaStreamWaitEvent");
  }

  void measure_compute() {
    title("D. a chain behind a kernel that fills the last rank's GPU, us");
    unsigned rounds = 1000;
    const auto fill = [&] {
      const perf::launch_shape shape{plan_.compute.blocks * multiprocessors_, plan_.compute.threads};
      if (is_last()) launch(compute, config(shape, second_), static_cast<float*>(nullptr), rounds);
    };
    const auto only_fill = [&](cudaStream_t) { fill(); };
    const double probe = time(second_, only_fill, {});
    if (plan_.compute_us > 0) rounds = static_cast<unsigned>(rounds * plan_.compute_us / probe);
    const double filled = print("the kernel alone", no_value, time(second_, only_fill, {}));
    for (benchmark::stopwatch* watch : {&watch_, &urgent_}) {
      const std::string name = watch == &urgent_ ? "high priority, " : "";
      const graph chain = lamport_chain(*watch);
      const double alone =
          print(name + "chain alone", no_value, time(*watch, [&](cudaStream_t stream) { chain.start(stream); }, {1}));
      const auto start = [&](cudaStream_t stream) {
        fill();
        chain.start(stream);
      };
      print(name + "chain behind the kernel", alone + filled, time(*watch, start, {1}));
    }
  }

  void measure_waves() {
    title("E. one barrier a block, more blocks than are resident, us");
    double together = no_value;
    for (const unsigned waves : {1u, plan_.waves}) {
      const unsigned blocks = waves_ / plan_.waves * waves;
      const graph chain(
          [&] {
            launch(only_barrier<memory_order::acq_rel>, config({blocks, plan_.threads_of_wave}, watch_),
                   barriers_comm_.get());
          },
          plan_.calls_of_waves, watch_.stream());
      const auto start = [&](cudaStream_t stream) { chain.start(stream); };
      const std::string name = std::to_string(blocks) + " blocks, ";
      together = print(name + "together", together * waves, time(watch_, start, {}));
      print(name + std::to_string(plan_.late) + " us late", together + plan_.late, time(watch_, start, {}, plan_.late));
    }
  }

  void measure_slow_rank() {
    title("F. the last rank slow before every call, us");
    double together = no_value;
    for (const int slow : {-1, 0, plan_.slow}) {  // -1: without the kernel that spins
      const graph chain = lamport_chain(watch_, slow);
      const double found = time(watch_, [&](cudaStream_t stream) { chain.start(stream); }, {1});
      print(slow < 0 ? "together" : std::to_string(slow) + " us slow", together + slow * plan_.calls, found);
      if (slow < 0) together = found;
    }
  }

  /// A graph of one-shot all-reduces into output 1; before each the last rank spins for `slow` us, unless negative.
  graph lamport_chain(const benchmark::stopwatch& watch, int slow = -1) {
    return graph(
        [&, slow] {
          if (slow >= 0 && is_last()) perf::spin(static_cast<std::uint64_t>(slow) * 1000, watch.stream());
          launch(one_shot<lsa::lamport_session<block>>, config(plan_.all_reduce, watch), device_comm_.get(), lamport_,
                 at(0).local(), at(1).local(), count());
        },
        plan_.calls, watch.stream());
  }
  /// The same through the window, between barriers, into output 2.
  graph direct_chain(const benchmark::stopwatch& watch) {
    return graph(
        [&] { launch(direct<element>, config(plan_.all_reduce, watch), barriers_comm_.get(), at(0), at(2), count()); },
        plan_.calls, watch.stream());
  }

  /// Microseconds of the slowest rank for what `start` puts on the stream of `watch`: the median. The last rank starts
  /// `late` us after the other. Checks `outputs` afterwards.
  double time(benchmark::stopwatch& watch, const std::function<void(cudaStream_t)>& start,
              const std::vector<int>& outputs, int late = 0) {
    check_cuda(cudaMemset(at(1).local(), 0, 2 * plan_.bytes), "cudaMemset");
    const std::chrono::microseconds mine(is_last() ? late : 0);
    std::vector<float> times;
    for (int i = 0; i <= plan_.replays; ++i) {
      synchronize();
      const double milliseconds = start_line_.slowest(mine, [&] {
        const float took = watch.time(start);
        synchronize();
        return took;
      });
      if (i > 0) times.push_back(static_cast<float>(milliseconds * 1e3));  // 0: warm-up
    }
    int wrong = 0;
    for (const int output : outputs) {
      std::vector<element> got(count());
      check_cuda(cudaMemcpy(got.data(), at(output).local(), plan_.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      for (std::size_t i = 0; i < got.size(); ++i)
        wrong += __half2float(got[i]) != __half2float(value_at(i, 1, 2)) ? 1 : 0;
    }
    if (exchange_.largest(wrong) != 0) throw std::runtime_error("a chain's sums are wrong");
    return benchmark::median(times);
  }

  // What all of them use.

  [[nodiscard]] bool is_last() const { return comm_.rank() == 1; }
  [[nodiscard]] std::uint64_t count() const { return plan_.bytes / sizeof(element); }
  /// The input, 0, or an output, 1 or 2.
  [[nodiscard]] sym_ptr<element> at(int part) const {
    return data_.pointer<element>() + part * static_cast<std::int64_t>(count());
  }
  /// Element `i` of the sum of the inputs of ranks `first` - 1 and, when not 0, `second` - 1.
  static element value_at(std::size_t i, int first, int second) {
    const int step = static_cast<int>(i % 13);
    return __float2half(static_cast<float>(step + first + (second != 0 ? step + second : 0)));
  }
  static launch_config config(const perf::launch_shape& shape, const benchmark::stopwatch& watch) {
    return {.grid = shape.blocks, .block = shape.threads, .stream = watch.stream()};
  }
  void synchronize() const {
    check_cuda(cudaDeviceSynchronize(), "the measured kernels");
    device_comm_.check();
    barriers_comm_.check();
  }

  void title(const char* text) const {
    if (!is_last()) std::printf("%-56s %10s %10s %10s\n", text, "expected", "measured", "difference");
  }
  double print(const std::string& row, double expected, double measured) const {
    if (is_last()) return measured;
    std::printf("  %-54s ", row.c_str());
    if (std::isnan(expected)) {
      std::printf("%10s %10.2f\n", "", measured);
    } else {
      std::printf("%10.2f %10.2f %+10.2f\n", expected, measured, measured - expected);
    }
    std::fflush(stdout);
    return measured;
  }

  [[nodiscard]] bool simulated() const { return comm_.properties().backend == "simulator"; }
  [[nodiscard]] unsigned multiprocessors() const {
    if (simulated()) return 1;  // to make few blocks
    int device = 0, number = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    return static_cast<unsigned>(number);
  }
  static int greatest_priority() {
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    return greatest;
  }
  /// Blocks of `kernel` that are resident at once when nothing else is.
  template <class Kernel>
  [[nodiscard]] unsigned resident(Kernel* kernel, unsigned threads) const {
    int blocks = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0),
               "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return static_cast<unsigned>(blocks) * multiprocessors_;
  }

  devcomm::requirements needs() {
    const unsigned blocks = plan_.waiting.back() / plan_.threads_of_wait;
    devcomm::requirements needs = comm_.requirements();
    for (ll_handle& channels : in_vain_) channels = needs.add_ll_channels(needs.lsa(), blocks, plan_.threads_of_wait);
    lamport_ = needs.add_channels<lsa::lamport_session<block>>(
        needs.lsa(), plan_.all_reduce.blocks,
        collective::one_shot_room(collective::packs_per_block(plan_.bytes / 16, plan_.all_reduce.blocks)));
    return needs;
  }

  struct event_owner {
    cudaEvent_t event = nullptr;
    event_owner() { check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate"); }
    event_owner(const event_owner&) = delete;
    event_owner& operator=(const event_owner&) = delete;
    ~event_owner() { cudaEventDestroy(event); }
  };

  host::communicator& comm_;
  plan plan_;
  unsigned multiprocessors_;
  host::symmetric_memory data_;     // an input and two outputs
  host::symmetric_memory stored_;   // where the peer stores
  host::symmetric_memory control_;  // a `control`
  perf::exchange exchange_;
  perf::start_line start_line_;
  benchmark::stopwatch watch_;
  benchmark::stopwatch second_;
  benchmark::stopwatch urgent_;
  event_owner fork_;
  unsigned waves_;
  ll_handle in_vain_[2]{};  // of waits on rank 0, and on rank 1
  lamport_handle lamport_{};
  host::device_communicator device_comm_;
  host::device_communicator barriers_comm_;
  begun_counts begun_{};    // as `control::begun` will be
  std::uint32_t ball_ = 0;  // as `control::ball` will be
  std::uint32_t salt_ = 0;
};

/// Whether both ranks have one GPU, where kernels that fill it could not wait for each other. *Collective*.
bool share_gpu(host::communicator& comm) {
  if (comm.properties().backend == "simulator") return false;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::vector<int> devices = perf::exchange(comm).gather(device);
  return devices.front() == devices.back();
}

}  // namespace

int main(int argc, char** argv) {
  std::string parts;
  for (int i = 1; i < argc; ++i) parts += argv[i];
  if (parts.find_first_not_of("ABCDEF") != std::string::npos) {
    std::fprintf(stderr, "usage: %s [A] [B] [C] [D] [E] [F]\n", argv[0]);
    return 2;
  }
  if (host::launched_by_environment()) {
    std::fprintf(stderr, "%s holds all ranks in one process; start it alone\n", argv[0]);
    return 2;
  }
  try {
    bool skipped = false;
    host::run_ranks({.ranks = 2}, [&](host::communicator& comm) {
      if (comm.size() != 2 || share_gpu(comm)) {
        if (comm.rank() == 0) skipped = true;
        return;
      }
      waiting_beside(comm).run(parts.empty() ? "ABCDEF" : parts);
    });
    if (skipped) std::fprintf(stderr, "skipped: this takes two ranks, each with a GPU of its own\n");
    return skipped ? 77 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
