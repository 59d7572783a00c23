// Launches that may start before their predecessor ends: each sees the epochs and words that it left. Also built as PTX
// of compute capability 8.0, whose code cannot wait: on newer GPUs its launches must follow one another all the same.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>

using namespace devcomm;

namespace {

constexpr unsigned blocks = 4;
constexpr unsigned threads = 64;

/// Adds 1 to each of this rank's words after a barrier and a signal, so that a launch that reads old epochs stands out.
__global__ void add_one(device_comm comm, lsa::signal_handle signals, std::uint32_t* words) {
  allow_dependent_launch();
  wait_for_prior_launch();
  const team ranks = comm.lsa();
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
  lsa::signal_session signal{block{}, comm, signals, blockIdx.x};
  signal.add((ranks.rank + 1) % ranks.size, 1);
  signal.take((ranks.rank + ranks.size - 1) % ranks.size);
  words[blockIdx.x * blockDim.x + threadIdx.x] += 1;
  barrier.sync();
}

}  // namespace

static_assert(!detail::can_wait_for_prior_launch(75) && !detail::can_wait_for_prior_launch(80) &&
              !detail::can_wait_for_prior_launch(89));
static_assert(detail::can_wait_for_prior_launch(90) && detail::can_wait_for_prior_launch(120));

TEST_CASE("a chain of dependent launches is right whatever PTX it was built for") {
  test::on_ranks(test::ranks_that_meet(2), [](host::communicator& comm) {
    constexpr std::uint32_t launches = 50;
    auto needs = comm.requirements().lsa_barriers(blocks);
    const auto signals = needs.add(lsa::signals{comm.lsa(), blocks});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<std::uint32_t> words(blocks * threads);
    comm.barrier();
    for (std::uint32_t n = 0; n < launches; ++n) {
      launch(add_one, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread, .programmatic_dependent = true},
             device_comm.get(), signals, words.get());
    }
    test::finish("add_one");
    device_comm.check();
    for (const std::uint32_t word : words.read())
      test::require(word == launches, [&] { return "a word is " + std::to_string(word); });
    comm.barrier();
  });
}
