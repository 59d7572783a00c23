/// Makes and destroys everything again and again, and ends kernels in their middle: `soak CYCLES`. What the process
/// holds must not grow: descriptors, mappings, threads, resident memory.
#include <devcomm/devcomm.cuh>
#include <devcomm/simulator/simulator.hpp>

#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/unique_id.hpp>

#include "support/live_threads.hpp"
#include "support/ranks.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;

namespace {

constexpr int ranks = 2;
constexpr unsigned threads = 32;

__global__ void exchange(device_comm comm, sym_ptr<int> board, int value) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  if (threadIdx.x == 0) board.local()[blockIdx.x] = value;
  barrier.sync();
  const int peer = (comm.rank + 1) % comm.size;
  if (board.lsa(peer)[blockIdx.x] != value) __trap();
}

__global__ void wait_in_vain(device_comm comm, status* outcome) {
  lsa::barrier_session barrier{block{}, comm, 0};
  const status seen = barrier.sync_for(milliseconds(600000));
  if (threadIdx.x == 0) *outcome = seen;
}

__global__ void misuse(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.wait();
}

const launch_config config{.grid = 2, .block = threads, .stream = cudaStreamPerThread};

/// Everything once, in peace.
void use(host::communicator& comm, int cycle) {
  const auto board = comm.allocate(2 * sizeof(int), "board");
  void* own = nullptr;
  check_cuda(cudaMalloc(&own, 256), "cudaMalloc");
  {
    const auto registered = comm.register_memory(own, 256);
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
    launch(exchange, config, device_comm.get(), board.pointer<int>(), cycle);
    test::finish("exchange");
    device_comm.check();
    if (cycle % 4 == 0) {
      const auto child = comm.split(comm.rank(), 0);
      const auto more = child->allocate(64);
    }
    comm.barrier();
  }
  check_cuda(cudaFree(own), "cudaFree");
}

/// One rank's kernel waits for a rank that does not come, until the host ends it.
void abort_in_kernel(host::communicator& comm) {
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  if (comm.rank() == 0) {
    const test::device_array<status> outcome(1, 0xff);
    launch(wait_in_vain, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           outcome.get());
    while (cudaStreamQuery(cudaStreamPerThread) == cudaSuccess) std::this_thread::yield();
    comm.abort();
    test::finish("wait_in_vain");
    test::require(outcome.read()[0] == status::aborted, "an abort ends the wait");
  }
  comm.barrier();
}

/// A launch that fails, with all its threads left where they were.
void fail_in_kernel(host::communicator& comm) {
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  launch(misuse, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get());
  test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "misuse fails the launch");
  simulator::clear_failure();
  comm.barrier();
}

/// Ranks that find each other over TCP.
void join_by_tcp() {
  const host::unique_id id = host::unique_id::create();
  std::vector<std::exception_ptr> problems(ranks);
  {
    std::vector<std::jthread> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.emplace_back([&, rank] {
        try {
          host::communicator comm(host::tcp_bootstrap(id, rank, ranks));
          comm.barrier();
        } catch (...) {
          problems[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
}

void run_cycle(int cycle) {
  switch (cycle % 8) {
    case 3: return test::on_ranks(ranks, abort_in_kernel);
    case 5: return test::on_ranks(ranks, fail_in_kernel);
    case 7: return join_by_tcp();
    default: return test::on_ranks(ranks, [cycle](host::communicator& comm) { use(comm, cycle); });
  }
}

struct holdings {
  long descriptors = 0;
  long mappings = 0;
  long threads = 0;
  long resident = 0;  ///< KiB
};

long entries(const char* folder) {
  return static_cast<long>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

holdings count_holdings() {
  malloc_trim(0);
  holdings now;
  now.descriptors = entries("/proc/self/fd");
  now.threads = static_cast<long>(devcomm_test::live_threads());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  now.resident = pages * (sysconf(_SC_PAGESIZE) / 1024);
  return now;
}

void print(int cycle, const holdings& h) {
  std::printf("%8d cycles: %ld descriptors, %ld mappings, %ld threads, %ld KiB\n", cycle, h.descriptors, h.mappings,
              h.threads, h.resident);
  std::fflush(stdout);
}

bool flat(const char* what, long before, long after, long slack) {
  if (after <= before + slack) return true;
  std::printf("%s grew from %ld to %ld\n", what, before, after);
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  const int cycles = count == 2 ? std::atoi(arguments[1]) : 0;
  if (cycles < 80) {
    std::fprintf(stderr, "usage: soak CYCLES, at least 80\n");
    return 2;
  }
  mallopt(M_ARENA_MAX, 2);                                          // more would each grow to what they need at most
  if (std::freopen("/dev/null", "w", stderr) == nullptr) return 2;  // of failures that are meant
  const int warm = cycles / 4 / 8 * 8;
  holdings before;
  try {
    for (int cycle = 0; cycle < cycles; ++cycle) {
      if (cycle == warm) print(cycle, before = count_holdings());
      if (cycle > warm && cycle % std::max(cycles / 10, 1) == 0) print(cycle, count_holdings());
      run_cycle(cycle);
    }
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
    return 1;
  }
  const holdings after = count_holdings();
  print(cycles, after);
  bool ok = flat("descriptors", before.descriptors, after.descriptors, 0);
  ok = flat("threads", before.threads, after.threads, 0) && ok;
  ok = flat("mappings", before.mappings, after.mappings, 64) && ok;  // addresses that rest lie together or apart
  ok = flat("resident memory (KiB)", before.resident, after.resident, 1024) && ok;
  return ok ? 0 : 1;
}
