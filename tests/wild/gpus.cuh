// What the programs' host code has in common: all GPUs of one process, and memory on each.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gpus {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline int count() {
  int n = 0;
  check(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
  return n < 8 ? n : 8;
}

/// Calls `f(gpu)` for each, which is the current device then.
template <class Function>
void on_each(Function f) {
  for (int gpu = 0; gpu < count(); ++gpu) {
    check(cudaSetDevice(gpu), "cudaSetDevice");
    f(gpu);
  }
}

/// The same kind of memory on each GPU, as kernels get it.
template <class T>
struct peers {
  T* of[8];
};

/// `n` elements on each, all bytes 0.
template <class T>
peers<T> allocate(std::size_t n) {
  peers<T> all{};
  on_each([&](int gpu) {
    for (int peer = 0; peer < count(); ++peer) {
      if (peer == gpu) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
      if (error != cudaErrorPeerAccessAlreadyEnabled) check(error, "cudaDeviceEnablePeerAccess");
    }
    cudaGetLastError();
    check(cudaMalloc(&all.of[gpu], n * sizeof(T)), "cudaMalloc");
    check(cudaMemset(all.of[gpu], 0, n * sizeof(T)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  });
  return all;
}

template <class T>
void upload(T* to, const std::vector<T>& from) {
  check(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpyAsync");
}
template <class T>
std::vector<T> download(const T* from, std::size_t n) {
  std::vector<T> to(n);
  check(cudaMemcpy(to.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return to;
}

inline void synchronize() {
  on_each([](int) { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); });
}

/// What `main` returns.
inline int finish(int wrong) {
  check(cudaGetLastError(), "a call");
  std::printf("%d wrong\n", wrong);
  return wrong != 0;
}

}  // namespace gpus
