/// Functions of CUDA that kernels use, as GPUs compute them: of warps, numbers, groups and addresses; and copies of
/// variables and of rows.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>
#include <devcomm/launch.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

namespace cg = cooperative_groups;

// Dynamic shared memory has no place in an unnamed namespace.
__global__ void classify(unsigned* out) {
  __shared__ alignas(64) unsigned staged[4];
  extern __shared__ __align__(128) unsigned char dynamic[];
  unsigned local = threadIdx.x;
  if (threadIdx.x != 0) return;
  staged[1] = 7;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(&staged[1]));
  out[0] = *static_cast<unsigned*>(__cvta_shared_to_generic(address));
  out[1] = (__isShared(staged) != 0) * 8u + (__isGlobal(staged) != 0) * 4u + (__isLocal(&local) != 0) * 2u +
           (__isGlobal(out) != 0);
  out[2] = reinterpret_cast<std::uintptr_t>(staged) % 64 == 0 && reinterpret_cast<std::uintptr_t>(dynamic) % 128 == 0;
}

namespace {

constexpr unsigned threads = 32;

/// What each thread of `kernel(out)` returns for `count` results.
template <class Kernel>
std::vector<unsigned> run(Kernel kernel, unsigned count) {
  unsigned* out = nullptr;
  devcomm::check_cuda(cudaMallocHost(&out, count * sizeof *out), "cudaMallocHost");
  std::memset(out, 0, count * sizeof *out);
  devcomm::launch(kernel, {.block = threads}, out);
  devcomm::check_cuda(cudaDeviceSynchronize(), "kernel");
  const std::vector<unsigned> found(out, out + count);
  devcomm::check_cuda(cudaFreeHost(out), "cudaFreeHost");
  return found;
}

__global__ void reduce_warps(unsigned* out) {
  const unsigned lane = threadIdx.x;
  const unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  const unsigned sum = __reduce_add_sync(half, lane);
  const int least = __reduce_min_sync(0xffffffffu, static_cast<int>(lane) - 20);
  const unsigned most = __reduce_max_sync(half, lane);
  const unsigned all = __reduce_and_sync(half, lane | 8u);
  const unsigned any = __reduce_or_sync(0xffffffffu, 1u << lane);
  const unsigned odd = __reduce_xor_sync(0xffffffffu, lane == 5 ? 9u : 0u);
  if (lane != 3 && lane != 19) return;
  unsigned* const own = out + (lane < 16 ? 0 : 6);
  own[0] = sum;
  own[1] = static_cast<unsigned>(least);
  own[2] = most;
  own[3] = all;
  own[4] = any;
  own[5] = odd;
}

TEST_CASE("reductions of warps are over the lanes of the mask") {
  CHECK(run(reduce_warps, 12) == std::vector<unsigned>{120, static_cast<unsigned>(-20), 15, 8, ~0u, 9, 376,
                                                       static_cast<unsigned>(-20), 31, 24, ~0u, 9});
}

__global__ void use_groups(unsigned* out) {
  const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  const unsigned value = threadIdx.x;
  const unsigned sum = cg::reduce(tile, value, cg::plus<unsigned>());
  const unsigned least = cg::reduce(tile, value, cg::less<unsigned>());
  const unsigned scanned = cg::inclusive_scan(tile, value);
  const unsigned before = cg::exclusive_scan(tile, value, cg::plus<unsigned>());
  const auto third = cg::labeled_partition(cg::tiled_partition<32>(cg::this_thread_block()), threadIdx.x % 3);
  const unsigned most = cg::reduce(third, value, cg::greater<unsigned>());
  const auto side = cg::binary_partition(tile, threadIdx.x % 8 < 3);
  if (threadIdx.x == 10) {
    out[0] = sum;
    out[1] = least;
    out[2] = scanned;
    out[3] = before;
    out[4] = third.size();
    out[5] = most;
    out[6] = side.size();
    out[7] = side.thread_rank();
  }
  cg::invoke_one(tile, [&] { out[8 + threadIdx.x / 8] = 1; });
}

TEST_CASE("groups reduce, scan and part") {
  CHECK(run(use_groups, 12) == std::vector<unsigned>{92, 8, 27, 17, 11, 31, 3, 2, 1, 1, 1, 1});
}

__global__ void compute(unsigned* out) {
  if (threadIdx.x != 0) return;
  out[0] = static_cast<unsigned>(__mulhi(-5, 1 << 30));
  out[1] = static_cast<unsigned>(__umul64hi(~0ull, 16ull));
  out[2] = __funnelshift_l(0x80000000u, 1u, 1);
  out[3] = __funnelshift_r(0x2u, 0x1u, 33);
  out[4] = __funnelshift_rc(0x2u, 0x1u, 40);
  out[5] = static_cast<unsigned>(__dp4a(0x01ff0203, 0x01010101, 10));
  out[6] = __usad(3, 10, 1);
  out[7] = static_cast<unsigned>(__brevll(1ull) >> 32);
  out[8] = static_cast<unsigned>(__hadd(7, 2));
  out[9] = __float_as_uint(__frcp_rn(4.0f));
  out[10] = static_cast<unsigned>(__double2hiint(1.0));
  out[11] = static_cast<unsigned>(__float2int_rd(-1.5f));
  __builtin_assume(out != nullptr);
}

TEST_CASE("functions of numbers compute what GPUs compute") {
  CHECK(run(compute, 12) == std::vector<unsigned>{static_cast<unsigned>(-2), 15, 3, 0x80000001u, 1, 15, 8, 0x80000000u,
                                                  4, 0x3e800000u, 0x3ff00000u, static_cast<unsigned>(-2)});
}

TEST_CASE("addresses say of what memory they are") { CHECK(run(classify, 3) == std::vector<unsigned>{7, 11, 1}); }

__constant__ unsigned weights[4];
__device__ unsigned total;

__global__ void add_up(unsigned* out) {
  if (threadIdx.x != 0) return;
  for (const unsigned weight : weights) total += weight;
  *out = total;
}

TEST_CASE("variables of a GPU are copied to and from") {
  int devices = 0;
  devcomm::check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  cudaStream_t stream = nullptr;
  for (unsigned device = 0; device < 2 && device < static_cast<unsigned>(devices); ++device) {
    devcomm::check_cuda(cudaSetDevice(static_cast<int>(device)), "cudaSetDevice");
    unsigned given[4] = {device, 10, 20, 30};
    const unsigned zero = 0;
    devcomm::check_cuda(cudaMemcpyToSymbol(weights, given, sizeof given), "cudaMemcpyToSymbol");
    devcomm::check_cuda(cudaMemcpyToSymbol(weights, &given[3], 4, 4), "cudaMemcpyToSymbol");
    devcomm::check_cuda(cudaMemcpyToSymbolAsync(total, &zero, 4, 0, cudaMemcpyHostToDevice, stream), "to total");
  }
  for (unsigned device = 0; device < 2 && device < static_cast<unsigned>(devices); ++device) {
    devcomm::check_cuda(cudaSetDevice(static_cast<int>(device)), "cudaSetDevice");
    CHECK(run(add_up, 1) == std::vector<unsigned>{device + 30 + 20 + 30});
    unsigned found = 0;
    devcomm::check_cuda(cudaMemcpyFromSymbol(&found, total, sizeof found), "cudaMemcpyFromSymbol");
    CHECK(found == device + 80);
  }
  devcomm::check_cuda(cudaSetDevice(0), "cudaSetDevice");
  std::size_t bytes = 0;
  CHECK(cudaGetSymbolSize(&bytes, weights) == cudaSuccess);
  CHECK(bytes == 16);
}

TEST_CASE("rows are copied with their pitches") {
  char* device = nullptr;
  devcomm::check_cuda(cudaMalloc(&device, 64), "cudaMalloc");
  devcomm::check_cuda(cudaMemset(device, 0, 64), "cudaMemset");
  char rows[3 * 5];
  std::memcpy(rows, "abcdeABCDE12345", sizeof rows);
  devcomm::check_cuda(cudaMemcpy2D(device + 1, 16, rows, 5, 4, 3, cudaMemcpyHostToDevice), "cudaMemcpy2D");
  char back[64];
  devcomm::check_cuda(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost), "cudaMemcpy");
  CHECK(std::memcmp(back, "\0abcd\0", 6) == 0);
  CHECK(std::memcmp(back + 16, "\0ABCD\0", 6) == 0);
  CHECK(std::memcmp(back + 32,
                    "\0"
                    "1234\0",
                    6) == 0);
  devcomm::check_cuda(cudaMemcpy2DAsync(back, 2, device + 1, 16, 2, 3, cudaMemcpyDefault), "cudaMemcpy2DAsync");
  devcomm::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  CHECK(std::memcmp(back, "abAB12", 6) == 0);
  CHECK(cudaMemcpy2D(device, 3, rows, 5, 4, 3, cudaMemcpyHostToDevice) == cudaErrorInvalidPitchValue);
  static_cast<void>(cudaGetLastError());
  devcomm::check_cuda(cudaFree(device), "cudaFree");
}

}  // namespace
