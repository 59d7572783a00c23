/// \file check.hpp
/// What every example needs around its kernel: device memory, inputs whose sums are exact in every
/// type, and a comparison that names the first wrong element.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <devcomm/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace example {

/// A whole number from -8 to 8, different for each rank, element and round: sums over up to 16 ranks
/// are exact in float, half and bfloat16, so results must be equal to the last bit.
inline float value(int rank, std::uint64_t element, int round = 0) {
  std::uint64_t x = element * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank + 1) * 0xbf58476d1ce4e5b9u +
                    static_cast<std::uint64_t>(round) * 0x94d049bb133111ebu;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return static_cast<float>(static_cast<int>(x % 17) - 8);
}

/// Device memory of the current device, freed with its owner. `cudaFree` waits for all kernels of the
/// device, so examples free only when they are done.
inline std::unique_ptr<std::byte, void (*)(std::byte*)> device_array(std::size_t bytes) {
  void* memory = nullptr;
  devcomm::check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  return {static_cast<std::byte*>(memory), [](std::byte* p) { cudaFree(p); }};
}

/// Copies between host and device, complete on return. (`cudaMemcpy` from pageable memory may return
/// before the data has arrived, which matters to kernels on other streams.)
inline void copy_now(void* destination, const void* source, std::size_t bytes) {
  devcomm::check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, cudaStreamPerThread), "copy");
  devcomm::check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "copy");
}

/// Fills `count` elements of device memory with `of(i)`.
template <class T>
void fill(T* device, std::size_t count, const std::function<float(std::uint64_t)>& of) {
  std::vector<T> host(count);
  for (std::size_t i = 0; i < count; ++i) host[i] = static_cast<T>(of(i));
  copy_now(device, host.data(), count * sizeof(T));
}

/// Overwrites device memory with bytes that are NaN in every floating-point type.
template <class T>
void poison(T* device, std::size_t count) {
  devcomm::check_cuda(cudaMemsetAsync(device, 0xff, count * sizeof(T), cudaStreamPerThread), "poison");
  devcomm::check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "poison");
}

/// Throws, naming the first wrong element, unless `device[i] == of(i)` for all `count` elements.
template <class T>
void expect(const T* device, std::size_t count, const std::string& what,
            const std::function<float(std::uint64_t)>& of) {
  std::vector<T> host(count);
  copy_now(host.data(), device, count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const float got = static_cast<float>(host[i]);
    const float wanted = of(i);
    if (!(got == wanted)) {
      throw std::runtime_error(what + ": element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
                               std::to_string(got) + ", expected " + std::to_string(wanted));
    }
  }
}

/// Sum of `value(rank, element, round)` over `ranks`.
inline float sum_of_values(int ranks, std::uint64_t element, int round = 0) {
  float total = 0;
  for (int rank = 0; rank < ranks; ++rank) total += value(rank, element, round);
  return total;
}

template <class T>
const char* type_name();
template <>
inline const char* type_name<float>() {
  return "float";
}
template <>
inline const char* type_name<__half>() {
  return "half";
}
template <>
inline const char* type_name<__nv_bfloat16>() {
  return "bfloat16";
}

/// Calls `body.operator()<T>(count, offset)` for float, half and bfloat16, for no, one, odd and many
/// elements, and for ranges that start at and between 16-byte boundaries. Offsets are in elements.
template <class Body>
int for_each_case(Body body, std::size_t many = 40009) {
  int cases = 0;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1023}, many}) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{3}}) {
      body.template operator()<float>(count, offset);
      body.template operator()<__half>(count, offset);
      body.template operator()<__nv_bfloat16>(count, offset);
      cases += 3;
    }
  }
  return cases;
}

/// Runs `body` as the example's `main`: an error becomes a message and exit status 1.
inline int run(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace example
