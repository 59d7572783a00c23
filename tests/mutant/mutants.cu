/// Kernels with one mistake each, of the kinds that people make around barriers, and one without. Under a
/// race detector each mistake must be reported, and the kernel without one must not. The kernels share a
/// pattern: fill, meet, read a peer, meet.
///
///     mutants NAME
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "support/ranks.hpp"

#include <cstdio>
#include <functional>
#include <map>
#include <string>

using namespace devcomm;

namespace {

constexpr unsigned blocks = 2;
constexpr unsigned threads = 32;
constexpr int ranks = 3;
constexpr int rounds = 2;

using board = sym_ptr<std::uint32_t>;

/// This block's place in the board, of `threads` words.
__device__ board of_block(board all) { return all + static_cast<std::int64_t>(blockIdx.x) * blockDim.x; }

/// The next rank's words, read by other threads than those that wrote them.
__device__ std::uint32_t read_next(const device_comm& comm, board words) {
  const int next = (comm.rank + 1) % comm.lsa_size;
  return words.lsa(next)[(threadIdx.x + 1) % blockDim.x];
}

/// The pattern, with the orders of both barriers to choose.
template <memory_order Before, memory_order After>
__global__ void exchange(device_comm comm, board all, std::uint32_t* out) {
  const board words = of_block(all);
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    words.local()[threadIdx.x] = round + threadIdx.x;
    barrier.sync(Before);
    out[blockIdx.x * blockDim.x + threadIdx.x] = read_next(comm, words);
    barrier.sync(After);
  }
}

/// One thread synchronizes with the peers for its block, and the block does not synchronize before and after.
__global__ void exchange_without_group_sync(device_comm comm, board all, std::uint32_t* out) {
  const board words = of_block(all);
  words.local()[threadIdx.x] = threadIdx.x;
  if (threadIdx.x == 0) {
    lsa::barrier_session barrier{thread{}, comm, blockIdx.x};
    barrier.sync(memory_order::acq_rel);
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = read_next(comm, words);
  if (threadIdx.x == 0) {
    lsa::barrier_session barrier{thread{}, comm, blockIdx.x};
    barrier.sync(memory_order::acq_rel);
  }
}

/// One rank's blocks meet at each other's barriers.
__global__ void exchange_at_wrong_barrier(device_comm comm, board all, std::uint32_t* out) {
  const board words = of_block(all);
  const unsigned index = comm.rank == 1 ? (blockIdx.x + 1) % gridDim.x : blockIdx.x;
  lsa::barrier_session barrier{block{}, comm, index};
  words.local()[threadIdx.x] = threadIdx.x;
  barrier.sync(memory_order::acq_rel);
  out[blockIdx.x * blockDim.x + threadIdx.x] = read_next(comm, words);
  barrier.sync(memory_order::acq_rel);
}

/// One rank leaves after the first barrier: its next launch's arrivals are taken for the missing ones.
__global__ void exchange_with_early_exit(device_comm comm, board all, std::uint32_t* out, std::uint32_t salt) {
  const board words = of_block(all);
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[threadIdx.x] = salt + threadIdx.x;
  barrier.sync(memory_order::acq_rel);
  out[blockIdx.x * blockDim.x + threadIdx.x] = read_next(comm, words);
  if (comm.rank == 1 && salt == 0) return;
  barrier.sync(memory_order::acq_rel);
}

/// Nothing says that the peers have read before the next launch fills again.
__global__ void exchange_without_final_barrier(device_comm comm, board all, std::uint32_t* out) {
  const board words = of_block(all);
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[threadIdx.x] = threadIdx.x;
  barrier.sync(memory_order::acq_rel);
  out[blockIdx.x * blockDim.x + threadIdx.x] = read_next(comm, words);
}

/// The same mistake within a launch: filled again while peers may still read.
__global__ void exchange_with_buffer_reuse(device_comm comm, board all, std::uint32_t* out) {
  const board words = of_block(all);
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    words.local()[threadIdx.x] = round + threadIdx.x;
    barrier.sync(memory_order::acq_rel);
    out[blockIdx.x * blockDim.x + threadIdx.x] = read_next(comm, words);
  }
  barrier.sync(memory_order::acq_rel);
}

/// A shared array written and read by different threads with no `__syncthreads` between.
__global__ void exchange_through_unsynchronized_shared(device_comm comm, board all, std::uint32_t* out) {
  __shared__ std::uint32_t staged[threads];
  const board words = of_block(all);
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[threadIdx.x] = threadIdx.x;
  barrier.sync(memory_order::acq_rel);
  staged[threadIdx.x] = read_next(comm, words);
  out[blockIdx.x * blockDim.x + threadIdx.x] = staged[(threadIdx.x + 1) % blockDim.x];
  barrier.sync(memory_order::acq_rel);
}

/// What a mutant launches on each rank.
using program = std::function<void(host::communicator&, const host::device_communicator&, board, std::uint32_t*)>;

launch_config config() { return {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}; }

template <class Kernel>
program launches(Kernel kernel, int times) {
  return [=](host::communicator&, const host::device_communicator& comm, board all, std::uint32_t* out) {
    for (int i = 0; i < times; ++i) launch(kernel, config(), comm.get(), all, out);
  };
}

/// Sets this rank's epochs back to 0 between two launches, as a program does that clears its flags' epochs
/// on re-use: the flags of the first launch satisfy the waits of the second.
void reuse_epoch(host::communicator& ranks_comm, const host::device_communicator& comm, board all, std::uint32_t* out) {
  const auto kernel = exchange<memory_order::acq_rel, memory_order::acq_rel>;
  launch(kernel, config(), comm.get(), all, out);
  test::finish("exchange");
  const resource_handle barriers = comm.get().lsa_barriers;
  for (unsigned index = 0; index < blocks; ++index) {
    const std::uint64_t place = barriers.offset + lsa::barrier_layout{barriers.count, barriers.members}.epoch(index);
    check_cuda(cudaMemsetAsync(comm.get().resources.local + place, 0, 4, cudaStreamPerThread), "cudaMemsetAsync");
  }
  test::finish("cudaMemsetAsync");
  ranks_comm.barrier();
  launch(kernel, config(), comm.get(), all, out);
}

void exit_early(host::communicator&, const host::device_communicator& comm, board all, std::uint32_t* out) {
  for (std::uint32_t salt = 0; salt < 2; ++salt) launch(exchange_with_early_exit, config(), comm.get(), all, out, salt);
}

const std::map<std::string, program> mutants = {
    {"none", launches(exchange<memory_order::acq_rel, memory_order::acq_rel>, 2)},
    {"release_weakened", launches(exchange<memory_order::acquire, memory_order::acq_rel>, 1)},
    {"acquire_weakened", launches(exchange<memory_order::release, memory_order::acq_rel>, 1)},
    {"both_weakened", launches(exchange<memory_order::relaxed, memory_order::acq_rel>, 1)},
    {"second_barrier_weakened", launches(exchange<memory_order::acq_rel, memory_order::relaxed>, 1)},
    {"missing_group_sync", launches(exchange_without_group_sync, 1)},
    {"wrong_barrier_index", launches(exchange_at_wrong_barrier, 1)},
    {"epoch_reuse", reuse_epoch},
    {"early_exit", exit_early},
    {"missing_final_barrier", launches(exchange_without_final_barrier, 2)},
    {"buffer_reuse", launches(exchange_with_buffer_reuse, 1)},
    {"unsynchronized_shared", launches(exchange_through_unsynchronized_shared, 1)},
};

}  // namespace

int main(int argc, char** argv) {
  const auto mutant = mutants.find(argc == 2 ? argv[1] : "");
  if (mutant == mutants.end()) {
    std::fprintf(stderr, "usage: %s NAME, one of:\n", argv[0]);
    for (const auto& [name, unused] : mutants) std::fprintf(stderr, "  %s\n", name.c_str());
    return 2;
  }
  try {
    test::on_ranks(ranks, [&](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
      const auto memory = comm.allocate(blocks * threads * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> out(blocks * threads);
      mutant->second(comm, device_comm, memory.pointer<std::uint32_t>(), out.get());
      test::finish("mutant");
      comm.barrier();
    });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
