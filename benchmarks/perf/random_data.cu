#include "perf/random_data.hpp"

#include <devcomm/detail/traits.hpp>
#include <devcomm/launch.hpp>

namespace perf {
namespace {

/// A well mixed word for each seed, rank and place (the finaliser of splitmix64).
__device__ std::uint64_t mix(std::uint64_t seed, int rank, std::uint64_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xd1342543de82ef95u + i;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class T>
__device__ T random_element(std::uint64_t seed, int rank, std::uint64_t i) {
  const std::uint64_t word = mix(seed, rank, i);
  if constexpr (devcomm::detail::is_same<T, std::int32_t>) {
    return static_cast<T>(word % 201) - 100;
  } else if constexpr (devcomm::detail::is_same<T, double>) {
    return static_cast<double>(word >> 11) * 0x1p-52 - 1.0;
  } else {
    return static_cast<T>(static_cast<float>(word >> 40) * 0x1p-23f - 1.0f);
  }
}

/// Half the distance from 1 to the next number.
template <class T>
constexpr double rounding = devcomm::detail::is_same<T, double>          ? 0x1p-53
                            : devcomm::detail::is_same<T, float>         ? 0x1p-24
                            : devcomm::detail::is_same<T, __half>        ? 0x1p-11
                            : devcomm::detail::is_same<T, __nv_bfloat16> ? 0x1p-8
                                                                         : 0;

template <class T>
__device__ double to_double(T value) {
  if constexpr (sizeof(T) == 2) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
__global__ void fill(T* data, std::uint64_t count, int rank, std::uint64_t seed) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = random_element<T>(seed, rank, i);
}

template <class T>
__global__ void count_wrong(const T* data, std::uint64_t count, int ranks, std::uint64_t seed,
                            unsigned long long* wrong) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    double exact = 0;
    double magnitude = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto element = to_double(random_element<T>(seed, rank, i));
      exact += element;
      magnitude += element < 0 ? -element : element;
    }
    const double error = to_double(data[i]) - exact;
    const double bound = magnitude * ranks * rounding<T>;
    if (!(error <= bound && -error <= bound)) atomicAdd(wrong, 1ull);
  }
}

devcomm::launch_config shape_for(std::uint64_t count, cudaStream_t stream) {
  constexpr unsigned threads = 256;
  const std::uint64_t blocks = (count + threads - 1) / threads;
  return {.grid = static_cast<unsigned>(blocks < 1024 ? blocks : 1024), .block = threads, .stream = stream};
}

}  // namespace

void fill_random(void* data, std::uint64_t count, data_type type, int rank, std::uint64_t seed, cudaStream_t stream) {
  with_type(type, [&]<class T>(T) {
    devcomm::launch(fill<T>, shape_for(count, stream), static_cast<T*>(data), count, rank, seed);
  });
}

std::uint64_t count_wrong_sums(const void* data, std::uint64_t count, data_type type, int ranks, std::uint64_t seed,
                               cudaStream_t stream) {
  unsigned long long* wrong = nullptr;
  unsigned long long result = 0;
  devcomm::check_cuda(cudaMalloc(reinterpret_cast<void**>(&wrong), sizeof *wrong), "cudaMalloc");
  devcomm::check_cuda(cudaMemsetAsync(wrong, 0, sizeof *wrong, stream), "cudaMemsetAsync");
  with_type(type, [&]<class T>(T) {
    devcomm::launch(count_wrong<T>, shape_for(count, stream), static_cast<const T*>(data), count, ranks, seed, wrong);
  });
  devcomm::check_cuda(cudaMemcpyAsync(&result, wrong, sizeof result, cudaMemcpyDeviceToHost, stream),
                      "cudaMemcpyAsync");
  devcomm::check_cuda(cudaStreamSynchronize(stream), "the check of the results");
  devcomm::check_cuda(cudaFree(wrong), "cudaFree");
  return result;
}

}  // namespace perf
