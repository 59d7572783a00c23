// Adds one to a matrix, tile by tile, by tensor maps and libcu++'s barrier. Tiles at the edge are partly outside.
// options: --ranks 1
//
// bug 1: no fence of proxies between the sums and the copy that stores them
//   race: missing fence before a bulk copy .* variable .*tile
// bug 2: the tile is used before it is there
//   race: data race .* variable .*tile
// bug 3: the tile is not aligned as tensor copies need it
//   plain: lies in shared memory at a multiple of 128 bytes
#include <cuda.h>
#include <cuda_runtime.h>
#include <cuda/barrier>

#include <cstdio>
#include <utility>
#include <vector>

#if !defined(BUG)
#  define BUG 0
#endif

namespace cde = cuda::device::experimental;

constexpr int height = 37;
constexpr int width = 48;
constexpr int tile_height = 8;
constexpr int tile_width = 32;

__global__ void add_one(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
#if BUG == 3
  __shared__ alignas(128) float room[tile_height * tile_width + 4];
  auto& tile = *reinterpret_cast<float(*)[tile_height][tile_width]>(room + 4);
#else
  __shared__ alignas(128) float tile[tile_height][tile_width];
#endif
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> loaded;
  if (threadIdx.x == 0) {
    init(&loaded, blockDim.x);
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  const int x = static_cast<int>(blockIdx.x) * tile_width;
  const int y = static_cast<int>(blockIdx.y) * tile_height;
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_tensor_2d_global_to_shared(&tile, &in, x, y, loaded);
    auto token = cuda::device::barrier_arrive_tx(loaded, 1, sizeof tile);
    if (BUG != 2) loaded.wait(std::move(token));
  } else {
    auto token = loaded.arrive();
    if (BUG != 2) loaded.wait(std::move(token));
  }
  for (int row = 0; row < tile_height; ++row) tile[row][threadIdx.x] += 1;
#if BUG != 1
  cde::fence_proxy_async_shared_cta();
#endif
  __syncthreads();
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_tensor_2d_shared_to_global(&out, x, y, &tile);
    cde::cp_async_bulk_commit_group();
    cde::cp_async_bulk_wait_group_read<0>();
  }
}

CUtensorMap map_of(float* matrix) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
  CUtensorMap map;
  const cuuint64_t size[] = {width, height};
  const cuuint64_t stride[] = {width * sizeof(float)};
  const cuuint32_t box[] = {tile_width, tile_height};
  const cuuint32_t step[] = {1, 1};
  const CUresult status = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, matrix, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) std::printf("no map: %d\n", static_cast<int>(status));
  return map;
}

int main() {
  std::vector<float> host(height * width);
  for (int i = 0; i < height * width; ++i) host[i] = static_cast<float>(i);
  const size_t bytes = host.size() * sizeof(float);
  float *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, host.data(), bytes, cudaMemcpyHostToDevice);
  const dim3 grid((width + tile_width - 1) / tile_width, (height + tile_height - 1) / tile_height);
  add_one<<<grid, tile_width>>>(map_of(in), map_of(out));
  cudaMemcpy(host.data(), out, bytes, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < height * width; ++i) wrong += host[i] != static_cast<float>(i + 1);
  std::printf("%s: %d wrong\n", cudaGetErrorString(cudaGetLastError()), wrong);
  return wrong != 0;
}
