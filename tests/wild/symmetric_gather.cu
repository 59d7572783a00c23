// All-gather and reduce-scatter from symmetric memory: a barrier before peers' memory is read, and one after.
//
// bug 1: the entry barrier is relaxed
//   seen in: NVIDIA/nccl 515a631a, NVIDIA/nccl-tests 081ea642
//   race: data race .* window
// bug 2: the exit barrier is left out
//   seen in: ROCm/aiter 3514 (in another form)
//   race: data race .* window
// bug 3: blocks share one barrier
//   seen in: NVIDIA/nccl-tests 081ea642 (a signal there)
//   plain: two sessions of LSA barrier 0 of rank [01] are live at once
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#if !defined(BUG)
#  define BUG 0
#endif

using namespace devcomm;

constexpr unsigned blocks = 2;
constexpr unsigned threads = 64;
constexpr unsigned count = 512;

__global__ void sum_of_all(device_comm comm, sym_ptr<int> in, int* out) {
  lsa::barrier_session barrier{block{}, comm, BUG == 3 ? 0 : blockIdx.x};
  barrier.sync(BUG == 1 ? memory_order::relaxed : memory_order::acq_rel);
  for (unsigned i = blockIdx.x * threads + threadIdx.x; i < count; i += blocks * threads) {
    int sum = 0;
    for (int rank = 0; rank < comm.size; ++rank) sum += in.peer(rank)[i];
    out[i] = sum;
  }
#if BUG != 2
  barrier.sync();
#endif
}

int main() try {
  host::run_ranks({}, [](host::communicator& comm) {
    requirements needs = comm.requirements();
    needs.lsa_barriers(blocks);
    const host::device_communicator device_comm = comm.create_device_comm(needs);
    const host::symmetric_memory in = comm.allocate(count * sizeof(int));
    int* out = nullptr;
    check_cuda(cudaMalloc(&out, count * sizeof(int)), "cudaMalloc");
    for (int round = 1; round <= 2; ++round) {
      const std::vector<int> values(count, comm.rank() + round);
      check_cuda(cudaMemcpyAsync(in.pointer<int>().local(), values.data(), count * sizeof(int), cudaMemcpyHostToDevice,
                                 cudaStreamPerThread),
                 "cudaMemcpyAsync");
      launch(sum_of_all, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             in.pointer<int>(), out);
    }
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "sum_of_all");
    device_comm.check();
    std::vector<int> found(count);
    check_cuda(cudaMemcpy(found.data(), out, count * sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (const int each : found)
      if (each != comm.size() * (comm.size() - 1) / 2 + 2 * comm.size())
        throw std::runtime_error("wrong: " + std::to_string(each));
    comm.barrier();
    check_cuda(cudaFree(out), "cudaFree");
  });
  return 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
