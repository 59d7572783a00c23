// Doubles an array in tiles: one thread loads tiles by bulk copies into two stages, 256 threads compute, and one of
// them stores results by bulk copies. Mbarriers say which stages are full and which are empty. options: --ranks 1
//
// bug 1: the producer does not wait until a stage is empty
//   race: gets more than the 1 arrivals that it expects
// bug 2: the copy has fewer bytes than the mbarrier expects
//   plain: deadlock.*\n.*threads 0-255: polls the mbarrier .* lacks 0 of 1 arrivals and 128 bytes
// bug 3: consumers wait for the wrong parity
//   race: data race .* shared memory, variable .*stage
// bug 4: results are written while the store of those before still reads them
//   race: not ordered with the earlier read of 1024 bytes by cp.async.bulk
// bug 5: no fence of proxies between the results and the copy that stores them
//   race: missing fence before a bulk copy .* variable .*result
// bug 6: the block ends before its last store has read the results
//   plain: ends without waiting for its bulk copies from shared memory
// bug 7: consumers do not wait until a stage is full
//   race: data race .* variable .*stage
// bug 8: nobody waits until the mbarriers are there
//   race: there is no mbarrier|data race .* variable .*(full|empty)
// bug 9: consumers arrive at a stage's mbarrier before they read the stage
//   race: data race .* variable .*stage
// bug 10: the mbarrier of a stage lies in memory that holds other data
//   plain: the mbarrier's memory was overwritten
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#if !defined(BUG)
#  define BUG 0
#endif

constexpr int stages = 2;
constexpr int consumers = 256;
constexpr int tiles = 6;

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ void expect(uint64_t* barrier, int bytes) {
  asm volatile(
      "{\n"
      "  .reg .b64 state;\n"
      "  mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ void wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      "  .reg .pred done;\n"
      "again:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "  @!done bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ void load(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ void store(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ void sync_consumers() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

__global__ void doubled(const float* in, float* out) {
  __shared__ alignas(128) float stage[stages][consumers];
  __shared__ alignas(128) float result[consumers];
  __shared__ uint64_t full[stages];
  __shared__ uint64_t empty[stages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      init(&full[s], 1);
      init(&empty[s], consumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
#if BUG != 8
  __syncthreads();
#endif
  if (threadIdx.x == consumers) {
    for (int t = 0; t < tiles; ++t) {
      const int s = t % stages;
#if BUG != 1
      wait(&empty[s], (t / stages & 1) ^ 1);
#endif
      expect(&full[s], sizeof stage[s]);
      load(stage[s], in + t * consumers, BUG == 2 ? sizeof stage[s] - 128 : sizeof stage[s], &full[s]);
    }
  }
  if (threadIdx.x >= consumers) return;
  for (int t = 0; t < tiles; ++t) {
    const int s = t % stages;
#if BUG != 7
    wait(&full[s], (t / stages & 1) ^ (BUG == 3 ? 1 : 0));
#endif
#if BUG == 9
    arrive(&empty[s]);
    const float x = stage[s][threadIdx.x];
#else
    const float x = stage[s][threadIdx.x];
    arrive(&empty[s]);
#endif
#if BUG != 4
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
    sync_consumers();
#if BUG == 10
    reinterpret_cast<float*>(full)[threadIdx.x % 4] = 2 * x;
#else
    result[threadIdx.x] = 2 * x;
#endif
#if BUG != 5
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    sync_consumers();
    if (threadIdx.x == 0) store(out + t * consumers, result, sizeof result);
  }
#if BUG != 6
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

int main() {
  std::vector<float> host(tiles * consumers);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  const size_t bytes = host.size() * sizeof(float);
  float *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, host.data(), bytes, cudaMemcpyHostToDevice);
  doubled<<<1, consumers + 32>>>(in, out);
  cudaMemcpy(host.data(), out, bytes, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (size_t i = 0; i < host.size(); ++i) wrong += host[i] != static_cast<float>(2 * i);
  std::printf("%s: %d wrong\n", cudaGetErrorString(cudaGetLastError()), wrong);
  return wrong != 0;
}
