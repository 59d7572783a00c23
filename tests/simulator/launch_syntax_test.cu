/// Launches by `<<<>>>`. The same source runs on GPUs.
#include <cuda_runtime.h>
#include <devcomm/launch.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

// clang-format off
#define LAUNCH_IN_MACRO(kernel, count, ...) \
  kernel<<<1,                               \
           count>>>(__VA_ARGS__)
// clang-format on

extern __shared__ int launch_syntax_shared[];

namespace {

/// In memory that kernels and the host use.
struct words {
  words() { devcomm::check_cuda(cudaMallocHost(&data, 1024 * sizeof(int)), "cudaMallocHost"); }
  ~words() { cudaFreeHost(data); }
  words(const words&) = delete;
  words& operator=(const words&) = delete;
  int* data = nullptr;
};

void finish() {
  devcomm::check_cuda(cudaGetLastError(), "launch");
  devcomm::check_cuda(cudaDeviceSynchronize(), "kernel");
}

__global__ void write_line(int* out, int line) {
  const unsigned block = blockIdx.x + blockIdx.y * gridDim.x;
  out[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * block)] = line;
}

template <class T, int N>
__global__ void fill(T* out, T value) {
  for (int i = 0; i < N; ++i) out[i] = value;
}

template <class A, class B>
struct two {
  A a;
  B b;
};

template <class T>
__global__ void write_size(int* out) {
  *out = static_cast<int>(sizeof(T));
}

template <bool Yes>
__global__ void write_bool(int* out) {
  *out = Yes ? 1 : 2;
}

/// Its parameters follow from the arguments, but for a number that is converted.
template <class T>
__global__ void deduced(T* out, std::size_t count, T value) {
  for (std::size_t i = 0; i < count; ++i) out[i] = value;
}

__global__ void overloaded(int* out) { *out = 1; }
__global__ void overloaded(int* out, int value) { *out = value; }

__global__ void takes_wide(int* out, std::uint64_t wide) { *out = wide == 7 ? 1 : 0; }

__global__ void with_shared(int* out, int count) {
  for (int i = 0; i < count; ++i) launch_syntax_shared[i] = i;
  *out = launch_syntax_shared[count - 1];
}

namespace inner {
__global__ void scoped(int* out) { *out = 77; }
}  // namespace inner

int twice(int a, int b) { return 2 * (a + b); }

struct holder {
  void (*kernel)(int*, int) = &write_line;
  void (*of(int))(int*, int) { return kernel; }
};

}  // namespace

TEST_CASE("a launch by <<<>>> runs every thread of its grid") {
  const words memory;
  write_line<<<2, 32>>>(memory.data, 5);
  finish();
  for (int i = 0; i < 64; ++i) CHECK(memory.data[i] == 5);
  // clang-format off
  write_line<<<dim3(1, 2), dim3{16, 2}>>>(memory.data, 6); finish();
  // clang-format on
  CHECK(memory.data[63] == 6);
}

TEST_CASE("a launch by <<<>>> may be of a template, and spread over lines") {
  const words memory;
  fill<int, 3><<<1, 1>>>(memory.data, 9);
  finish();
  CHECK(memory.data[2] == 9);
  // clang-format off
  fill<int,
       (4 > 3 ? 5 : 1)>  // a comment with <<<1, 1>>> in it
      <<<dim3(1),
         dim3(1, 1), 0,
         nullptr>>>(memory.data,
                    twice(1, (2)));
  // clang-format on
  finish();
  CHECK(memory.data[4] == 6);
  write_size<two<int, std::pair<char, two<int, int>>>><<<1, 1>>>(memory.data);
  finish();
  CHECK(memory.data[0] == 16);
  write_bool<(3 < 4)><<<1, 1>>>(memory.data);
  finish();
  CHECK(memory.data[0] == 1);
  write_bool<3 >= 4><<<1, 1>>>(memory.data);
  finish();
  CHECK(memory.data[0] == 2);
  const std::map<int, std::map<int, std::map<int, int>>>* nothing = nullptr;
  CHECK(nothing == nullptr);
}

TEST_CASE("what looks like a launch in strings and comments stays") {
  const std::string text = "kernel<<<1, 1>>>(a)";
  CHECK(text.size() == 19);
  CHECK(std::string(R"(x<<<1>>>(")") == "x<<<1>>>(\"");
  /* write_line<<<1, 1>>>(nullptr, 1); */
  CHECK('<' == '<');
}

TEST_CASE("a launch by <<<>>> converts its arguments to the kernel's parameters") {
  const words memory;
  takes_wide<<<1, 1>>>(memory.data, 7);
  finish();
  CHECK(memory.data[0] == 1);
}

TEST_CASE("a launch by <<<>>> finds templates by their arguments, and overloads") {
  const words memory;
  deduced<<<1, 1>>>(memory.data, 4u, 8);  // 4u is converted
  finish();
  CHECK(memory.data[3] == 8);
  deduced<<<1, 1>>>(memory.data, std::size_t{2}, 3);
  finish();
  CHECK(memory.data[1] == 3);
  CHECK(memory.data[2] == 8);
  overloaded<<<1, 1>>>(memory.data);
  finish();
  CHECK(memory.data[0] == 1);
  overloaded<<<1, 1>>>(memory.data, 21);
  finish();
  CHECK(memory.data[0] == 21);
}

TEST_CASE("the kernel of a launch by <<<>>> may be any expression") {
  const words memory;
  inner::scoped<<<1, 1>>>(memory.data);
  finish();
  CHECK(memory.data[0] == 77);
  ::inner::scoped<<<1, 1>>>(memory.data);
  finish();
  void (*kernel)(int*, int) = &write_line;
  kernel<<<1, 1>>>(memory.data, 3);
  finish();
  CHECK(memory.data[0] == 3);
  (*kernel)<<<1, 1>>>(memory.data, 4);
  finish();
  CHECK(memory.data[0] == 4);
  holder held;
  held.kernel<<<1, 1>>>(memory.data, 5);
  finish();
  CHECK(memory.data[0] == 5);
  held.of(1)<<<1, 1>>>(memory.data, 6);
  finish();
  CHECK(memory.data[0] == 6);
  if (memory.data[0] == 6) LAUNCH_IN_MACRO(write_line, 1, memory.data, 7);
  finish();
  CHECK(memory.data[0] == 7);
}

TEST_CASE("a launch by <<<>>> has shared memory and a stream") {
  const words memory;
  cudaStream_t stream = nullptr;
  devcomm::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  with_shared<<<1, 1, 100 * sizeof(int), stream>>>(memory.data, 100);
  devcomm::check_cuda(cudaStreamSynchronize(stream), "kernel");
  CHECK(memory.data[0] == 99);
  with_shared<<<1, 1, 40, 0>>>(memory.data, 10);
  finish();
  CHECK(memory.data[0] == 9);
  devcomm::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

TEST_CASE("an error of a launch by <<<>>> is kept for cudaGetLastError") {
  const words memory;
  write_line<<<1, 4096>>>(memory.data, 1);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("lines keep their numbers around launches by <<<>>>") {
  const words memory;
  // clang-format off
  const int before = __LINE__;
  write_line
      <<<1,
         1>>>(
          memory.data, __LINE__);
  const int after = __LINE__;
  // clang-format on
  finish();
  CHECK(after == before + 5);
  CHECK(memory.data[0] == before + 4);
}
