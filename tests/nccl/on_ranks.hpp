/// \file on_ranks.hpp
/// Ranks as threads that use NCCL's names, and checks that they may make.
#pragma once

#include <nccl_device.h>

#include <devcomm/launch.hpp>

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

/// A block, as a program's own class: as of NCCL's, its members are not const, and it cannot vote.
struct coop_of_program {
  __device__ int thread_rank() { return static_cast<int>(threadIdx.x); }
  __device__ int size() { return static_cast<int>(blockDim.x); }
  __device__ void sync() { __syncthreads(); }
};

[[maybe_unused]] void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}
[[maybe_unused]] void ok(ncclResult_t result) { require(result == ncclSuccess, ncclGetErrorString(result)); }
[[maybe_unused]] void ok(cudaError_t result) { require(result == cudaSuccess, cudaGetErrorString(result)); }
/// The result, with a sentence that has `said` in it.
[[maybe_unused]] void fails(ncclResult_t result, ncclResult_t expected, const std::string& said) {
  require(result == expected, "result " + std::to_string(result) + " instead of " + std::to_string(expected));
  const std::string text = ncclGetErrorString(result);
  require(text.find(said) != std::string::npos, "it said: " + text);
}

/// Runs `body(comm, rank)` on so many ranks, threads of this process; throws what one throws.
[[maybe_unused]] void on_ranks(int ranks, const std::function<void(ncclComm_t, int)>& body) {
  ncclUniqueId id;
  ok(ncclGetUniqueId(&id));
  std::vector<std::exception_ptr> failed(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        int devices = 0;
        ok(cudaGetDeviceCount(&devices));
        ok(cudaSetDevice(r % devices));
        ncclComm_t comm = nullptr;
        ok(ncclCommInitRank(&comm, ranks, id, r));
        body(comm, r);
        ok(ncclCommDestroy(comm));
      } catch (...) {
        failed[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  for (auto& each : threads) each.join();
  for (const auto& one : failed)
    if (one) std::rethrow_exception(one);
}

template <class T>
struct buffer {
  T* data = nullptr;
  ncclWindow_t window = nullptr;
  buffer(ncclComm_t comm, std::size_t count) {
    ok(ncclMemAlloc(reinterpret_cast<void**>(&data), count * sizeof(T)));
    ok(cudaMemset(data, 0, count * sizeof(T)));
    ok(ncclCommWindowRegister(comm, data, count * sizeof(T), &window, NCCL_WIN_COLL_SYMMETRIC));
  }
  [[nodiscard]] T read(std::size_t i) const {
    T value{};
    ok(cudaMemcpy(&value, data + i, sizeof(T), cudaMemcpyDeviceToHost));
    return value;
  }
};

[[maybe_unused]] ncclDevComm device_comm(ncclComm_t comm, int barriers, ncclDevResourceRequirements_t* list = nullptr) {
  ncclDevCommRequirements asked = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  asked.lsaBarrierCount = barriers;
  asked.resourceRequirementsList = list;
  ncclDevComm made;
  ok(ncclDevCommCreate(comm, &asked, &made));
  return made;
}
[[maybe_unused]] devcomm::launch_config one_block(unsigned threads = 64) {
  return {.block = threads, .stream = cudaStreamPerThread};
}
[[maybe_unused]] void finish() { ok(cudaStreamSynchronize(cudaStreamPerThread)); }

}  // namespace
