/// What waits cost their neighbors: a table for each question.
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
/// Each row has what is expected if waits cost nothing. Two ranks in one process, a thread a GPU.
#include "common/captured_graph.hpp"
#include "common/measure.hpp"
#include "late_peer/chains.cuh"
#include "late_peer/in_vain.cuh"
#include "late_peer/table.hpp"
#include "perf/algorithm.hpp"
#include "perf/lateness.hpp"
#include "perf/start_line.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace devcomm;
using namespace late_peer;
using benchmark::captured_graph;

namespace {

/// What to measure; a simulated GPU only shows that the benchmark works.
struct plan {
  std::uint64_t bytes = 64 << 10;  // of an all-reduce
  perf::launch_shape all_reduce = {64, 64};
  int calls = 200;
  unsigned threads_of_compute = 1024;
  double compute_us = 500;
  unsigned waves = 4;
  unsigned threads_of_wave = 1024;
  int calls_of_waves = 20;
  int late = 50;  // us
  int slow = 5;   // us
  int replays = 15;

  static plan simulated() {
    plan small;
    small.bytes = 1 << 10;
    small.all_reduce = {1, 32};
    small.threads_of_wave = 32;
    small.calls = small.calls_of_waves = 2;
    small.threads_of_compute = 32;
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

/// One rank's measurements of chains. *Collective*: making it and every call; they throw where results are wrong.
class chains_beside {
 public:
  explicit chains_beside(host::communicator& comm)
      : comm_(comm),
        plan_(simulated() ? plan::simulated() : plan{}),
        data_(comm.allocate(3 * plan_.bytes)),
        exchange_(comm),
        start_line_(exchange_),
        urgent_(greatest_priority()),
        waves_(plan_.waves *
               (simulated() ? 1 : resident_blocks(only_barrier<memory_order::acq_rel>, plan_.threads_of_wave))),
        device_comm_(comm.create_device_comm(needs())),
        barriers_comm_(
            comm.create_device_comm(comm.requirements().lsa_barriers(std::max(waves_, plan_.all_reduce.blocks)))) {
    std::vector<element> input(count());
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_at(i, comm.rank() + 1, 0);
    check_cuda(cudaMemcpy(data_.data(), input.data(), plan_.bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaDeviceSynchronize(), "cudaMemcpy");
  }

  void measure_two_streams() {
    const table rows(comm_.rank(), "C. chains on two streams, us");
    const captured_graph lamport = lamport_chain(watch_), other_chain = direct_chain(second_);
    const double first = rows.row("Lamport alone", no_value, time(watch_, both(&lamport, nullptr), {1}) - head_start);
    const double other =
        rows.row("direct alone", no_value, time(watch_, both(nullptr, &other_chain), {2}) - head_start);
    const double longer = std::max(first, other);
    const auto start = both(&lamport, &other_chain);
    rows.row("both at once, against the longer", longer, time(watch_, start, {1, 2}) - head_start);
    rows.row("both, " + std::to_string(plan_.late) + " us late", longer + plan_.late,
             time(watch_, start, {1, 2}, plan_.late) - head_start);
  }

  void measure_compute() {
    const table rows(comm_.rank(), "D. a chain behind a kernel that fills the last rank's GPU, us");
    unsigned rounds = simulated() ? 10 : 20000;
    const auto fill = [&] {
      const perf::launch_shape shape{simulated() ? 2 : resident_blocks(compute, plan_.threads_of_compute),
                                     plan_.threads_of_compute};
      if (is_last()) launch(compute, config(shape, second_), static_cast<float*>(nullptr), rounds);
    };
    const auto only_fill = [&](cudaStream_t) { fill(); };
    const double probe = time(second_, only_fill, {});
    if (plan_.compute_us > 0) rounds = static_cast<unsigned>(rounds * plan_.compute_us / probe);
    const double filled = rows.row("the kernel alone", no_value, time(second_, only_fill, {}));
    for (benchmark::stopwatch* watch : {&watch_, &urgent_}) {
      const std::string name = watch == &urgent_ ? "high priority, " : "";
      const captured_graph chain = lamport_chain(*watch);
      const double alone = rows.row(name + "chain alone", no_value,
                                    time(*watch, [&](cudaStream_t stream) { chain.start(stream); }, {1}));
      const auto start = [&](cudaStream_t stream) {
        fill();
        chain.start(stream);
      };
      rows.row(name + "chain behind the kernel", alone + filled, time(*watch, start, {1}));
    }
  }

  void measure_waves() {
    const table rows(comm_.rank(), "E. one barrier a block, more blocks than are resident, us");
    double together = no_value;
    for (const unsigned waves : {1u, plan_.waves}) {
      const unsigned blocks = waves_ / plan_.waves * waves;
      const captured_graph chain(
          watch_.stream(),
          [&](cudaStream_t) {
            launch(only_barrier<memory_order::acq_rel>, config({blocks, plan_.threads_of_wave}, watch_),
                   barriers_comm_.get());
          },
          plan_.calls_of_waves);
      const auto start = [&](cudaStream_t stream) { chain.start(stream); };
      const std::string name = std::to_string(blocks) + " blocks, ";
      together = rows.row(name + "together", together * waves, time(watch_, start, {}));
      rows.row(name + std::to_string(plan_.late) + " us late", together + plan_.late,
               time(watch_, start, {}, plan_.late));
    }
  }

  void measure_slow_rank() {
    const table rows(comm_.rank(), "F. the last rank slow before every call, us");
    double together = no_value;
    for (const int slow : {-1, 0, plan_.slow}) {  // -1: without the kernel that spins
      const captured_graph chain = lamport_chain(watch_, slow);
      const double found = time(watch_, [&](cudaStream_t stream) { chain.start(stream); }, {1});
      rows.row(slow < 0 ? "together" : std::to_string(slow) + " us slow", together + slow * plan_.calls, found);
      if (slow < 0) together = found;
    }
  }

 private:
  /// Microseconds before two chains, in which the host launches both.
  static constexpr int head_start = 50;

  /// Starts `here` on the stream and `there` on that of `second_`, for which the stream waits; null for none.
  std::function<void(cudaStream_t)> both(const captured_graph* here, const captured_graph* there) {
    return [this, here, there](cudaStream_t stream) {
      perf::spin(head_start * 1000, stream);
      if (there != nullptr) follow(second_.stream(), stream);
      if (here != nullptr) here->start(stream);
      if (there == nullptr) return;
      there->start(second_.stream());
      follow(stream, second_.stream());
    };
  }
  void follow(cudaStream_t behind, cudaStream_t ahead) const {
    check_cuda(cudaEventRecord(fork_.event, ahead), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(behind, fork_.event), "cudaStreamWaitEvent");
  }

  /// A graph of one-shot all-reduces into output 1; before each the last rank spins for `slow` us, unless negative.
  captured_graph lamport_chain(const benchmark::stopwatch& watch, int slow = -1) {
    return captured_graph(
        watch.stream(),
        [&, slow](cudaStream_t stream) {
          if (slow >= 0 && is_last()) perf::spin(static_cast<std::uint64_t>(slow) * 1000, stream);
          launch(one_shot<lsa::lamport_session<block>>, config(plan_.all_reduce, watch), device_comm_.get(), lamport_,
                 at(0).local(), at(1).local(), count());
        },
        plan_.calls);
  }
  /// The same through the window, between barriers, into output 2.
  captured_graph direct_chain(const benchmark::stopwatch& watch) {
    return captured_graph(
        watch.stream(),
        [&](cudaStream_t) {
          launch(direct<element>, config(plan_.all_reduce, watch), barriers_comm_.get(), at(0), at(2), count());
        },
        plan_.calls);
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

  [[nodiscard]] bool simulated() const { return !comm_.properties().timing.available; }
  static int greatest_priority() {
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    return greatest;
  }
  devcomm::requirements needs() {
    devcomm::requirements needs = comm_.requirements();
    lamport_ = needs.add(lsa::mailboxes_for<lsa::lamport_session<block>>(
        needs.lsa(), plan_.all_reduce.blocks,
        collective::one_shot_capacity(collective::packs_per_block(plan_.bytes / 16, plan_.all_reduce.blocks))));
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
  host::symmetric_memory data_;  // an input and two outputs
  perf::exchange exchange_;
  perf::start_line start_line_;
  benchmark::stopwatch watch_;
  benchmark::stopwatch second_;
  benchmark::stopwatch urgent_;
  event_owner fork_;
  unsigned waves_;
  lsa::lamport_handle lamport_{};
  host::device_communicator device_comm_;
  host::device_communicator barriers_comm_;
};

/// Whether both ranks have one GPU, where kernels that fill it could not wait for each other. *Collective*.
bool share_gpu(host::communicator& comm) {
  if (!comm.properties().timing.available) return false;
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
      const auto asked = [&](const char* letters) {
        return parts.empty() || parts.find_first_of(letters) != std::string::npos;
      };
      if (asked("AB")) {
        in_vain waits(comm);
        if (asked("A")) waits.measure_arrival();
        if (asked("B")) waits.measure_stores();
      }
      if (asked("CDEF")) {
        chains_beside chains(comm);
        if (asked("C")) chains.measure_two_streams();
        if (asked("D")) chains.measure_compute();
        if (asked("E")) chains.measure_waves();
        if (asked("F")) chains.measure_slow_rank();
      }
    });
    if (skipped) std::fprintf(stderr, "skipped: this takes two ranks, each with a GPU of its own\n");
    return skipped ? 77 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
