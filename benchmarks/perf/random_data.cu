#include "perf/random_data.hpp"

#include "perf/random_element.cuh"

#include <devcomm/launch.hpp>

namespace perf {
namespace {

template <class T>
__global__ void fill(T* data, std::uint64_t count, int rank, std::uint64_t seed) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = random_element<T>(seed, rank, i);
}

template <class T>
struct is_sum {
  int ranks;
  std::uint64_t seed;
  std::uint64_t first;

  __device__ bool operator()(std::uint64_t i, T value) const {
    double exact = 0;
    double magnitude = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto element = to_double(random_element<T>(seed, rank, first + i));
      exact += element;
      magnitude += element < 0 ? -element : element;
    }
    const double error = to_double(value) - exact;
    const double bound = magnitude * ranks * rounding<T>;
    return error <= bound && -error <= bound;
  }
};

template <class T>
struct is_of_piece {
  pieces right;
  std::uint64_t seed;

  __device__ bool operator()(std::uint64_t i, T value) const {
    const T sent =
        random_element<T>(seed, right.rank + static_cast<int>(i / right.length), right.first + i % right.length);
    return to_double(value) == to_double(sent);
  }
};

template <class T, class IsRight>
__global__ void count_wrong(const T* data, std::uint64_t count, IsRight is_right, unsigned long long* wrong) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    if (!is_right(i, data[i])) atomicAdd(wrong, 1ull);
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

std::uint64_t count_on_device(cudaStream_t stream, const std::function<void(unsigned long long*)>& count) {
  unsigned long long* place = nullptr;
  unsigned long long result = 0;
  devcomm::check_cuda(cudaMalloc(reinterpret_cast<void**>(&place), sizeof *place), "cudaMalloc");
  devcomm::check_cuda(cudaMemsetAsync(place, 0, sizeof *place, stream), "cudaMemsetAsync");
  count(place);
  devcomm::check_cuda(cudaMemcpyAsync(&result, place, sizeof result, cudaMemcpyDeviceToHost, stream),
                      "cudaMemcpyAsync");
  devcomm::check_cuda(cudaStreamSynchronize(stream), "the check of the results");
  devcomm::check_cuda(cudaFree(place), "cudaFree");
  return result;
}

std::uint64_t count_wrong_sums(const work& what, std::uint64_t first, std::uint64_t count, std::uint64_t seed) {
  return count_on_device(what.stream, [&](unsigned long long* wrong) {
    with_type(what.type, [&]<class T>(T) {
      devcomm::launch(count_wrong<T, is_sum<T>>, shape_for(count, what.stream), static_cast<const T*>(what.output),
                      count, is_sum<T>{what.ranks, seed, first}, wrong);
    });
  });
}

std::uint64_t count_wrong_pieces(const work& what, const pieces& right, std::uint64_t seed) {
  return count_on_device(what.stream, [&](unsigned long long* wrong) {
    with_type(what.type, [&]<class T>(T) {
      devcomm::launch(count_wrong<T, is_of_piece<T>>, shape_for(what.count(), what.stream),
                      static_cast<const T*>(what.output), what.count(), is_of_piece<T>{right, seed}, wrong);
    });
  });
}

}  // namespace perf
