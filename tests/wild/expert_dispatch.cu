// Tokens to experts with low latency: the warps of a block write tokens into the buffers of peers and count them there.
// Two sets of buffers take turns by an epoch in device memory, which one block raises at the end.
//
// bug 1: block 0 raises the epoch while others have not read it
//   seen in: microsoft/mscclpp 875
//   race: data race .* device memory
// bug 2: the last warp to come stores a shared tail that was counted before
//   seen in: microsoft/mscclpp 8249663d
//   race: data race .* shared memory, variable .*tail
// bug 3: the count of tokens is relaxed
//   seen in: NVIDIA/nccl 3f29db27 (in another form)
//   race: data race .* device memory
// bug 4: a warp leaves a block-wide barrier out
//   seen in: HazyResearch/ThunderKittens dbb4ecda
//   race: data race .* shared memory|deadlock|__syncthreads
// bug 5: two warps post to one queue at once
//   seen in: deepseek-ai/DeepEP issue 181
//   race: data race .* device memory
#include "gpus.cuh"

#include <cuda/atomic>

#if !defined(BUG)
#  define BUG 0
#endif

constexpr int blocks = 2;
constexpr int warps = 4;
constexpr int width = 32;
constexpr int tokens = blocks * warps;  // from each rank to each
constexpr int calls = 3;

struct inbox {
  float token[2][8][tokens][width];
  unsigned arrived[2][8];  // tokens of each rank
};
struct progress {
  unsigned epoch;
  unsigned done;  // blocks
};
/// Of a proxy that sends: what was posted to it.
struct queue {
  unsigned head;
  unsigned locked;
  unsigned entry[tokens * calls];
};

template <class T>
using of_system = cuda::atomic_ref<T, cuda::thread_scope_system>;
template <class T>
using of_device = cuda::atomic_ref<T, cuda::thread_scope_device>;

__device__ void post(queue* q, unsigned value) {
#if BUG != 5
  while (of_device<unsigned>(q->locked).exchange(1, cuda::memory_order_acquire) != 0) {
  }
#endif
  const unsigned at = q->head;
  q->entry[at] = value;
  q->head = at + 1;
#if BUG != 5
  of_device<unsigned>(q->locked).store(0, cuda::memory_order_release);
#endif
}

__global__ void dispatch(gpus::peers<inbox> boxes, gpus::peers<float> out, progress* state, queue* posts, int rank,
                         int ranks) {
  __shared__ unsigned tail;
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x == 0) tail = 0;
  const unsigned epoch = of_device<unsigned>(state->epoch).load(cuda::memory_order_relaxed);
  const unsigned set = epoch % 2;
  __syncthreads();
  const unsigned token = blockIdx.x * warps + warp;
  for (int peer = 0; peer < ranks; ++peer)
    boxes.of[peer]->token[set][rank][token][lane] = static_cast<float>(rank * 100 + token + epoch);
  __syncwarp();
  if (lane == 0) {
    post(posts, token);
#if BUG == 2
    tail = tail + 1;
#else
    atomicAdd(&tail, 1u);
#endif
  }
#if BUG == 4
  if (warp != warps - 1) __syncthreads();
#else
  __syncthreads();
#endif
  if (threadIdx.x < static_cast<unsigned>(ranks)) {
    of_system<unsigned> arrived(boxes.of[threadIdx.x]->arrived[set][rank]);
    arrived.fetch_add(tail, BUG == 3 ? cuda::memory_order_relaxed : cuda::memory_order_release);
  }
  // The tokens that came: block b sums those of the ranks b, b + blocks...
  for (int peer = static_cast<int>(blockIdx.x); peer < ranks; peer += blocks) {
    of_system<unsigned> arrived(boxes.of[rank]->arrived[set][peer]);
    const unsigned expected = (epoch / 2 + 1) * tokens;
    while (arrived.load(cuda::memory_order_acquire) < expected) {
    }
    if (warp == 0) {
      float sum = 0;
      for (int i = 0; i < tokens; ++i) sum += boxes.of[rank]->token[set][peer][i][lane];
      out.of[rank][peer * width + static_cast<int>(lane)] = sum;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
#if BUG == 1
    if (blockIdx.x == 0) state->epoch = epoch + 1;
#else
    if (of_device<unsigned>(state->done).fetch_add(1, cuda::memory_order_acq_rel) == blocks - 1) {
      state->done = 0;
      of_device<unsigned>(state->epoch).store(epoch + 1, cuda::memory_order_relaxed);
    }
#endif
  }
}

int main() {
  const int n = gpus::count();
  const auto boxes = gpus::allocate<inbox>(1);
  const auto out = gpus::allocate<float>(8 * width);
  const auto states = gpus::allocate<progress>(1);
  const auto posts = gpus::allocate<queue>(1);
  int wrong = 0;
  for (int call = 0; call < calls; ++call) {
    gpus::on_each(
        [&](int gpu) { dispatch<<<blocks, warps * 32>>>(boxes, out, states.of[gpu], posts.of[gpu], gpu, n); });
    gpus::synchronize();  // as the engine does between steps
    gpus::on_each([&](int gpu) {
      const auto sums = gpus::download(out.of[gpu], static_cast<size_t>(n) * width);
      for (int i = 0; i < n * width; ++i)
        wrong += sums[static_cast<size_t>(i)] !=
                 static_cast<float>(tokens * (i / width * 100 + call) + tokens * (tokens - 1) / 2);
    });
  }
  gpus::on_each([&](int gpu) {
    const queue q = gpus::download(posts.of[gpu], 1)[0];
    wrong += q.head != tokens * calls;
  });
  return gpus::finish(wrong);
}
