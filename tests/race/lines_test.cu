/// Reports name lines of the user's, in programs that are not optimized too, and of what the network does where that
/// was posted.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "support.hpp"

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
  if (threadIdx.x == 0) detail::arch::store16(words, {1, 2, 3, 4});
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
