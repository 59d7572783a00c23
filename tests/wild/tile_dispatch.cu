// Tokens to a peer by bulk copies, as expert parallelism on Hopper sends them: a warp loads a token into shared memory,
// adds its scale there, stores it to the peer, and then counts it.
//
// bug 1: a stage is loaded again while the store of the token before still reads it
//   seen in: deepseek-ai/DeepEP 2dfbdb9
//   race: not ordered with the earlier read of .* by cp.async.bulk
// bug 2: the count is relaxed
//   seen in: NVIDIA/nccl 3f29db27
//   race: data race .* device memory
// bug 3: no fence of proxies between the scaling and the store
//   seen in: NVIDIA/nccl 3f29db27
//   race: missing fence before a bulk copy
// bug 4: the store has read its source, but not written, when it is counted
//   race: data race .* device memory
// bug 5: two warps use one mbarrier that expects one of them
//   seen in: deepseek-ai/DeepEP db9abbe
//   race: gets more than the|data race .* shared memory|deadlock
#include "gpus.cuh"

#include <cuda/atomic>
#include <cuda/ptx>

#if !defined(BUG)
#  define BUG 0
#endif

namespace ptx = cuda::ptx;

constexpr int warps = 2;
constexpr int tokens = 4;  // of each warp
constexpr int width = 64;

struct inbox {
  alignas(16) float token[warps * tokens][width];
  unsigned arrived;
};

using counter = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;

__global__ void send(const float* in, inbox* to, inbox* own, float* out) {
  __shared__ alignas(128) float stage[warps][width];
  __shared__ uint64_t loaded[warps];
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  uint64_t* const barrier = &loaded[BUG == 5 ? 0 : warp];
  if (lane == 0) {
    if (BUG != 5 || warp == 0) ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  for (int i = 0; i < tokens; ++i) {
    const int token = static_cast<int>(warp) * tokens + i;
    if (lane == 0) {
#if BUG != 1
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
#endif
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier, sizeof stage[warp]);
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[warp], in + token * width, sizeof stage[warp],
                         barrier);
    }
    while (!ptx::mbarrier_try_wait_parity(barrier, i & 1)) {
    }
    for (unsigned k = lane; k < width; k += 32) stage[warp][k] *= 2;
#if BUG != 3
    ptx::fence_proxy_async(ptx::space_shared);
#endif
    __syncwarp();
    if (lane == 0) {
      ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, to->token[token], stage[warp], sizeof stage[warp]);
      ptx::cp_async_bulk_commit_group();
    }
  }
  if (lane == 0) {
#if BUG == 4
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
#else
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
#endif
    counter(to->arrived).fetch_add(tokens, BUG == 2 ? cuda::memory_order_relaxed : cuda::memory_order_release);
  }
  while (counter(own->arrived).load(cuda::memory_order_acquire) < warps * tokens) {
  }
  for (unsigned k = threadIdx.x; k < warps * tokens * width; k += warps * 32) out[k] = own->token[k / width][k % width];
}

int main() {
  const int n = gpus::count();
  constexpr int count = warps * tokens * width;
  const auto in = gpus::allocate<float>(count);
  const auto boxes = gpus::allocate<inbox>(1);
  const auto out = gpus::allocate<float>(count);
  gpus::on_each([&](int gpu) { gpus::upload(in.of[gpu], std::vector<float>(count, static_cast<float>(gpu + 1))); });
  gpus::synchronize();
  gpus::on_each(
      [&](int gpu) { send<<<1, warps * 32>>>(in.of[gpu], boxes.of[(gpu + 1) % n], boxes.of[gpu], out.of[gpu]); });
  gpus::synchronize();
  int wrong = 0;
  gpus::on_each([&](int gpu) {
    for (const float x : gpus::download(out.of[gpu], count))
      wrong += x != static_cast<float>(2 * ((gpu + n - 1) % n + 1));
  });
  return gpus::finish(wrong);
}
