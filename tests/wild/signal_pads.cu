// A barrier over pads of signals, as symmetric memory in PyTorch has it: a signal is put by changing 0 to 1 in the
// peer's pad, and waited for by changing 1 to 0 in the own one.
//
// options: --ranks 4
// bug 1: two groups of ranks with a rank in common use the same slots of the pad
//   seen in: pytorch 192581
//   race: data race .* device memory
// bug 2: two streams use one pad
//   seen in: pytorch 189228
//   plain: deadlock|[1-9][0-9]* wrong
// bug 3: the put does not release
//   race: data race .* device memory
#include "gpus.cuh"

#include <cuda/atomic>

#if !defined(BUG)
#  define BUG 0
#endif

constexpr int channels = 2;
constexpr int groups = 2;
constexpr int count = 256;

struct pad {
  unsigned signal[groups][channels][8];
};

template <cuda::memory_order Order>
__device__ void put(unsigned* at) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_system> signal(*at);
  unsigned expected = 0;
  while (!signal.compare_exchange_weak(expected, 1, Order, cuda::memory_order_relaxed)) expected = 0;
}
__device__ void wait(unsigned* at) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_system> signal(*at);
  unsigned expected = 1;
  while (!signal.compare_exchange_weak(expected, 0, cuda::memory_order_acquire, cuda::memory_order_relaxed))
    expected = 1;
}

__device__ void barrier(gpus::peers<pad> pads, unsigned members, int group, int channel, int rank) {
  __syncthreads();
  if (threadIdx.x < 8 && (members >> threadIdx.x & 1) != 0 && threadIdx.x != static_cast<unsigned>(rank)) {
    put<BUG == 3 ? cuda::memory_order_relaxed : cuda::memory_order_release>(
        &pads.of[threadIdx.x]->signal[group][channel][rank]);
    wait(&pads.of[rank]->signal[group][channel][threadIdx.x]);
  }
  __syncthreads();
}

// Sums what the members of a group have in a part of `in`.
__global__ void sum(gpus::peers<pad> pads, gpus::peers<int> in, int* out, int part, unsigned members, int group,
                    int channel, int rank) {
  const unsigned i = static_cast<unsigned>(part) * count + threadIdx.x;
  in.of[rank][i] = rank + 1;
  barrier(pads, members, group, channel, rank);
  int total = 0;
  for (int peer = 0; peer < 8; ++peer)
    if ((members >> peer & 1) != 0) total += in.of[peer][i];
  out[i] = total;
  barrier(pads, members, group, channel, rank);
}

int main() {
  const int n = gpus::count();
  const auto pads = gpus::allocate<pad>(1);
  const auto in = gpus::allocate<int>(channels * count);
  const auto out = gpus::allocate<int>(channels * count);
  const unsigned all = (1u << n) - 1;
  cudaStream_t streams[8][channels];
  gpus::on_each([&](int gpu) {
    for (cudaStream_t& each : streams[gpu]) cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking);
  });
  int wrong = 0;
  const auto compare = [&](int gpu, int part, int expected) {
    for (const int x : gpus::download(out.of[gpu] + part * count, count)) wrong += x != expected;
  };

  // The group of all ranks on two streams at a time, which ranks come to in different orders.
  gpus::on_each([&](int gpu) {
    for (int i = 0; i < channels; ++i) {
      const int part = (i + gpu) % channels;
      const int channel = BUG == 2 ? 0 : part;
      sum<<<1, count, 0, streams[gpu][part]>>>(pads, in, out.of[gpu], part, all, 0, channel, gpu);
    }
  });
  gpus::synchronize();
  gpus::on_each([&](int gpu) {
    for (int part = 0; part < channels; ++part) compare(gpu, part, n * (n + 1) / 2);
  });

  // Beside it, the group of the first two ranks.
  gpus::on_each([&](int gpu) {
    sum<<<1, count, 0, streams[gpu][0]>>>(pads, in, out.of[gpu], 0, all, 0, 0, gpu);
    if (gpu < 2) sum<<<1, count, 0, streams[gpu][1]>>>(pads, in, out.of[gpu], 1, 3, BUG == 1 ? 0 : 1, 0, gpu);
  });
  gpus::synchronize();
  gpus::on_each([&](int gpu) {
    compare(gpu, 0, n * (n + 1) / 2);
    if (gpu < 2) compare(gpu, 1, 3);
  });
  return gpus::finish(wrong);
}
