// An abort ends the waits of a rank within a millisecond, however many threads wait and whatever else the GPU does.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/prepare.hpp>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

constexpr unsigned max_threads = 512;

/// Tells the host that a launch has ended, as it cannot ask the runtime while a graph is captured.
struct ending {
  std::uint32_t* blocks;  ///< that have ended, in device memory
  std::uint32_t* all;     ///< in host memory: 1 once all have
};

/// The end of a block.
__device__ void end_block(const ending& end) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  const std::uint32_t before = arch::fetch_add<memory_order::acq_rel, scope::device>(end.blocks, 1u);
  if (before + 1 == gridDim.x) arch::store<memory_order::release, scope::system>(end.all, 1u);
}

__global__ void __launch_bounds__(max_threads) meet(device_comm comm, ending end) {
  {
    lsa::barrier_session barrier{block{}, comm, blockIdx.x};
    barrier.sync();
  }
  end_block(end);
}

/// Waits by deadlines that are shorter than the time after which a wait checks for an abort.
__global__ void __launch_bounds__(max_threads) keep_trying(device_comm comm, ending end) {
  {
    lsa::barrier_session barrier{block{}, comm, blockIdx.x};
    while (barrier.sync_for(microseconds(50)) == status::timeout) {
    }
  }
  end_block(end);
}

template <class Session>
__global__ void __launch_bounds__(max_threads)
    receive(device_comm comm, typename Session::handle mailboxes, ending end) {
  {
    Session session{block{}, comm, mailboxes, blockIdx.x};
    const auto produce = [](std::uint64_t) { return pack<float>{}; };
    const auto consume = [](std::uint64_t, const pack<float>&) {};
    collective::all_reduce_one_shot<float>(session, {0, blockDim.x}, produce, consume, sum{});
  }
  end_block(end);
}

/// Keeps a stream busy until the host stores to `go`.
__global__ void __launch_bounds__(max_threads) spin(const std::uint32_t* go) {
  while (arch::load<memory_order::relaxed, scope::system>(go) == 0) arch::sleep(1000);
}

bool is_simulated(const host::communicator& comm) { return !comm.properties().timing.available; }

struct stream {
  stream() { check_cuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() { cudaStreamDestroy(handle); }
  cudaStream_t handle = nullptr;
};

/// A zeroed `T` that host and kernels share.
template <class T>
class pinned {
 public:
  pinned() {
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&data_), sizeof(T)), "cudaMallocHost");
    *data_ = T{};
  }
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
  ~pinned() { cudaFreeHost(data_); }
  [[nodiscard]] T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

/// What the waiting rank launches.
using launcher = std::function<void(const device_comm&, cudaStream_t, ending)>;
/// What the same rank does beside it, from `begin` on for as long as it lives.
class neighbor {
 public:
  neighbor() = default;
  neighbor(const neighbor&) = delete;
  neighbor& operator=(const neighbor&) = delete;
  virtual ~neighbor() = default;
  virtual void begin() = 0;
};
using make_neighbor = std::function<std::unique_ptr<neighbor>()>;

/// Rank 0 launches what `prepare` returns, which waits for the others in vain, and aborts after `lateness`. The launch
/// must end within a millisecond of the abort; in the simulator it must end.
template <class Prepare>
void check_abort(Prepare prepare, std::chrono::microseconds lateness, const make_neighbor& make_beside = {}) {
  test::on_ranks(test::ranks_that_meet(2), [&](host::communicator& comm) {
    devcomm::requirements needs = comm.requirements();
    const launcher start = prepare(comm, needs);
    if (!start) return;
    const auto device_comm = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      const stream own;
      const test::device_array<std::uint32_t> blocks(1);
      const pinned<std::uint32_t> ended;
      std::unique_ptr<neighbor> beside = make_beside ? make_beside() : nullptr;
      start(device_comm.get(), own.handle, {blocks.get(), ended.get()});
      if (beside) beside->begin();
      std::this_thread::sleep_for(lateness);
      const clock_type::time_point begin = clock_type::now();
      comm.abort();
      if (!is_simulated(comm)) {
        while (std::atomic_ref(*ended.get()).load() == 0 && clock_type::now() - begin < 10s) {
        }
        const auto took = std::chrono::duration_cast<std::chrono::microseconds>(clock_type::now() - begin);
        std::printf("aborted after %lld us, ended %lld us later\n", static_cast<long long>(lateness.count()),
                    static_cast<long long>(took.count()));
        test::require(took <= 1ms, "the launch ended " + std::to_string(took.count()) + " us after the abort");
      }
      beside.reset();
      check_cuda(cudaStreamSynchronize(own.handle), "the waiting launch");
      test::require(*ended.get() == 1, "not all blocks have ended");
      test::require(!device_comm.failures().empty(), "there is no record of the abort");
    }
    comm.barrier();
  });
}

/// So many blocks of `threads` threads as fill half of the device; a few in the simulator.
unsigned half_device(const host::communicator& comm, unsigned threads) {
  if (is_simulated(comm)) return 4;
  int processors = 0;
  int of_each = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, comm.device()), "multiprocessors");
  check_cuda(cudaDeviceGetAttribute(&of_each, cudaDevAttrMaxThreadsPerMultiProcessor, comm.device()), "threads");
  return static_cast<unsigned>(processors) * (static_cast<unsigned>(of_each) / 2) / threads;
}

launcher waiting_barriers(host::communicator& comm, devcomm::requirements& needs) {
  const unsigned blocks = half_device(comm, 64);
  needs.lsa_barriers(blocks);
  return [blocks](const device_comm& device, cudaStream_t on, ending end) {
    launch(meet, {.grid = blocks, .block = 64, .stream = on}, device, end);
  };
}

launcher trying_barriers(host::communicator& comm, devcomm::requirements& needs) {
  const unsigned blocks = half_device(comm, 64);
  needs.lsa_barriers(blocks);
  return [blocks](const device_comm& device, cudaStream_t on, ending end) {
    launch(keep_trying, {.grid = blocks, .block = 64, .stream = on}, device, end);
  };
}

/// A full device; nothing where the links between ranks cannot carry the protocol.
template <class Session>
launcher waiting_packets(host::communicator& comm, devcomm::requirements& needs) {
  constexpr bool needs_lines = Session::handle::protocol == packet_protocol::ll128;
  if (needs_lines && !comm.properties().ll128.available) return nullptr;
  const unsigned threads = is_simulated(comm) ? 32 : max_threads;
  const unsigned blocks = 2 * half_device(comm, threads);
  const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), blocks, threads));
  return [=](const device_comm& device, cudaStream_t on, ending end) {
    launch(receive<Session>, {.grid = blocks, .block = threads, .stream = on}, device, mailboxes, end);
  };
}

/// A stream that captures, and keeps all threads from what a capture forbids.
class capture final : public neighbor {
 public:
  void begin() override {
    check_cuda(cudaStreamBeginCapture(captured_.handle, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  }
  ~capture() override {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(captured_.handle, &graph);
    if (ended != cudaSuccess) {
      std::printf("the capture failed: %s\n", cudaGetErrorString(ended));
      std::abort();  // of all that a test can do in a destructor, what no run overlooks
    }
    cudaGraphDestroy(graph);
  }

 private:
  stream captured_;
};

/// Streams that have a running kernel and another one behind it.
class busy_streams final : public neighbor {
 public:
  /// Also launches the kernel once, as its code could not be loaded beside a kernel that waits.
  explicit busy_streams(unsigned count) : streams_(count) {
    go(1);
    start(streams_.front());
    check_cuda(cudaStreamSynchronize(streams_.front().handle), "spin");
    go(0);
  }
  void begin() override {
    for (const stream& each : streams_)
      for (int queued = 0; queued < 2; ++queued) start(each);
  }
  ~busy_streams() override {
    go(1);
    for (const stream& each : streams_) cudaStreamSynchronize(each.handle);
  }

 private:
  void go(std::uint32_t value) { std::atomic_ref(*go_.get()).store(value); }
  void start(const stream& on) {
    launch(spin, {.grid = 1, .block = 32, .stream = on.handle}, static_cast<const std::uint32_t*>(go_.get()));
  }

  pinned<std::uint32_t> go_;
  std::vector<stream> streams_;
};

}  // namespace

TEST_CASE("an abort ends waits at barriers, short ones and long ones, within a millisecond") {
  for (const auto lateness : {0us, 100us, 1000us, 20000us}) check_abort(waiting_barriers, lateness);
}

TEST_CASE("an abort ends waits that time out again and again within a millisecond") {
  for (const auto lateness : {0us, 20000us}) check_abort(trying_barriers, lateness);
}

TEST_CASE("an abort ends a device full of threads that wait for packets within a millisecond") {
  for (const auto lateness : {100us, 20000us}) {
    check_abort(waiting_packets<lsa::ll_session<block>>, lateness);
    check_abort(waiting_packets<lsa::lamport_session<block>>, lateness);
    check_abort(waiting_packets<lsa::ll128_session<block>>, lateness);
  }
}

namespace {

/// A check of a wait that began, by the clock, in a second from now, as after a step back.
__global__ void __launch_bounds__(max_threads) check_from_the_future(device_comm comm, status* outcomes) {
  auto* const home = reinterpret_cast<resource_header*>(comm.resources.local);
  const std::uint64_t future = arch::global_time() + 1000000000;
  const auto progress = detail::check_wait(home, {true, 1000000}, {future, 1, status::success}, -1);
  outcomes[0] = progress.outcome;
  outcomes[1] = progress.start < future ? status::success : status::timeout;
}

}  // namespace

TEST_CASE("a clock that steps back ends no wait") {
  test::on_ranks(1, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements());
    const test::device_array<status> outcomes(2, 0xff);
    launch(check_from_the_future, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, device_comm.get(),
           outcomes.get());
    test::finish("check_from_the_future");
    for (const status one : outcomes.read()) test::require(one == status::success, "the wait is over");
  });
}

namespace {

/// Two checks of a wait for rank 1 that has lasted for long.
__global__ void __launch_bounds__(max_threads) check_twice(device_comm comm, detail::wait_progress* found) {
  auto* const home = reinterpret_cast<resource_header*>(comm.resources.local);
  constexpr detail::deadline over{true, 1};
  found[0] = detail::check_wait(home, over, {2, 1, status::success}, 1);
  found[1] = detail::check_wait(home, over, found[0], 1);
}

}  // namespace

TEST_CASE("the end of a peer leaves a wait for it one more look") {
  test::on_ranks(2, [](host::communicator& comm) {
    auto device_comm = std::make_unique<host::device_communicator>(comm.create_device_comm(comm.requirements()));
    if (comm.rank() == 1) device_comm.reset();
    comm.barrier();
    if (comm.rank() == 0) {
      const test::device_array<detail::wait_progress> found(2);
      launch(check_twice, {.stream = cudaStreamPerThread}, device_comm->get(), found.get());
      test::finish("check_twice");
      const auto seen = found.read();
      test::require(seen[0].outcome == status::success && seen[0].rounds == 1, "the first check ends the wait");
      test::require(seen[1].outcome == status::aborted, "the second check does not");
    }
    comm.barrier();
  });
}

TEST_CASE("an abort ends waits while a graph is captured") {
  check_abort(waiting_barriers, 1000us, [] { return std::make_unique<capture>(); });
}

TEST_CASE("a device communicator that an exception destroys outlives the kernels that use it") {
  test::on_ranks(test::ranks_that_meet(2), [](host::communicator& comm) {
    const stream own;
    const test::device_array<std::uint32_t> blocks(1);
    const pinned<std::uint32_t> ended;
    const auto fail = [&] {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(4));
      comm.barrier();
      if (comm.rank() != 0) return;
      launch(meet, {.grid = 4, .block = 64, .stream = own.handle}, device_comm.get(),
             ending{blocks.get(), ended.get()});
      throw std::runtime_error("on purpose");
    };
    bool failed = false;
    try {
      fail();
    } catch (const std::runtime_error&) {
      failed = true;
    }
    const bool over = std::atomic_ref(*ended.get()).load() == 1;
    check_cuda(cudaStreamSynchronize(own.handle), "the waiting launch");
    test::require(failed == (comm.rank() == 0), "rank 0 throws");
    test::require(!failed || over, "a kernel still runs with what was freed");
    comm.barrier();
  });
}

TEST_CASE("an abort ends waits beside 64 busy streams") {
  check_abort(waiting_barriers, 5000us, [] { return std::make_unique<busy_streams>(64u); });
}

#if !defined(DEVCOMM_SIMULATOR)  // which reports the deadlock that the abort ends on GPUs

TEST_CASE("an exception beside memory of cudaMalloc and a kernel that waits for peers ends all ranks") {
  const clock_type::time_point begin = clock_type::now();
  std::string text;
  try {
    host::run_ranks({.ranks = test::ranks_that_meet(2)}, [](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(4));
      struct plain_memory {
        plain_memory() { check_cuda(cudaMalloc(&data, 256), "cudaMalloc"); }
        plain_memory(const plain_memory&) = delete;
        plain_memory& operator=(const plain_memory&) = delete;
        ~plain_memory() { cudaFree(data); }  // waits for the kernels of the device
        void* data = nullptr;
      };
      const plain_memory counters;
      check_cuda(cudaMemset(counters.data, 0, 256), "cudaMemset");
      const pinned<std::uint32_t> ended;
      host::prepare(comm, meet);
      comm.barrier();
      if (comm.rank() == 0) {
        const plain_memory more;
        launch(meet, {.grid = 4, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(),
               ending{static_cast<std::uint32_t*>(counters.data), ended.get()});
        throw std::runtime_error("on purpose");
      }
      comm.barrier();
    });
  } catch (const std::exception& error) {
    text = error.what();
  }
  CHECK(text == "run_ranks: rank 0 failed: on purpose");
  CHECK(clock_type::now() - begin < 60s);
}

#endif
