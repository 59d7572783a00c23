// Which orders calls take: those of libcu++ too, and none that make no sense.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#if __has_include(<cuda/atomic>)
#  include <cuda/atomic>
#endif
#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <cstdint>
#include <string>

using namespace devcomm;

namespace {

constexpr unsigned threads = 32;

#if __has_include(<cuda/atomic>)

static_assert(to_scope(cuda::thread_scope_system) == scope::system);
static_assert(to_scope(cuda::thread_scope_device) == scope::device);
static_assert(to_scope(cuda::thread_scope_block) == scope::block);

/// A word to the next rank at a barrier, and back by a signal, with the orders of libcu++.
__global__ void exchange(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint32_t> words,
                         std::uint32_t* wrong) {
  const team ranks = comm.lsa();
  const int next = (ranks.rank + 1) % ranks.size;
  const int previous = (ranks.rank + ranks.size - 1) % ranks.size;
  lsa::barrier_session barrier{block{}, comm, 0};
  words.lsa(next)[threadIdx.x] = 1 + threadIdx.x;
  barrier.arrive(cuda::memory_order_release);
  barrier.wait(cuda::memory_order_acquire);
  const unsigned other = (threadIdx.x + 1) % blockDim.x;
  std::uint32_t count = words.local()[other] != 1 + other ? 1 : 0;
  barrier.sync(cuda::memory_order_acq_rel);
  words.lsa(next)[threadIdx.x] = 100 + threadIdx.x;
  lsa::signal_session signal{block{}, comm, signals, 0};
  signal.add(next, 1, cuda::std::memory_order_release);
  signal.take(previous, 1, cuda::memory_order_acquire);
  count += words.local()[other] != 100 + other ? 1 : 0;
  wrong[threadIdx.x] = count;
}

#endif

}  // namespace

#if __has_include(<cuda/atomic>)
TEST_CASE("calls take the orders of libcu++") {
  test::on_ranks(3, [](host::communicator& comm) {
    auto needs = comm.requirements();
    needs.lsa_barriers(1);
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto words = comm.allocate(threads * sizeof(std::uint32_t));
    const test::device_array<std::uint32_t> wrong(threads, 0xff);
    launch(exchange, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), signals,
           words.pointer<std::uint32_t>(), wrong.get());
    test::finish("exchange");
    device_comm.check();
    for (const std::uint32_t one : wrong.read()) test::require(one == 0, "an old word");
    comm.barrier();
  });
}
#endif

#if defined(DEVCOMM_SIMULATOR)

namespace {

enum class call { arrive, wait, wait_for, store, add, load, take, sequential, right };

__global__ void call_with_wrong_order(device_comm comm, lsa::signal_handle signals, call made) {
  const team alone{0, 1, comm.rank, 1};
  lsa::barrier_session barrier{block{}, comm, 0};
  lsa::signal_session signal{block{}, comm, alone, signals, 0};
  if (made == call::arrive) barrier.arrive(memory_order::acquire);
  if (made == call::wait) barrier.arrive(), barrier.wait(memory_order::release);
  if (made == call::wait_for)
    barrier.arrive(), static_cast<void>(barrier.wait_for(milliseconds(1), memory_order::release));
  if (made == call::store) signal.store(0, 1, memory_order::acquire);
  if (made == call::add) signal.add(0, 1, memory_order::acquire);
  if (made == call::load) static_cast<void>(signal.load(memory_order::release));
  if (made == call::take) signal.take(0, 0, memory_order::release);
  if (made == call::sequential) barrier.sync(std::memory_order_seq_cst);
  // Both halves of a sync, and of one with a deadline, may be one-sided: the other half is then relaxed.
  barrier.sync(memory_order::acquire);
  static_cast<void>(barrier.sync_for(milliseconds(60000), memory_order::release));
  barrier.arrive(memory_order::acq_rel);
  barrier.wait(memory_order::acq_rel);
}

void check_refused(call made, const std::string& text) {
  test::on_ranks(1, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    needs.lsa_barriers(1);
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    launch(call_with_wrong_order, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           signals, made);
    const bool failed = cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess;
    const std::string said = failed ? simulator::last_failure() : "nothing";
    test::require(said.find(text) != std::string::npos, "it said: " + said);
  });
}

}  // namespace

TEST_CASE("orders that make no sense are refused") {
  const std::string store = "what stores cannot acquire: give it memory_order::release or relaxed";
  const std::string wait = "what waits cannot release: give it memory_order::acquire or relaxed";
  check_refused(call::right, "nothing");
  check_refused(call::arrive, store);
  check_refused(call::store, store);
  check_refused(call::add, store);
  check_refused(call::wait, wait);
  check_refused(call::wait_for, wait);
  check_refused(call::load, wait);
  check_refused(call::take, wait);
  check_refused(call::sequential, "no call is sequentially consistent: acq_rel is the strongest order");
}

#endif
