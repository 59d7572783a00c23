// One-shot and two-shot all-reduce as inference engines have them: each block has a flag for each peer in every peer's
// memory, and a round number that the flags are compared with.
//
// bug 1: the start barrier is relaxed: peers' inputs may be read before they are there
//   seen in: vllm 57059, 57182
//   race: data race .* device memory
// bug 2: no end barrier: the input of the next round replaces one that peers still read
//   seen in: ROCm/aiter 3514
//   race: data race .* device memory
// bug 3: no release between the partial sums and the flag that announces them
//   seen in: ROCm/aiter 2890
//   race: data race .* device memory
// bug 4: flags that peers read have the scope of the device
//   seen in: ROCm/aiter 4786, 4812
//   race: scope system|need scope system
// bug 5: flags are polled by plain loads
//   seen in: meta-pytorch/torchcomms ae422b05
//   race: data race .* device memory
#include "gpus.cuh"

#if !defined(BUG)
#  define BUG 0
#endif
#if BUG == 4
#  define SCOPE "gpu"
#else
#  define SCOPE "sys"
#endif

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr int count = 1024;
constexpr int rounds = 3;

struct signals {
  unsigned start[blocks][8];
  unsigned middle[blocks][8];
  unsigned end[blocks][8];
};

__device__ void store_relaxed(unsigned* flag, unsigned value) {
  asm volatile("st.relaxed." SCOPE ".global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ unsigned load_relaxed(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.relaxed." SCOPE ".global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ void store_release(unsigned* flag, unsigned value) {
  asm volatile("st.release." SCOPE ".global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ unsigned load_acquire(const unsigned* flag) {
  unsigned value;
#if BUG == 5
  value = *const_cast<const volatile unsigned*>(flag);
#else
  asm volatile("ld.acquire." SCOPE ".global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
#endif
  return value;
}

template <bool Ordered>
__device__ void barrier(gpus::peers<signals> all, unsigned (signals::*flags)[blocks][8], int rank, int ranks,
                        unsigned round) {
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(ranks)) {
    const unsigned peer = threadIdx.x;
    unsigned* const theirs = &(all.of[peer]->*flags)[blockIdx.x][rank];
    const unsigned* const own = &(all.of[rank]->*flags)[blockIdx.x][peer];
    if (Ordered) {
      store_release(theirs, round);
      while (load_acquire(own) < round) {
      }
    } else {
      store_relaxed(theirs, round);
      while (load_relaxed(own) < round) {
      }
    }
  }
  __syncthreads();
}

__global__ void one_shot(gpus::peers<signals> all, gpus::peers<float> in, float* out, int rank, int ranks,
                         unsigned round) {
  barrier<BUG != 1>(all, &signals::start, rank, ranks, round);
  for (int i = static_cast<int>(blockIdx.x * threads + threadIdx.x); i < count; i += blocks * threads) {
    float sum = 0;
    for (int peer = 0; peer < ranks; ++peer) sum += in.of[peer][i];
    out[i] = sum;
  }
#if BUG != 2
  barrier<true>(all, &signals::end, rank, ranks, round);
#endif
}

__global__ void two_shot(gpus::peers<signals> all, gpus::peers<float> in, gpus::peers<float> partial, float* out,
                         int rank, int ranks, unsigned round) {
  barrier<BUG != 1>(all, &signals::start, rank, ranks, round);
  const int part = count / blocks / ranks;
  const int first = static_cast<int>(blockIdx.x) * count / blocks;
  for (int i = static_cast<int>(threadIdx.x); i < part; i += threads) {
    float sum = 0;
    for (int peer = 0; peer < ranks; ++peer) sum += in.of[peer][first + rank * part + i];
    partial.of[rank][first + i] = sum;
  }
  barrier<BUG != 3>(all, &signals::middle, rank, ranks, round);
  for (int i = static_cast<int>(threadIdx.x); i < part * ranks; i += threads)
    out[first + i] = partial.of[i / part][first + i % part];
}

int main() {
  const int n = gpus::count();
  const auto all = gpus::allocate<signals>(1);
  const auto in = gpus::allocate<float>(count);
  const auto partial = gpus::allocate<float>(count);
  const auto out = gpus::allocate<float>(count);
  int wrong = 0;
  for (const bool in_two : {false, true}) {
    std::vector<std::vector<float>> inputs;
    for (int value = 0; value < rounds + n; ++value) inputs.emplace_back(count, static_cast<float>(value));
    for (int round = 1; round <= rounds; ++round) {
      gpus::on_each([&](int gpu) {
        gpus::upload(in.of[gpu], inputs[static_cast<size_t>(gpu + round - 1)]);
        const auto number = static_cast<unsigned>(in_two ? rounds + round : round);
        if (in_two) {
          two_shot<<<blocks, threads>>>(all, in, partial, out.of[gpu], gpu, n, number);
        } else {
          one_shot<<<blocks, threads>>>(all, in, out.of[gpu], gpu, n, number);
        }
      });
    }
    gpus::synchronize();
    gpus::on_each([&](int gpu) {
      for (const float x : gpus::download(out.of[gpu], count))
        wrong += x != static_cast<float>(n * (n - 1) / 2 + n * (rounds - 1));
    });
  }
  return gpus::finish(wrong);
}
