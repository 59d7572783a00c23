// What these programs share: a thread for each GPU, and results that are checked.
#pragma once

#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#define CHECK_CUDA(call)                                                                   \
  do {                                                                                     \
    const cudaError_t result = (call);                                                     \
    if (result != cudaSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(result)); \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)
#define CHECK_NCCL(call)                                                                   \
  do {                                                                                     \
    const ncclResult_t result = (call);                                                    \
    if (result != ncclSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, ncclGetErrorString(result)); \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

/// Memory of a rank with a window.
struct Buffer {
  float* data = nullptr;
  ncclWindow_t window = nullptr;
};

struct Rank {
  int rank;
  int ranks;
  ncclComm_t comm;
  cudaStream_t stream;

  Buffer allocate(std::size_t count) const {
    Buffer made;
    CHECK_NCCL(ncclMemAlloc(reinterpret_cast<void**>(&made.data), count * sizeof(float)));
    CHECK_NCCL(ncclCommWindowRegister(comm, made.data, count * sizeof(float), &made.window, NCCL_WIN_COLL_SYMMETRIC));
    return made;
  }
  void free(const Buffer& buffer) const {
    CHECK_NCCL(ncclCommWindowDeregister(comm, buffer.window));
    CHECK_NCCL(ncclMemFree(buffer.data));
  }
  void write(const Buffer& to, const std::vector<float>& values) const {
    CHECK_CUDA(cudaMemcpyAsync(to.data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
  }
  std::vector<float> read(const Buffer& from, std::size_t count) const {
    std::vector<float> values(count);
    CHECK_CUDA(cudaMemcpyAsync(values.data(), from.data, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return values;
  }
  /// Ends the program where one value is another than it should be.
  void expect(const Buffer& from, std::size_t count, const std::function<float(std::size_t)>& right) const {
    const std::vector<float> have = read(from, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (have[i] == right(i)) continue;
      std::fprintf(stderr, "rank %d, element %zu: %g instead of %g\n", rank, i, static_cast<double>(have[i]),
                   static_cast<double>(right(i)));
      std::exit(1);
    }
  }
};

inline int run_ranks(const std::function<void(const Rank&)>& body) {
  int ranks = 0;
  CHECK_CUDA(cudaGetDeviceCount(&ranks));
  ncclUniqueId id;
  CHECK_NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([=, &body] {
      Rank mine{r, ranks, nullptr, nullptr};
      CHECK_CUDA(cudaSetDevice(r));
      CHECK_NCCL(ncclCommInitRank(&mine.comm, ranks, id, r));
      CHECK_CUDA(cudaStreamCreate(&mine.stream));
      body(mine);
      CHECK_CUDA(cudaStreamDestroy(mine.stream));
      CHECK_NCCL(ncclCommFinalize(mine.comm));
      CHECK_NCCL(ncclCommDestroy(mine.comm));
    });
  for (auto& each : threads) each.join();
  std::printf("%d ranks: right\n", ranks);
  return 0;
}
