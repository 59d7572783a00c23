/// Reports name lines of the user's, in programs that are not optimized too, and of what the network does where that
/// was posted.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "support.hpp"

#include <atomic>
#include <memory>
#include <thread>

using namespace devcomm;
using simulator_test::contains;

namespace {

constexpr int line_of_atomic = __LINE__ + 2;
__global__ void count_and_reset(unsigned* word) {
  if (threadIdx.x == 0) atomicAdd(word, 1u);
  if (threadIdx.x == 1) *word = 0;
}

constexpr int line_of_store = __LINE__ + 2;
__global__ void store_and_read(unsigned* words, unsigned* out) {
  if (threadIdx.x == 0) arch::store16(words, {1, 2, 3, 4});
  if (threadIdx.x == 1) *out = words[2];
}

constexpr int line_of_put = __LINE__ + 3;
__global__ void put_and_change(device_comm comm, gin::context_handle contexts, sym_ptr<unsigned> data) {
  gin::context net{block{}, comm, contexts, 0};
  net.put((comm.rank + 1) % comm.size, data + 64, data, 64);
  if (threadIdx.x == 40) data.local()[threadIdx.x] = 1;  // before the flush
  net.flush();
}

std::string here(int line) { return "lines_test.cu:" + std::to_string(line); }

}  // namespace

TEST_CASE("atomics and accesses of 16 bytes are of the line that makes them") {
  simulator::set_race_exit_status(0);
  const simulator_test::shared_array<unsigned> words(8);
  REQUIRE(simulator_test::run(count_and_reset, {.block = 2}, words.get()) == cudaSuccess);
  INFO(simulator::last_race());
  CHECK(contains(simulator::last_race(), here(line_of_atomic)));
  CHECK(contains(simulator::last_race(), here(line_of_atomic + 1)));
  REQUIRE(simulator_test::run(store_and_read, {.block = 2}, words.get(), words.get() + 4) == cudaSuccess);
  INFO(simulator::last_race());
  CHECK(contains(simulator::last_race(), here(line_of_store)));
  simulator::clear_races();
}

TEST_CASE("what the network does is named by its operation, peer and line") {
  simulator::set_race_exit_status(0);
  host::run_ranks({.ranks = 2}, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto data = comm.allocate(128 * sizeof(unsigned));
    launch(put_and_change, {.block = 64, .stream = cudaStreamPerThread}, device_comm.get(), contexts,
           data.pointer<unsigned>());
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "put_and_change");
    comm.barrier();
  });
  const std::string said = simulator::last_race();
  INFO(said);
  CHECK(contains(said, " by the network, for operation 0 of context 0, to rank "));
  CHECK(contains(said, "    posted by rank "));
  CHECK(contains(said, here(line_of_put)));
  simulator::clear_races();
}

namespace {

constexpr int line_of_late_store = __LINE__ + 2;
__global__ void store_to_first(device_comm comm, sym_ptr<unsigned> data) {
  if (comm.rank == 1) data.peer(0)[threadIdx.x] = 1;
}

/// Rank 0 frees its window when rank 1's kernel is over, or before it begins.
void free_early(bool knows, bool before) {
  simulator::clear_races();
  simulator::set_race_exit_status(0);
  std::atomic<int> step{0};
  const auto wait_for = [&](int wanted) {
    while (step.load(std::memory_order_relaxed) < wanted) std::this_thread::yield();
  };
  host::run_ranks({.ranks = 2}, [&](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements());
    auto memory = std::make_unique<host::symmetric_memory>(comm.allocate(4096, "tensor"));
    if (comm.rank() == 1) {
      if (before) wait_for(1);
      launch(store_to_first, {.block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
             memory->pointer<unsigned>());
      check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "store_to_first");
      step.store(before ? 2 : 1, std::memory_order_relaxed);
    }
    if (knows) comm.barrier();
    if (comm.rank() == 0) {
      if (!before) wait_for(1);
      memory.reset();
      if (before) step.store(1, std::memory_order_relaxed);
      if (before) wait_for(2);  // a lock that this rank gives back earlier could order the kernel behind the end
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("a window that is freed while peers may still use it is reported, and one that they are done with is not") {
  free_early(true, false);
  CHECK(simulator::race_reports() == 0);
  for (const bool before : {false, true}) {
    free_early(false, before);
    INFO(simulator::last_race());
    CHECK(simulator::race_reports() == 1);
    CHECK(contains(simulator::last_race(), "window freed while other ranks still use it"));
    CHECK(contains(simulator::last_race(), "of window 'tensor' of rank 0"));
    CHECK(contains(simulator::last_race(), here(line_of_late_store)));
  }
  simulator::clear_races();
}
