// What a rank that gave up does to itself and to its peers.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <string>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr std::chrono::milliseconds patience(40);  // of every wait

__device__ void sleep_for(unsigned milliseconds) {
  const std::uint64_t start = detail::arch::global_time();
  while (detail::arch::global_time() - start < milliseconds * 1000000ull) __nanosleep(100000);
}

/// Two barriers, the first after `delay` milliseconds; what each thread knows after each.
__global__ void meet_twice(device_comm comm, unsigned delay, status* outcomes) {
  if (threadIdx.x == 0) sleep_for(delay);
  __syncthreads();
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync();
  outcomes[threadIdx.x] = barrier.agree();
  barrier.sync();
  outcomes[blockDim.x + threadIdx.x] = barrier.agree();
}

/// The same without a question between the barriers, as most kernels are.
__global__ void meet_twice_unasked(device_comm comm, unsigned delay) {
  if (threadIdx.x == 0) sleep_for(delay);
  __syncthreads();
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync();
  barrier.sync();
}

host::communicator_options impatient() {
  host::communicator_options options;
  options.kernel_timeout = patience;
  return options;
}

bool check_throws(const host::device_communicator& comm) {
  try {
    comm.check();
  } catch (const host::kernel_error&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a rank that gave up arrives nowhere again, in this launch and in later ones") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        constexpr std::size_t launches = 3;
        const test::device_array<status> outcomes(launches * 2 * threads, 0xff);
        comm.barrier();
        for (std::size_t n = 0; n < launches; ++n) {
          const unsigned delay = comm.rank() == 1 && n == 0 ? 200 : 0;
          launch(meet_twice, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), delay,
                 outcomes.get() + n * 2 * threads);
        }
        test::finish("meet_twice");
        const auto seen = outcomes.read();
        for (std::size_t i = 0; i < seen.size(); ++i) {
          const std::size_t barrier = i / threads;
          // Rank 0 had arrived at the first barrier before it gave up, so the late rank may pass that one.
          if (comm.rank() == 1 && barrier == 0) continue;
          test::require(seen[i] != status::success, "rank " + std::to_string(comm.rank()) + ", thread " +
                                                        std::to_string(i % threads) + " passed barrier " +
                                                        std::to_string(barrier));
          test::require(seen[i] == seen[barrier * threads], "the threads of a block disagree");
        }
        test::require(check_throws(device_comm), "check does not know of the failure");
        comm.barrier();
      },
      impatient());
}

TEST_CASE("a rank whose peers gave up on another learns of it") {
  // Rank 0 gives up on rank 1 while rank 2, which came in time, goes on to a second barrier.
  test::on_ranks(
      3,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        const unsigned delays[] = {0, 100, 20};
        comm.barrier();
        launch(meet_twice_unasked, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
               delays[comm.rank()]);
        test::finish("meet_twice_unasked");
        test::require(check_throws(device_comm),
                      "rank " + std::to_string(comm.rank()) + " believes that all went well");
        comm.barrier();
      },
      impatient());
}

namespace {

struct foreign_block {
  __device__ std::uint32_t thread_rank() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
};

template <class Group>
__global__ void try_to_meet(device_comm comm, status* outcomes) {
  lsa::barrier_session barrier{Group{}, comm, 0};
  outcomes[threadIdx.x] = barrier.sync_for(milliseconds(60000));
  outcomes[blockDim.x + threadIdx.x] = barrier.sync_for(milliseconds(60000));
}

template <class Group>
void check_aborted() {
  test::on_ranks(2, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    if (comm.rank() == 0) {
      const test::device_array<status> outcomes(2 * threads, 0xff);
      comm.abort();
      launch(try_to_meet<Group>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             outcomes.get());
      test::finish("try_to_meet");
      for (const status outcome : outcomes.read())
        test::require(outcome == status::aborted, std::string("outcome is ") + to_string(outcome));
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("all threads of a group are told the same, whatever the group") {
  check_aborted<block>();
  check_aborted<foreign_block>();
}

#if defined(DEVCOMM_SIMULATOR)  // checked mode, and the kernel's end tells which mistake it was

#  include <devcomm/simulator/simulator.hpp>

namespace {

__global__ void leave_after_arrive(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.arrive();
}

__global__ void meet_as(device_comm comm, team members, barrier_handle barriers) {
  lsa::barrier_session barrier{block{}, comm, members, barriers, 0};
  barrier.sync();
}

__global__ void meet_in_a_warp(device_comm comm) {
  lsa::barrier_session barrier{warp{}, comm, 0};
  barrier.sync();
}

/// The launch fails on rank 0, and says `text`.
template <class Launch>
void check_misuse(const std::string& text, const Launch& start) {
  test::on_ranks(2, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    needs.lsa_barriers(1);
    const auto barriers = needs.add_barriers(team{0, 1, 0, 1}, 1);
    const auto device_comm = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      start(device_comm.get(), barriers);
      test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the launch succeeded");
      const std::string said = simulator::last_failure();
      test::require(said.find(text) != std::string::npos, "it said: " + said);
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("mistakes with a session are named") {
  const launch_config config{.grid = 1, .block = 32, .stream = cudaStreamPerThread};
  check_misuse("a session ended between arrive and wait",
               [&](const device_comm& comm, barrier_handle) { launch(leave_after_arrive, config, comm); });
  check_misuse("the caller is not the member that its team says", [&](const device_comm& comm, barrier_handle one) {
    launch(meet_as, config, comm, team{0, 1, 1, 1}, one);  // rank 0 as rank 1
  });
  check_misuse("the block ends within the tile", [&](const device_comm& comm, barrier_handle) {
    launch(meet_in_a_warp, {.grid = 1, .block = 2, .stream = cudaStreamPerThread}, comm);
  });
}

#endif
