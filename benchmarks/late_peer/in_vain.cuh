/// \file in_vain.cuh
/// Threads that wait for LL packets which nobody sends, and what two ranks do meanwhile.
///
/// What is measured is launched first, and begins when all blocks of waits have begun: so it has its place on the GPU.
/// The waits are answered by a kernel behind it in its stream. All loops end by themselves. Waits are hot for the first
/// 200 us and more, see `devcomm::detail::check_wait`; then they sleep between looks.
#pragma once

#include "common/measure.hpp"
#include "late_peer/table.hpp"
#include "perf/algorithm.hpp"
#include "perf/start_line.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace late_peer {

/// Each rank's in a window. Counters are never reset, so a kernel is told what they were.
struct control {
  static constexpr unsigned max_stamps = 256;

  alignas(128) std::uint32_t begun;  ///< blocks that wait, of all launches so far
  alignas(128) std::uint32_t ball;   ///< of ping-pong
  alignas(128) std::uint32_t wrong;  ///< results, and looks that ended without what they were for
  alignas(128) std::uint64_t stamps[max_stamps];
};

/// `begun` of both ranks when all blocks that are to wait do so.
struct begun_counts {
  std::uint32_t of[2];
};

__device__ inline void count_wrong(control* own) {
  devcomm::arch::fetch_add<devcomm::memory_order::relaxed, devcomm::scope::device>(&own->wrong, 1u);
}

/// Looks at the word until it has the value, for a few seconds at most.
__device__ inline bool see(const std::uint32_t* word, std::uint32_t value) {
  constexpr unsigned max_looks = 1 << 22;
  for (unsigned i = 0; i < max_looks; ++i)
    if (devcomm::arch::load<devcomm::memory_order::relaxed, devcomm::scope::system>(word) == value) return true;
  return false;
}

__device__ inline bool see_begun(const devcomm::sym_ptr<control>& shared, const begun_counts& all) {
  return see(&shared.lsa(0)->begun, all.of[0]) && see(&shared.lsa(1)->begun, all.of[1]);
}

inline constexpr unsigned max_waiting_threads = 512;

/// Each thread waits for a packet of its own.
static __global__ void __launch_bounds__(max_waiting_threads)
    wait_in_vain(devcomm::device_comm comm, devcomm::lsa::ll_handle mailboxes, int sender, control* own) {
  devcomm::lsa::ll_session<devcomm::block> session{devcomm::block{}, comm, mailboxes, blockIdx.x};
  session.begin_round();
  if (threadIdx.x == 0)
    devcomm::arch::fetch_add<devcomm::memory_order::relaxed, devcomm::scope::system>(&own->begun, 1u);
  std::uint64_t data[1][1];
  session.receive(sender, sender + 1, threadIdx.x, data);
  if (data[0][0] != threadIdx.x) count_wrong(own);
}

/// Sends those packets.
static __global__ void __launch_bounds__(max_waiting_threads)
    answer(devcomm::device_comm comm, devcomm::lsa::ll_handle mailboxes, int receiver) {
  devcomm::lsa::ll_session<devcomm::block> session{devcomm::block{}, comm, mailboxes, blockIdx.x};
  session.begin_round();
  session.send(receiver, threadIdx.x, threadIdx.x);
}

/// A word goes back and forth between one thread on each rank, by relaxed stores and loads of system scope as devcomm's
/// packets do. The time is kept after every `trips` round trips.
static __global__ void __launch_bounds__(max_waiting_threads)
    ping_pong(devcomm::sym_ptr<control> shared, int self, begun_counts all, std::uint32_t last, unsigned stamps,
              unsigned trips) {
  namespace arch = devcomm::arch;
  constexpr auto relaxed = devcomm::memory_order::relaxed;
  control* own = shared.local();
  std::uint32_t* theirs = &shared.lsa(1 - self)->ball;
  bool alive = see_begun(shared, all);
  std::uint32_t ball = last;
  for (unsigned s = 0; alive && s < stamps; ++s) {
    for (unsigned t = 0; alive && t < trips; ++t) {
      ++ball;
      if (self == 0) arch::store<relaxed, devcomm::scope::system>(theirs, ball);
      alive = see(&own->ball, ball);
      if (self == 1) arch::store<relaxed, devcomm::scope::system>(theirs, ball);
    }
    own->stamps[s] = arch::time_stamp();
  }
  if (!alive) count_wrong(own);
}

__device__ inline devcomm::arch::vec16 stored_pack(std::uint64_t i, std::uint32_t salt) {
  const auto low = static_cast<std::uint32_t>(i);
  return {low, salt, ~low, low ^ salt};
}

/// Stores packs of 16 bytes to the peer; every block keeps when it begins and when its stores are there.
static __global__ void __launch_bounds__(512)
    store_to_peer(devcomm::sym_ptr<control> shared, devcomm::sym_ptr<char> to, int self, begun_counts all,
                  std::uint64_t packs, std::uint32_t salt) {
  namespace arch = devcomm::arch;
  control* own = shared.local();
  if (threadIdx.x == 0 && !see_begun(shared, all)) count_wrong(own);
  devcomm::block{}.sync();
  if (threadIdx.x == 0) own->stamps[2 * blockIdx.x] = arch::time_stamp();
  char* target = to.lsa(1 - self);
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step)
    arch::store16(target + i * 16, stored_pack(i, salt));
  arch::fence<devcomm::memory_order::acq_rel, devcomm::scope::system>();
  devcomm::block{}.sync();
  if (threadIdx.x == 0) own->stamps[2 * blockIdx.x + 1] = arch::time_stamp();
}

/// Counts what did not arrive.
static __global__ void __launch_bounds__(max_waiting_threads)
    check_stored(const char* from, std::uint64_t packs, std::uint32_t salt, control* own) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step) {
    const auto is = devcomm::arch::load16(from + i * 16);
    const auto want = stored_pack(i, salt);
    if (is.x != want.x || is.y != want.y || is.z != want.z || is.w != want.w) count_wrong(own);
  }
}

/// What to measure; a simulated GPU only shows that the benchmark works.
struct in_vain_plan {
  std::vector<unsigned> waiting = {0, 1024, 8192, 32768, 65536, 131072};  // threads of a rank; 0 is first
  unsigned threads = max_waiting_threads;                                 // of a block
  unsigned stamps = 125;                                                  // of ping-pong,
  unsigned trips = 8;  // with so many round trips from one to the next
  perf::launch_shape stores = {32, 512};
  std::uint64_t stored_bytes = 64 << 20;
  int replays = 15;

  static in_vain_plan simulated() {
    in_vain_plan small;
    small.waiting = {0, 64};
    small.threads = 32;
    small.stamps = 3;
    small.trips = 2;
    small.stores = {2, 32};
    small.stored_bytes = 1 << 10;
    small.replays = 1;
    return small;
  }
};

/// Blocks of `kernel` that are resident at once when nothing else is.
template <class Kernel>
unsigned resident_blocks(Kernel* kernel, unsigned threads) {
  int device = 0, multiprocessors = 0, blocks = 0;
  devcomm::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  devcomm::check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
                      "cudaDeviceGetAttribute");
  devcomm::check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0),
                      "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return static_cast<unsigned>(blocks * multiprocessors);
}

/// One rank's measurements beside threads that wait in vain. *Collective*: making it and every call.
class in_vain {
 public:
  explicit in_vain(devcomm::host::communicator& comm)
      : comm_(comm),
        simulated_(!comm.properties().timing.available),
        plan_(simulated_ ? in_vain_plan::simulated() : in_vain_plan{}),
        stored_(comm.allocate(plan_.stored_bytes)),
        control_(comm.allocate(sizeof(control))),
        exchange_(comm),
        start_line_(exchange_),
        device_comm_(comm.create_device_comm(needs())) {
    devcomm::check_cuda(cudaMemset(control_.data(), 0, sizeof(control)), "cudaMemset");
    // Now: a kernel may not be able to be loaded while another one spins.
    load(wait_in_vain), load(answer), load(ping_pong), load(store_to_peer), load(check_stored);
    devcomm::check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  }

  void measure_arrival() {
    const table rows(comm_.rank(), "A. arrival seen by one thread, us one way");
    double alone[2] = {no_value, no_value};
    for (const unsigned threads : waiting(rows)) {
      std::vector<float> hot, all;
      for (int i = 0; i <= plan_.replays; ++i) {
        std::uint32_t last = 0;
        beside_waits(threads, 2, [&](const begun_counts& begun) {
          last = ball_;
          ball_ += plan_.stamps * plan_.trips;
          devcomm::launch(ping_pong, {.stream = watch_.stream()}, control_.pointer<control>(), comm_.rank(), begun,
                          last, plan_.stamps, plan_.trips);
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
      rows.row(std::to_string(threads) + " threads wait, first 150 us", alone[0], found[0]);
      rows.row(std::to_string(threads) + " threads wait, " + std::to_string(plan_.stamps * plan_.trips) + " trips",
               alone[1], found[1]);
      if (threads == 0) std::copy(found, found + 2, alone);
    }
  }

  void measure_stores() {
    for (const int ways : {1, 2}) {
      const table rows(comm_.rank(), ways == 1 ? "B. stores of rank 1 to rank 0, whose threads wait, GB/s"
                                               : "B. stores of both, whose threads wait, GB/s of each");
      double alone = no_value;
      for (const unsigned threads : waiting(rows)) {
        std::vector<float> speeds;
        for (int i = 0; i <= plan_.replays; ++i) {
          const double nanoseconds = exchange_.largest(store_once(threads, ways));
          if (i > 0) speeds.push_back(static_cast<float>(static_cast<double>(plan_.stored_bytes) / nanoseconds));
        }
        const double speed = benchmark::median(speeds);
        rows.row(std::to_string(threads) + " threads wait", alone, speed);
        if (threads == 0) alone = speed;
      }
    }
  }

 private:
  /// Nanoseconds of this rank's stores, or 0 where it stores nothing.
  double store_once(unsigned waiting, int ways) {
    const std::uint64_t packs = plan_.stored_bytes / 16;
    const bool stores = comm_.rank() == 1 || ways == 2;
    ++salt_;
    beside_waits(waiting, ways, [&](const begun_counts& begun) {
      if (stores)
        devcomm::launch(store_to_peer, config(plan_.stores, watch_), control_.pointer<control>(),
                        stored_.pointer<char>(), comm_.rank(), begun, packs, salt_);
    });
    if (comm_.rank() == 0 || ways == 2)
      devcomm::launch(check_stored, config(plan_.stores, watch_), static_cast<const char*>(stored_.data()), packs,
                      salt_, static_cast<control*>(control_.data()));
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
  std::vector<unsigned> waiting(const table& rows) const {
    std::vector<unsigned> fits;
    const unsigned capacity = resident_blocks(wait_in_vain, plan_.threads);
    for (const unsigned threads : plan_.waiting) {
      if (simulated_ || threads / plan_.threads + plan_.stores.blocks <= capacity) {
        fits.push_back(threads);
      } else {
        rows.left_out(std::to_string(threads) + " threads, as no more than " + std::to_string(capacity) +
                      " blocks are resident");
      }
    }
    return fits;
  }

  /// Runs what `start` puts on the stream of `watch_` while `waiting` threads of the first `ranks` ranks wait.
  void beside_waits(unsigned waiting, int ranks, const std::function<void(const begun_counts&)>& start) {
    const unsigned blocks = waiting / plan_.threads;
    const perf::launch_shape shape{blocks, plan_.threads};
    start_line_.slowest(std::chrono::microseconds(0), [&] {
      for (int rank = 0; rank < ranks; ++rank) begun_.of[rank] += blocks;
      start(begun_);
      const int self = comm_.rank();
      if (blocks != 0 && self < ranks)
        devcomm::launch(wait_in_vain, config(shape, second_), device_comm_.get(), in_vain_[self], 1 - self,
                        static_cast<control*>(control_.data()));
      if (blocks != 0 && 1 - self < ranks)
        devcomm::launch(answer, config(shape, watch_), device_comm_.get(), in_vain_[1 - self], 1 - self);
      synchronize();
      return 0;
    });
  }

  /// What the kernels left here, when nothing was wrong on either rank.
  control results() {
    synchronize();
    control seen{};
    devcomm::check_cuda(cudaMemcpy(&seen, control_.data(), sizeof seen, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (exchange_.largest(seen.wrong) != 0) throw std::runtime_error("packets or stores did not arrive as they should");
    return seen;
  }

  void synchronize() const {
    devcomm::check_cuda(cudaDeviceSynchronize(), "the measured kernels");
    device_comm_.check();
  }
  static devcomm::launch_config config(const perf::launch_shape& shape, const benchmark::stopwatch& watch) {
    return {.grid = shape.blocks, .block = shape.threads, .stream = watch.stream()};
  }
  template <class Kernel>
  static void load(Kernel* kernel) {
    cudaFuncAttributes attributes{};
    devcomm::check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  }
  devcomm::requirements needs() {
    devcomm::requirements needs = comm_.requirements();
    for (devcomm::lsa::ll_handle& mailboxes : in_vain_)
      mailboxes =
          needs.add(devcomm::lsa::ll_mailboxes{needs.lsa(), plan_.waiting.back() / plan_.threads, plan_.threads});
    return needs;
  }

  devcomm::host::communicator& comm_;
  bool simulated_;
  in_vain_plan plan_;
  devcomm::host::symmetric_memory stored_;   // where the peer stores
  devcomm::host::symmetric_memory control_;  // a `control`
  perf::exchange exchange_;
  perf::start_line start_line_;
  benchmark::stopwatch watch_;
  benchmark::stopwatch second_;
  devcomm::lsa::ll_handle in_vain_[2]{};  // of waits on rank 0, and on rank 1
  devcomm::host::device_communicator device_comm_;
  begun_counts begun_{};    // as `control::begun` will be
  std::uint32_t ball_ = 0;  // as `control::ball` will be
  std::uint32_t salt_ = 0;
};

}  // namespace late_peer
