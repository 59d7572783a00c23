// All-to-all by puts with signals, over two hosts, in two launches: each block has a context and a signal of its own,
// and adds what it received to a sum.
//
// options: --ranks 4 --hosts 2
// bug 1: the entry barrier is one of the rail, although ranks of all rails are put to
//   seen in: NVIDIA/nccl 1afc033e
//   race: data race .* window
// bug 2: all blocks use one signal
//   seen in: NVIDIA/nccl 1afc033e, NVIDIA/nccl-tests 081ea642
//   race: data race .* window
// bug 3: nothing at the end says that what was sent may be written again
//   seen in: NVIDIA/nccl 1afc033e
//   race: data race .* window|freed while
// bug 4: the signal's start value is read after the barrier
//   seen in: NVIDIA/nccl issues 1893, 1990
//   plain: deadlock
// bug 5: the barrier that fences puts is one of the rail
//   seen in: NVIDIA/nccl f0e545a5
//   race: data race .* window
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cstdio>
#include <exception>
#include <vector>

#if !defined(BUG)
#  define BUG 0
#endif

using namespace devcomm;

constexpr unsigned blocks = 2;
constexpr unsigned threads = 32;
constexpr unsigned part = 64;  // elements that a block sends to each rank
constexpr unsigned length = blocks * part;

__global__ void exchange(device_comm comm, gin::context_handle contexts, sym_ptr<int> send, sym_ptr<int> receive,
                         int* sums) {
  const auto context = BUG == 2 ? 0 : blockIdx.x;
  gin::context net{block{}, comm, contexts, context};
  const team met = BUG == 1 ? comm.rail() : comm.world();
#if BUG != 4
  const std::uint64_t start = net.read_signal(0);
#endif
  {
    gin::barrier_session entry{block{}, comm, met, contexts, gin::one_context(context), blockIdx.x};
    entry.sync(gin::fence_level::none);  // all ranks are done with what they received before
  }
#if BUG == 4
  const std::uint64_t start = net.read_signal(0);
#endif
  for (int i = 0; i < comm.size; ++i) {
    const int rank = (comm.rank + i) % comm.size;
    const auto run = [&](sym_ptr<int> of, int number) {
      return of + static_cast<std::int64_t>(static_cast<unsigned>(number) * length + blockIdx.x * part);
    };
    net.put(rank, run(receive, comm.rank), run(send, rank), part, gin::signal_add{0, 1, gin::strength::weak});
  }
#if BUG == 5
  gin::barrier_session arrived{block{}, comm, comm.rail(), contexts, gin::one_context(context), blockIdx.x};
  arrived.sync(gin::fence_level::put);
#else
  net.wait_signal(0, start + static_cast<std::uint64_t>(comm.size));
#endif
  for (int rank = 0; rank < comm.size; ++rank) {
    for (unsigned i = blockIdx.x * part + threadIdx.x; i < (blockIdx.x + 1) * part; i += threads)
      sums[i] += receive.local()[static_cast<unsigned>(rank) * length + i];
  }
#if BUG != 3
  net.flush();
#endif
}

int main() try {
  host::run_ranks({}, [](host::communicator& comm) {
    const auto size = static_cast<unsigned>(comm.size());
    requirements needs = comm.requirements();
    const auto contexts =
        needs.add(gin::contexts{.world = comm.world(), .count = blocks, .signals = 1, .barriers = blocks});
    const host::device_communicator device_comm = comm.create_device_comm(needs);
    const host::symmetric_memory send = comm.allocate(size * length * sizeof(int));
    const host::symmetric_memory receive = comm.allocate(size * length * sizeof(int));
    int* sums = nullptr;
    check_cuda(cudaMalloc(&sums, length * sizeof(int)), "cudaMalloc");
    check_cuda(cudaMemset(sums, 0, length * sizeof(int)), "cudaMemset");
    std::vector<int> values(size * length);
    for (int round = 1; round <= 2; ++round) {
      for (int& each : values) each = comm.rank() + round;
      check_cuda(cudaMemcpyAsync(send.pointer<int>().local(), values.data(), values.size() * sizeof(int),
                                 cudaMemcpyHostToDevice, cudaStreamPerThread),
                 "cudaMemcpyAsync");
      launch(exchange, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), contexts,
             send.pointer<int>(), receive.pointer<int>(), sums);
    }
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "exchange");
    device_comm.check();
    std::vector<int> found(length);
    check_cuda(cudaMemcpy(found.data(), sums, length * sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
    const int expected = static_cast<int>(size * (size - 1) + 3 * size);
    for (const int each : found)
      if (each != expected) throw std::runtime_error("wrong: " + std::to_string(each));
    comm.barrier();
    check_cuda(cudaFree(sums), "cudaFree");
  });
  return 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
