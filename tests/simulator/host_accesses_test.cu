// Waits leave host memory alone: on GPUs a word there that all waiting threads read costs milliseconds.
#include <devcomm/devcomm.cuh>
#include <devcomm/simulator/simulator.hpp>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;

namespace {

/// A wait reads the host's abort word once in a long while, whoever else waits.
constexpr std::uint64_t handful = 8;
/// Simulated nanoseconds in which one thread of a rank may read it.
constexpr std::uint64_t host_interval = 1 << 18;
constexpr std::uint64_t values = 128;

std::uint64_t host_accesses() { return simulator::get_statistics().host_accesses; }

__global__ void read_word(const std::uint32_t* word, unsigned times, std::uint32_t* sum) {
  for (unsigned i = 0; i < times; ++i) *sum += arch::load<memory_order::relaxed, scope::system>(word);
}

__global__ void write_word(std::uint32_t* word, unsigned times) {
  for (unsigned i = 1; i <= times; ++i) arch::store<memory_order::relaxed, scope::system>(word, i);
}

/// Block 1 counts a word up to `target`; every thread of block 0 waits for that, and counts its polls.
__global__ void wait_for_count(device_comm comm, std::uint32_t* word, std::uint32_t target, std::uint64_t* polls) {
  if (blockIdx.x == 1) {
    if (threadIdx.x != 0) return;
    for (std::uint32_t i = 1; i <= target; ++i) {
      arch::store<memory_order::relaxed, scope::system>(word, i);
      __nanosleep(5000);  // all that wait poll
    }
    return;
  }
  auto* const home = reinterpret_cast<resource_header*>(comm.resources.local);
  std::uint64_t mine = 0;
  const auto label = [&]() -> detail::wait_label {
    return {{operation::lsa_barrier, 0, comm.rank, target}, comm.rank, comm.timeout, false};
  };
  const auto poll_once = [&] {
    ++mine;
    return arch::load<memory_order::relaxed, scope::system>(word) >= target;
  };
  detail::poll(home, detail::communicator_timeout(), label, poll_once, [](status) {});
  arch::fetch_add<memory_order::relaxed, scope::device>(polls, mine);
}

__device__ void be_late(int rank) {
  if (rank == 0) return;
  const std::uint64_t start = arch::global_time();
  while (arch::global_time() - start < 5000000) __nanosleep(1000);
}

__global__ void meet_late(device_comm comm) {
  be_late(comm.rank);
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
}

template <class Session>
__global__ void exchange_late(device_comm comm, typename Session::handle mailboxes, float* data) {
  be_late(comm.rank);
  const collective::from_memory<float> input{data, values};
  const collective::to_memory<float> output{data, values};
  Session session{block{}, comm, mailboxes, 0};
  collective::all_reduce_one_shot<float>(session, {0, collective::packs_of<float>(values)}, input, output, sum{});
}

template <class Session>
void check_packets() {
  test::on_ranks(2, [](host::communicator& comm) {
    devcomm::requirements needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 1, 64));
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<float> data(values);
    comm.barrier();
    launch(exchange_late<Session>, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
           mailboxes, data.get());
    test::finish("exchange_late");
    device_comm.check();
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("accesses of kernels to host memory are counted, those to device memory are not") {
  std::uint32_t* pinned = nullptr;
  check_cuda(cudaMallocHost(reinterpret_cast<void**>(&pinned), 2 * sizeof *pinned), "cudaMallocHost");
  pinned[0] = pinned[1] = 0;
  const test::device_array<std::uint32_t> word(2);
  const std::uint64_t before = host_accesses();
  launch(read_word, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, pinned, 10u, pinned + 1);
  test::finish("read_word");
  const std::uint64_t of_pinned = host_accesses() - before;
  launch(read_word, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, word.get(), 10u, word.get() + 1);
  test::finish("read_word");
  CHECK(of_pinned == 10);
  CHECK(host_accesses() - before == 10);
  check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
}

TEST_CASE("accesses are counted while host memory is allocated") {
  constexpr unsigned times = 500000;
  std::uint32_t* pinned = nullptr;
  check_cuda(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof *pinned), "cudaMallocHost");
  *pinned = 0;
  test::on_ranks(1, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 64}));
    const std::uint64_t before = host_accesses();
    std::thread other([&] {
      while (std::atomic_ref(*pinned).load() == 0) std::this_thread::yield();  // the kernel has not begun
      for (int i = 0; i < 30; ++i) static_cast<void>(comm.create_device_comm(needs));
    });
    launch(write_word, {.grid = 1, .block = 1, .stream = cudaStreamPerThread}, pinned, times);
    test::finish("write_word");
    const auto counted = host_accesses() - before;
    other.join();
    test::require(counted == times, [&] { return std::to_string(counted) + " accesses counted"; });
  });
  check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
}

TEST_CASE("host allocations that come and go leave no memory behind beside many that stay") {
  const auto resident = [] {  // in pages
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0;
    std::size_t mine = 0;
    file >> all >> mine;
    return mine;
  };
  const auto allocate = [] {
    void* made = nullptr;
    check_cuda(cudaMallocHost(&made, 8), "cudaMallocHost");
    return made;
  };
  std::vector<void*> stay(2000);
  for (void*& each : stay) each = allocate();
  const std::size_t before = resident();
  for (int i = 0; i < 1000; ++i) check_cuda(cudaFreeHost(allocate()), "cudaFreeHost");
  const std::size_t after = resident();
  CHECK(after - std::min(before, after) < 4096);  // 16 MiB
  for (void* const each : stay) check_cuda(cudaFreeHost(each), "cudaFreeHost");
}

TEST_CASE("waits of a million polls read host memory once in a quarter of a millisecond, all together") {
  test::on_ranks(1, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements());
    const test::device_array<std::uint32_t> word(1);
    const test::device_array<std::uint64_t> polls(1);
    const std::uint64_t before = host_accesses();
    const std::uint64_t start = simulator::get_statistics().time;
    launch(wait_for_count, {.grid = 2, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), word.get(),
           17000u, polls.get());
    test::finish("wait_for_count");
    test::require(polls.read()[0] >= 1000000, [&] { return std::to_string(polls.read()[0]) + " polls only"; });
    const std::uint64_t reads = host_accesses() - before;
    const std::uint64_t intervals = (simulator::get_statistics().time - start) / host_interval;
    test::require(reads >= 1, "nobody looked for an abort");
    test::require(reads <= intervals + 2, [&] {
      return std::to_string(reads) + " accesses to host memory in " + std::to_string(intervals) + " intervals";
    });
  });
}

TEST_CASE("waits of every kind for a late peer read host memory a handful of times") {
  const std::uint64_t before = host_accesses();
  test::on_ranks(2, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(32));
    comm.barrier();
    launch(meet_late, {.grid = 32, .block = 64, .stream = cudaStreamPerThread}, device_comm.get());
    test::finish("meet_late");
    device_comm.check();
    comm.barrier();
  });
  CHECK(host_accesses() - before <= handful);
  check_packets<lsa::ll_session<block>>();
  CHECK(host_accesses() - before <= 2 * handful);
  check_packets<lsa::lamport_session<block>>();
  CHECK(host_accesses() - before <= 3 * handful);
  check_packets<lsa::ll128_session<block>>();
  CHECK(host_accesses() - before <= 4 * handful);
}
