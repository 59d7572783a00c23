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

extern __shared__ int of_launch[];

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

namespace {

constexpr int line_of_accesses = __LINE__ + 3;
template <class T>
__global__ void add_one_behind(T* data, unsigned count) {
  if (threadIdx.x == 0) data[count] += 1;
}
__global__ void add_one_atomically(int* data, unsigned count) {
  if (threadIdx.x == 0) atomicAdd(data + count, 1);
}
__global__ void load_words(const char* data, char* out) { arch::store_words(out, arch::load_words(data)); }
__global__ void add_one_to_peer(device_comm, sym_ptr<char> data, unsigned at) {
  if (threadIdx.x == 0) data.lsa(1)[at] += 1;
}
__global__ void add_one_in_shared(unsigned at, int* out) {
  of_launch[at] = 1;
  *out = of_launch[0];
}

/// What a launch's accesses are reported for; empty if they are not.
template <class Kernel, class... Arguments>
std::string report_of(Kernel kernel, const launch_config& config, Arguments... arguments) {
  simulator::clear_races();
  simulator::set_race_exit_status(0);
  launch(kernel, config, arguments...);
  static_cast<void>(cudaStreamSynchronize(config.stream));
  std::string text = simulator::race_reports() == 0 ? "" : simulator::last_race();
  simulator::clear_races();
  return text;
}

}  // namespace

TEST_CASE("an access past the end of device memory is reported, and none up to it") {
  for (const unsigned count : {1u, 10u, 1023u}) {
    int* data = nullptr;
    check_cuda(cudaMalloc(&data, count * sizeof(int)), "cudaMalloc");
    check_cuda(cudaMemset(data, 0, count * sizeof(int)), "cudaMemset");
    const std::string size = std::to_string(count * sizeof(int)) + " of device memory of ";
    CHECK(report_of(add_one_behind<int>, {.block = 32}, data, count - 1).empty());
    std::string text = report_of(add_one_behind<int>, {.block = 32}, data, count);
    INFO(text);
    CHECK(contains(text, "access past the end of memory (seed "));
    CHECK(contains(text, "0 bytes past the end of the " + size));
    CHECK(contains(text, ", block 0, thread 0, kernel "));
    CHECK(contains(text, here(line_of_accesses)));
    text = report_of(add_one_atomically, {.block = 32}, data, count);
    CHECK(contains(text, "0 bytes past the end of the " + size));
    CHECK(contains(text, here(line_of_accesses + 3)));
    check_cuda(cudaFree(data), "cudaFree");
  }
}

TEST_CASE("of 16 bytes those past the end are reported") {
  char* data = nullptr;
  char* out = nullptr;
  check_cuda(cudaMalloc(&data, 24), "cudaMalloc");
  check_cuda(cudaMalloc(&out, 16), "cudaMalloc");
  check_cuda(cudaMemset(data, 0, 24), "cudaMemset");
  CHECK(report_of(load_words, {.block = 1}, data, out).empty());
  CHECK(
      contains(report_of(load_words, {.block = 1}, data + 16, out), " bytes past the end of the 24 of device memory"));
  check_cuda(cudaFree(data), "cudaFree");
  check_cuda(cudaFree(out), "cudaFree");
}

TEST_CASE(
    "an access past the end of a window is reported by the window's name, and none up to the end of a later, larger one") {
  host::run_ranks({.ranks = 2}, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements());
    for (const std::size_t bytes : {400u, 401u, 4096u}) {
      const auto memory = comm.allocate(bytes, "table");
      if (comm.rank() == 0) {
        const launch_config config{.block = 32, .stream = cudaStreamPerThread};
        const auto at = static_cast<unsigned>(bytes);
        CHECK(report_of(add_one_to_peer, config, device_comm.get(), memory.pointer<char>(), at - 1).empty());
        if (bytes % 4 == 0 && bytes < 4096) {
          const std::string text =
              report_of(add_one_to_peer, config, device_comm.get(), memory.pointer<char>(), at + 3);
          CHECK(contains(text, "3 bytes past the end of the 400 of window 'table' of rank 1"));
          CHECK(contains(text, "of 1 byte by rank 0, block 0, thread 0, kernel "));
        }
      }
      comm.barrier();
    }
  });
}

TEST_CASE("an access past the dynamic shared memory of a launch is reported") {
  const simulator_test::shared_array<int> out(1);
  CHECK(report_of(add_one_in_shared, {.block = 1, .shared_bytes = 40}, 9u, out.get()).empty());
  const std::string text = report_of(add_one_in_shared, {.block = 1, .shared_bytes = 40}, 10u, out.get());
  CHECK(contains(text, "0 bytes past the end of the 40 of shared memory"));
  simulator::clear_failure();  // the block has written there
  CHECK(report_of(add_one_in_shared, {.block = 1, .shared_bytes = 44}, 10u, out.get()).empty());
}
