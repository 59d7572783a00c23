/// CUB's block and warp primitives, from CCCL's own headers, against the host's sums. The same source runs on GPUs.
#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/thread/thread_load.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

#include <cuda_runtime.h>
#include <devcomm/launch.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

namespace {

/// In memory that kernels and the host use.
template <class T>
class array {
 public:
  template <class Count>
  explicit array(Count count) {
    const auto elements = static_cast<std::size_t>(count);
    devcomm::check_cuda(cudaMallocHost(&data_, elements * sizeof(T)), "cudaMallocHost");
    std::fill_n(data_, elements, T{});
  }
  ~array() { cudaFreeHost(data_); }
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  T* get() const { return data_; }
  template <class Index>
  T& operator[](Index i) const {
    return data_[i];
  }

 private:
  T* data_ = nullptr;
};

void finish() { devcomm::check_cuda(cudaDeviceSynchronize(), "kernel"); }

/// Small whole numbers: sums are exact in every type, in any order.
template <class T>
T value(std::size_t i) {
  return static_cast<T>(i * 7 % 13);
}

/// A type without a shuffle of its own.
struct pair {
  float first;
  int second;
};
struct larger_first {
  __host__ __device__ pair operator()(const pair& a, const pair& b) const { return a.first >= b.first ? a : b; }
};
struct larger {
  template <class T>
  __host__ __device__ T operator()(const T& a, const T& b) const {
    return a > b ? a : b;
  }
};

template <class T, int Threads, cub::BlockReduceAlgorithm Algorithm>
__global__ void reduce_block(const T* in, T* out, int valid) {
  using reduce = cub::BlockReduce<T, Threads, Algorithm>;
  __shared__ typename reduce::TempStorage storage;
  const T mine = in[threadIdx.x];
  const T sum = reduce(storage).Sum(mine);
  __syncthreads();
  const T largest = reduce(storage).Reduce(mine, larger{});
  __syncthreads();
  const T part = reduce(storage).Sum(mine, valid);
  if (threadIdx.x != 0) return;
  out[0] = sum;
  out[1] = largest;
  out[2] = part;
}

template <class T, int Threads, cub::BlockReduceAlgorithm Algorithm>
void check_reduction() {
  const array<T> in(Threads);
  const array<T> out(3);
  for (int i = 0; i < Threads; ++i) in[i] = value<T>(static_cast<std::size_t>(i));
  const int valid = Threads / 2 + 1;
  devcomm::launch(reduce_block<T, Threads, Algorithm>, {.block = Threads}, in.get(), out.get(), valid);
  finish();
  CHECK(out[0] == std::accumulate(in.get(), in.get() + Threads, T{}));
  CHECK(out[1] == *std::max_element(in.get(), in.get() + Threads));
  CHECK(out[2] == std::accumulate(in.get(), in.get() + valid, T{}));
}

template <int LogicalThreads, class T>
__global__ void reduce_warp(const T* in, T* out) {
  using reduce = cub::WarpReduce<T, LogicalThreads>;
  __shared__ typename reduce::TempStorage storage[64 / LogicalThreads];
  const int warp = static_cast<int>(threadIdx.x) / LogicalThreads;
  const T sum = reduce(storage[warp]).Sum(in[threadIdx.x]);
  if (threadIdx.x % LogicalThreads == 0) out[warp] = sum;
}

template <int LogicalThreads, class T>
void check_warp_reduction() {
  const array<T> in(64);
  const array<T> out(64);
  for (std::size_t i = 0; i < 64; ++i) in[i] = value<T>(i);
  devcomm::launch(reduce_warp<LogicalThreads, T>, {.block = 64}, in.get(), out.get());
  finish();
  for (int warp = 0; warp < 64 / LogicalThreads; ++warp) {
    const T* const first = in.get() + warp * LogicalThreads;
    CHECK(out[static_cast<std::size_t>(warp)] == std::accumulate(first, first + LogicalThreads, T{}));
  }
}

__global__ void largest_pair(pair* out) {
  using reduce = cub::BlockReduce<pair, 96>;
  __shared__ reduce::TempStorage storage;
  const int i = static_cast<int>(threadIdx.x);
  const pair best = reduce(storage).Reduce(pair{static_cast<float>((i * 37) % 96), i}, larger_first{});
  if (i == 0) *out = best;
}

template <class T, int Threads, cub::BlockScanAlgorithm Algorithm>
__global__ void scan_block(const T* in, T* inclusive, T* exclusive, T* total) {
  using scan = cub::BlockScan<T, Threads, Algorithm>;
  __shared__ typename scan::TempStorage storage;
  scan(storage).InclusiveSum(in[threadIdx.x], inclusive[threadIdx.x]);
  __syncthreads();
  T sum;
  scan(storage).ExclusiveSum(in[threadIdx.x], exclusive[threadIdx.x], sum);
  if (threadIdx.x == Threads - 1) *total = sum;
}

template <class T, int Threads, cub::BlockScanAlgorithm Algorithm>
void check_scan() {
  const array<T> in(Threads);
  const array<T> inclusive(Threads);
  const array<T> exclusive(Threads);
  const array<T> total(1);
  for (int i = 0; i < Threads; ++i) in[i] = value<T>(static_cast<std::size_t>(i));
  devcomm::launch(scan_block<T, Threads, Algorithm>, {.block = Threads}, in.get(), inclusive.get(), exclusive.get(),
                  total.get());
  finish();
  T sum{};
  for (int i = 0; i < Threads; ++i) {
    CHECK(exclusive[i] == sum);
    sum = static_cast<T>(sum + in[i]);
    CHECK(inclusive[i] == sum);
  }
  CHECK(total[0] == sum);
}

template <class T>
__global__ void scan_warp(const T* in, T* sums, T* largest) {
  using scan = cub::WarpScan<T>;
  __shared__ typename scan::TempStorage storage[2];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  scan(storage[warp]).InclusiveSum(in[threadIdx.x], sums[threadIdx.x]);
  __syncwarp();
  scan(storage[warp]).InclusiveScan(in[threadIdx.x], largest[threadIdx.x], larger{});
}

template <class T>
void check_warp_scan() {
  const array<T> in(64);
  const array<T> sums(64);
  const array<T> largest(64);
  for (std::size_t i = 0; i < 64; ++i) in[i] = value<T>(i);
  devcomm::launch(scan_warp<T>, {.block = 64}, in.get(), sums.get(), largest.get());
  finish();
  for (std::size_t i = 0; i < 64; ++i) {
    T* const first = in.get() + i / 32 * 32;
    CHECK(sums[i] == std::accumulate(first, in.get() + i + 1, T{}));
    CHECK(largest[i] == *std::max_element(first, in.get() + i + 1));
  }
}

constexpr int copy_threads = 64;
constexpr int copy_items = 4;

/// Reverses each thread's items, so that the arrangement shows.
template <class T, cub::BlockLoadAlgorithm Load, cub::BlockStoreAlgorithm Store>
__global__ void reverse_items(T* in, T* out, int valid) {
  using load = cub::BlockLoad<T, copy_threads, copy_items, Load>;
  using store = cub::BlockStore<T, copy_threads, copy_items, Store>;
  __shared__ union {
    typename load::TempStorage for_load;
    typename store::TempStorage for_store;
  } storage;
  T items[copy_items];
  load(storage.for_load).Load(in, items, valid, T{99});
  for (int i = 0; i < copy_items / 2; ++i) {
    const T kept = items[i];
    items[i] = items[copy_items - 1 - i];
    items[copy_items - 1 - i] = kept;
  }
  __syncthreads();
  store(storage.for_store).Store(out, items);
}

template <class T, cub::BlockLoadAlgorithm Load, cub::BlockStoreAlgorithm Store>
void check_copy(bool striped) {
  constexpr std::size_t count = copy_threads * copy_items;
  const array<T> in(count);
  const array<T> out(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = value<T>(i);
  for (const std::size_t valid : {count, count - 3}) {
    devcomm::launch(reverse_items<T, Load, Store>, {.block = copy_threads}, in.get(), out.get(),
                    static_cast<int>(valid));
    finish();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t item = striped ? i / copy_threads : i % copy_items;
      const std::size_t thread = striped ? i % copy_threads : i / copy_items;
      const std::size_t other = copy_items - 1 - item;
      const std::size_t from = striped ? other * copy_threads + thread : thread * copy_items + other;
      CHECK(out[i] == (from < valid ? in[from] : T{99}));
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("cub::BlockReduce reduces over a block", "", int, unsigned, float, double, long long, short,
                   unsigned long long) {
  check_reduction<TestType, 128, cub::BLOCK_REDUCE_WARP_REDUCTIONS>();
  check_reduction<TestType, 32, cub::BLOCK_REDUCE_WARP_REDUCTIONS>();
  check_reduction<TestType, 100, cub::BLOCK_REDUCE_WARP_REDUCTIONS>();
  check_reduction<TestType, 128, cub::BLOCK_REDUCE_RAKING>();
  check_reduction<TestType, 128, cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>();
}

TEST_CASE("cub::BlockReduce reduces a type of one's own by an operation of one's own") {
  const array<pair> out(1);
  devcomm::launch(largest_pair, {.block = 96}, out.get());
  finish();
  CHECK(out[0].first == 95.0f);
  CHECK(out[0].second * 37 % 96 == 95);
}

TEMPLATE_TEST_CASE("cub::WarpReduce reduces over each logical warp", "", int, unsigned, float, double, long long) {
  check_warp_reduction<32, TestType>();
  check_warp_reduction<16, TestType>();
  check_warp_reduction<8, TestType>();
}

TEMPLATE_TEST_CASE("cub::BlockScan gives inclusive and exclusive sums", "", int, unsigned, float, double, long long,
                   unsigned long long) {
  check_scan<TestType, 128, cub::BLOCK_SCAN_WARP_SCANS>();
  check_scan<TestType, 128, cub::BLOCK_SCAN_RAKING>();
  check_scan<TestType, 96, cub::BLOCK_SCAN_RAKING_MEMOIZE>();
}

TEMPLATE_TEST_CASE("cub::WarpScan scans each warp", "", int, unsigned, float, double, long long) {
  check_warp_scan<TestType>();
}

TEMPLATE_TEST_CASE("cub::BlockLoad and BlockStore agree on who has which item", "", int, float, double, short) {
  check_copy<TestType, cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>(false);
  check_copy<TestType, cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>(true);
  check_copy<TestType, cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>(false);
  check_copy<TestType, cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>(false);
  check_copy<TestType, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(false);
}

#if defined(DEVCOMM_SIMULATOR)
namespace {

template <cub::CacheLoadModifier Modifier, class T>
__global__ void write_and_load(T* data) {
  data[threadIdx.x] = T{};
  data[32 + threadIdx.x] = cub::ThreadLoad<Modifier>(data + threadIdx.x);
}
/// The race reports of a kernel that loads what it has written, ordered as a thread's own accesses are.
template <cub::CacheLoadModifier Modifier, class T>
std::uint64_t reports() {
  devcomm::simulator::clear_races();
  const array<T> data(64);
  devcomm::launch(write_and_load<Modifier, T>, {.block = 32}, data.get());
  finish();
  const std::uint64_t found = devcomm::simulator::race_reports();
  devcomm::simulator::clear_races();
  return found;
}

}  // namespace

TEST_CASE("cub::ThreadLoad by LOAD_LDG is reported where __ldg is") {
  const std::uint64_t found = devcomm::simulator::detects_races() ? 1 : 0;
  CHECK(reports<cub::LOAD_LDG, int>() == found);
  CHECK(reports<cub::LOAD_LDG, uint4>() == found);
  CHECK(reports<cub::LOAD_CA, int>() == 0);
  CHECK(reports<cub::LOAD_CG, uint4>() == 0);
  CHECK(reports<cub::LOAD_DEFAULT, int>() == 0);
}
#endif
