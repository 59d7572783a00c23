// An abort ends the waits of a rank within a millisecond, however many threads wait and whatever else the GPU does.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

__global__ void meet(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
}

template <class Session>
__global__ void receive(device_comm comm, typename Session::handle mailboxes) {
  Session session{block{}, comm, mailboxes, blockIdx.x};
  session.begin_round();
  pack<float> values[2];
  if constexpr (Session::group_multiple == 1) session.template receive_packs<2>(0, 2, threadIdx.x, values);
}

/// Keeps a stream busy until the host stores to `go`.
__global__ void spin(const std::uint32_t* go) {
  while (detail::arch::load<memory_order::relaxed, scope::system>(go) == 0) detail::arch::sleep(1000);
}

bool is_simulated(const host::communicator& comm) { return comm.properties().backend == "simulator"; }

/// What the waiting rank launches, on `stream`.
using launcher = std::function<void(const device_comm&, cudaStream_t stream)>;

struct stream {
  stream() { check_cuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() { cudaStreamDestroy(handle); }
  cudaStream_t handle = nullptr;
};

/// Rank 0 launches what `prepare` returns, which waits for the others in vain, and aborts after `lateness`. Whether the
/// launch ended within a millisecond of the abort; in the simulator, whether it ended.
template <class Prepare>
void check_abort(Prepare prepare, std::chrono::microseconds lateness, const std::function<void(cudaStream_t)>& beside) {
  test::on_ranks(test::ranks_that_meet(2), [&](host::communicator& comm) {
    devcomm::requirements needs = comm.requirements();
    const launcher start = prepare(comm, needs);
    const auto device_comm = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      const stream own;
      const stream captured;
      if (beside) beside(captured.handle);
      start(device_comm.get(), own.handle);
      std::this_thread::sleep_for(lateness);
      const clock_type::time_point begin = clock_type::now();
      comm.abort();
      if (is_simulated(comm)) {
        check_cuda(cudaStreamSynchronize(own.handle), "the waiting launch");
      } else {
        while (cudaStreamQuery(own.handle) == cudaErrorNotReady && clock_type::now() - begin < 10s) {
        }
        const auto took = std::chrono::duration_cast<std::chrono::microseconds>(clock_type::now() - begin);
        std::printf("aborted after %lld us, ended %lld us later\n", static_cast<long long>(lateness.count()),
                    static_cast<long long>(took.count()));
        test::require(took <= 1ms, "the launch ended " + std::to_string(took.count()) + " us after the abort");
      }
      test::require(!device_comm.failures().empty(), "there is no record of the abort");
    }
    comm.barrier();
  });
}

/// So many blocks of `threads` threads as the device holds at once; a few in the simulator.
unsigned full_device(const host::communicator& comm, unsigned threads) {
  if (is_simulated(comm)) return 4;
  int processors = 0;
  int of_each = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, comm.device()), "multiprocessors");
  check_cuda(cudaDeviceGetAttribute(&of_each, cudaDevAttrMaxThreadsPerMultiProcessor, comm.device()), "threads");
  return static_cast<unsigned>(processors) * (static_cast<unsigned>(of_each) / 2) / threads;
}

launcher waiting_barriers(host::communicator& comm, devcomm::requirements& needs) {
  const unsigned blocks = full_device(comm, 64);
  needs.lsa_barriers(blocks);
  return [blocks](const device_comm& device, cudaStream_t on) {
    launch(meet, {.grid = blocks, .block = 64, .stream = on}, device);
  };
}

template <class Session>
launcher waiting_packets(host::communicator& comm, devcomm::requirements& needs) {
  const unsigned threads = is_simulated(comm) ? 32 : 256;
  const unsigned blocks = full_device(comm, threads);
  const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), blocks, threads));
  return [=](const device_comm& device, cudaStream_t on) {
    launch(receive<Session>, {.grid = blocks, .block = threads, .stream = on}, device, mailboxes);
  };
}

}  // namespace

TEST_CASE("an abort ends waits at barriers, short ones and long ones, within a millisecond") {
  for (const auto lateness : {0us, 100us, 1000us, 20000us}) check_abort(waiting_barriers, lateness, nullptr);
}

TEST_CASE("an abort ends a device full of threads that wait for packets within a millisecond") {
  for (const auto lateness : {100us, 20000us}) {
    check_abort(waiting_packets<lsa::ll_session<block>>, lateness, nullptr);
    check_abort(waiting_packets<lsa::lamport_session<block>>, lateness, nullptr);
  }
}

TEST_CASE("an abort ends waits while a graph is captured") {
  check_abort(waiting_barriers, 1000us, [](cudaStream_t captured) {
    check_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  });
}

TEST_CASE("an abort ends waits beside 64 busy streams") {
  std::uint32_t* go = nullptr;
  check_cuda(cudaMallocHost(reinterpret_cast<void**>(&go), sizeof *go), "cudaMallocHost");
  *go = 0;
  constexpr unsigned count = 64;
  std::vector<std::unique_ptr<stream>> busy;
  const auto keep_busy = [&](cudaStream_t) {
    for (unsigned i = 0; i < count; ++i) {
      busy.push_back(std::make_unique<stream>());
      for (int queued = 0; queued < 2; ++queued)
        launch(spin, {.grid = 1, .block = 32, .stream = busy.back()->handle}, static_cast<const std::uint32_t*>(go));
    }
  };
  try {
    check_abort(waiting_barriers, 5000us, keep_busy);
  } catch (...) {
    std::atomic_ref(*go).store(1);
    throw;
  }
  std::atomic_ref(*go).store(1);
  for (const auto& one : busy) check_cuda(cudaStreamSynchronize(one->handle), "spin");
  busy.clear();
  check_cuda(cudaFreeHost(go), "cudaFreeHost");
}
