// Buffers that are collected while a graph is captured and registered afterwards: kernels of the graph find every
// rank's, and what ranks do wrong is named. Processes fork before this one has used CUDA, so they come first.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/captured_buffers.hpp>
#include <devcomm/host/communicator.hpp>

#include "rank_harness.hpp"

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <string>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;

namespace {

constexpr std::uint64_t count = 300;

/// A tensor of an engine: `lead` elements into its allocation.
class tensor {
 public:
  explicit tensor(std::size_t lead = 0) : lead_(lead) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&memory_), (count + lead) * sizeof(float)), "cudaMalloc");
  }
  ~tensor() { cudaFree(memory_); }
  tensor(const tensor&) = delete;
  tensor& operator=(const tensor&) = delete;
  [[nodiscard]] float* data() const { return memory_ + lead_; }

  void write(float value) const {
    const std::vector<float> values(count, value);
    copy(data(), values.data());
  }
  void expect(float value, const std::string& what) const {
    std::vector<float> values(count);
    copy(values.data(), data());
    for (const float seen : values)
      require(seen == value, [&] { return what + ": " + std::to_string(seen) + ", not " + std::to_string(value); });
  }

 private:
  static void copy(void* to, const void* from) {
    check_cuda(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDefault, cudaStreamPerThread), "a copy");
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "a copy");
  }
  float* memory_ = nullptr;
  std::size_t lead_;
};

__global__ void one_shot(device_comm comm, sym_ptr<float> input, float* output) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  collective::all_reduce_one_shot_zero_copy<float>(barrier, input, output, count, sum{});
}
__global__ void two_shot(device_comm comm, sym_ptr<float> input, sym_ptr<float> output) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  collective::all_reduce_two_shot_zero_copy<float>(barrier, input, output, count, sum{});
}

class graph {
 public:
  template <class Calls>
  explicit graph(const Calls& calls) {
    check_cuda(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal), "begin");
    calls(launch_config{.grid = 2, .block = 32, .stream = cudaStreamPerThread});
    cudaGraph_t captured = nullptr;
    check_cuda(cudaStreamEndCapture(cudaStreamPerThread, &captured), "end");
    check_cuda(cudaGraphInstantiate(&replay_, captured, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(captured), "cudaGraphDestroy");
  }
  ~graph() { cudaGraphExecDestroy(replay_); }
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;
  void replay() const {
    check_cuda(cudaGraphLaunch(replay_, cudaStreamPerThread), "cudaGraphLaunch");
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "the replay");
  }

 private:
  cudaGraphExec_t replay_ = nullptr;
};

float sum_of(int ranks, float first) {
  float all = 0;
  for (int r = 0; r < ranks; ++r) all += first + static_cast<float>(r);
  return all;
}

/// Two graphs with calls on tensors at other addresses on each rank, registered one after the other, replayed in turn.
void capture_and_replay(host::communicator& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const tensor a(rank % 3), b(2 * rank), c, d;
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
  host::captured_buffers buffers = comm.collect_buffers(8, "tensors");
  const graph first([&](const launch_config& shape) {
    launch(one_shot, shape, device_comm.get(), buffers.add(a.data(), count), b.data());
    launch(two_shot, shape, device_comm.get(), buffers.add(b.data(), count), buffers.add(c.data(), count));
  });
  require(buffers.size() == 3 && buffers.registered() == 0, "nothing is registered during a capture");
  comm.register_buffers(buffers);
  comm.register_buffers(buffers);  // nothing new
  const graph second([&](const launch_config& shape) {
    launch(two_shot, shape, device_comm.get(), buffers.add(a.data(), count), buffers.add(d.data(), count));
  });
  comm.register_buffers(buffers);
  require(buffers.size() == 5 && buffers.registered() == 5, "what was captured is registered");
  const auto ranks = static_cast<float>(comm.size());
  for (int round = 0; round < 3; ++round) {
    const auto start = static_cast<float>(round);
    a.write(start + static_cast<float>(comm.rank()));
    comm.barrier();
    buffers.check();
    first.replay();
    second.replay();
    device_comm.check();
    const float once = sum_of(comm.size(), start);
    b.expect(once, "one shot");
    c.expect(once * ranks, "two shots on its result");
    d.expect(once, "the second graph");
    comm.barrier();
  }
}

outcomes on_both(bool processes, int ranks, const std::function<void(host::communicator&)>& body) {
  const auto rank = [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    body(comm);
  };
  return processes ? on_processes(ranks, rank) : on_threads(ranks, rank);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const host::error& error) {
    return error.what();
  }
  return "nothing";
}

void expect_text(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, "not in the message: " + part + "; it is: " + text);
}

}  // namespace

TEST_CASE("kernels of a graph reach every rank's own tensors, whose addresses were collected during its capture") {
  const bool processes = GENERATE(true, false);
  const int ranks = GENERATE(2, 3, 1);
  CAPTURE(processes, ranks);
  CHECK(on_both(processes, ranks, capture_and_replay) == all_ok(ranks));
}

TEST_CASE("ranks that captured other calls than the others are named, and nothing is registered") {
  CHECK(on_both(false, 3, [](host::communicator& comm) {
          host::captured_buffers buffers = comm.collect_buffers(4);
          const tensor a;
          static_cast<void>(buffers.add(a.data(), count));
          if (comm.rank() == 2) static_cast<void>(buffers.add(a.data(), count));
          expect_text(error_of([&] { comm.register_buffers(buffers); }),
                      "rank 2 captured 2 buffers and rank 0 1; capture the same calls on every rank");
          require(buffers.registered() == 0, "nothing is registered after an error");
        }) == all_ok(3));
  CHECK(on_both(false, 2, [](host::communicator& comm) {
          host::captured_buffers buffers = comm.collect_buffers(4, "tensors");
          const tensor a;
          static_cast<void>(buffers.add(a.data(), count));
          static_cast<void>(buffers.add(a.data(), comm.rank() == 1 ? count - 1 : count));
          expect_text(error_of([&] { comm.register_buffers(buffers); }),
                      "buffer 1 of captured buffers 'tensors' has 1196 bytes on rank 1 and 1200 on rank 0");
          require(buffers.registered() == 0, "nothing is registered after an error");
        }) == all_ok(2));
  CHECK(on_both(false, 2, [](host::communicator& comm) {
          host::captured_buffers one = comm.collect_buffers(1);
          host::captured_buffers other = comm.collect_buffers(1);
          expect_text(error_of([&] { comm.register_buffers(comm.rank() == 0 ? one : other); }),
                      "rank 1 gives other captured buffers than rank 0");
          expect_text(error_of([&] { static_cast<void>(comm.collect_buffers(comm.rank() == 0 ? 1 : 2)); }),
                      "rank 1 asked for room for 2 buffers and rank 0 for 1");
          expect_text(error_of([&] { static_cast<void>(comm.collect_buffers(0)); }), "room for 0 buffers");
        }) == all_ok(2));
}

TEST_CASE("memory that cannot be registered is named on its rank, and its rank on the others") {
  CHECK(on_both(false, 2, [](host::communicator& comm) {
          host::captured_buffers buffers = comm.collect_buffers(2);
          const tensor a;
          float* pinned = nullptr;
          check_cuda(cudaMallocHost(reinterpret_cast<void**>(&pinned), count * sizeof(float)), "cudaMallocHost");
          static_cast<void>(buffers.add(a.data(), count));
          static_cast<void>(buffers.add(comm.rank() == 1 ? pinned : a.data(), count));
          const std::string error = error_of([&] { comm.register_buffers(buffers); });
          expect_text(error, comm.rank() == 1 ? "buffer 1 of captured buffers: " : "rank 1");
          expect_text(error, "cudaMalloc");
          expect_text(error_of([&] { static_cast<void>(buffers.add(a.data(), count)); }), "all 2 places are taken");
          check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
        }) == all_ok(2));
  CHECK(on_both(false, 2, [](host::communicator& comm) {
          host::captured_buffers buffers = comm.collect_buffers(1);
          const tensor a;
          static_cast<void>(buffers.add(a.data() + 1, count));
          expect_text(error_of([&] { comm.register_buffers(buffers); }), "run past the end of the allocation");
        }) == all_ok(2));
}

TEST_CASE("memory that was freed since, or freed and allocated anew, is found before a replay") {
  CHECK(on_both(false, 2, [](host::communicator& comm) {
          host::captured_buffers buffers = comm.collect_buffers(1);
          void* memory = nullptr;
          check_cuda(cudaMalloc(&memory, 4096), "cudaMalloc");
          static_cast<void>(buffers.add(static_cast<float*>(memory), count));
          comm.register_buffers(buffers);
          buffers.check();
          comm.barrier();
          check_cuda(cudaFree(memory), "cudaFree");
          expect_text(error_of([&] { buffers.check(); }), "has been freed since it was registered");
          std::vector<void*> others(8);
          for (void*& other : others) check_cuda(cudaMalloc(&other, 4096), "cudaMalloc");
          expect_text(error_of([&] { buffers.check(); }), "has been freed since it was registered");
          for (void* other : others) check_cuda(cudaFree(other), "cudaFree");
          comm.barrier();
        }) == all_ok(2));
}

#if defined(DEVCOMM_SIMULATOR) && DEVCOMM_CHECKED
TEST_CASE("a graph that is launched before its buffers are registered says so") {
  CHECK(on_both(false, 2, [](host::communicator& comm) {
          const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
          host::captured_buffers buffers = comm.collect_buffers(2);
          const tensor a, b;
          const graph early([&](const launch_config& shape) {
            launch(one_shot, shape, device_comm.get(), buffers.add(a.data(), count), b.data());
          });
          bool is_refused = false;
          try {
            early.replay();
          } catch (const cuda_error&) {
            is_refused = true;
          }
          require(is_refused, "the launch fails");
          expect_text(devcomm::simulator::last_failure(),
                      "call communicator::register_buffers when the capture has ended");
          comm.barrier();
        }) == all_ok(2));
}
#endif
