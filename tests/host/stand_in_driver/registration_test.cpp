// What register_memory accepts, on the stand-in for the CUDA driver.
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "stand_in.hpp"

#include <cuda.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cstddef>
#include <cstring>
#include <string>

using namespace devcomm;
using namespace devcomm_test;

namespace {

constexpr std::size_t bytes = 64 << 10;

template <class Function>
Function* found(const char* name) {
  return reinterpret_cast<Function*>(stand_in().find(name));
}

void require_success(CUresult code, const char* name) {
  require(code == CUDA_SUCCESS, std::string(name) + " succeeds: " + std::to_string(static_cast<int>(code)));
}

/// Memory of every kind that a program may have, made on the thread's device.
void* host_memory() {
  void* data = nullptr;
  require_success(found<decltype(cuMemHostAlloc)>("cuMemHostAlloc")(&data, bytes, 0), "cuMemHostAlloc");
  return data;
}
void* device_memory() {
  CUdeviceptr data = 0;
  require_success(found<decltype(cuMemAlloc)>("cuMemAlloc")(&data, bytes), "cuMemAlloc");
  return reinterpret_cast<void*>(data);
}
void* pool_memory() {
  CUdeviceptr data = 0;
  require_success(found<decltype(cuMemAllocAsync)>("cuMemAllocAsync")(&data, bytes, nullptr), "cuMemAllocAsync");
  return reinterpret_cast<void*>(data);
}
void* other_device_memory(int device) {
  CUcontext context = nullptr;
  require_success(found<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device), "a context");
  require_success(found<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent")(context), "cuCtxPushCurrent");
  void* const data = device_memory();
  require_success(found<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent")(&context), "cuCtxPopCurrent");
  return data;
}
/// As PyTorch's expandable segments.
void* segment(int device) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  CUmemGenericAllocationHandle handle = 0;
  require_success(found<decltype(cuMemCreate)>("cuMemCreate")(&handle, bytes, &wanted, 0), "cuMemCreate");
  CUdeviceptr at = 0;
  require_success(found<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&at, bytes, 0, 0, 0),
                  "cuMemAddressReserve");
  require_success(found<decltype(cuMemMap)>("cuMemMap")(at, bytes, 0, handle, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  require_success(found<decltype(cuMemSetAccess)>("cuMemSetAccess")(at, bytes, &access, 1), "cuMemSetAccess");
  return reinterpret_cast<void*>(at);
}

}  // namespace

TEST_CASE("memory is checked in a team of one as well, where no peer limits its kind") {
  const auto ends = on_stand_in(1, 1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    char on_stack[16];
    const struct {
      void* pointer;
      std::size_t size;
      std::string reason;
    } refused[] = {
        {nullptr, 16, "the pointer is null"},
        {on_stack, sizeof on_stack, "the pointer is not CUDA memory"},
        {host_memory(), bytes, "the pointer is host memory"},
        {other_device_memory(comm.device() + 4), bytes, "the memory lies on device"},
        {device_memory(), bytes + 1, "run past the end of the allocation"},
        {pool_memory(), bytes + 1, "run past the end of the allocation"},
    };
    for (const auto& each : refused) {
      const std::string text =
          text_of<host::invalid_argument>([&] { (void)comm.register_memory(each.pointer, each.size); });
      require(text.find(each.reason) != std::string::npos, "the reason is told: " + text);
    }
    for (void* const right : {device_memory(), pool_memory(), segment(comm.device())}) {
      const auto memory = comm.register_memory(right, bytes);
      require(memory.window().table[0] == right, "what this rank's kernels reach is taken");
    }
  });
  CHECK(ends == all_ok(1));
}

TEST_CASE("memory that peers could not access is refused by name, whether ranks are threads or processes") {
  const int inside = GENERATE(1, 2);
  CAPTURE(inside);
  const auto ends = on_stand_in(2, inside, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    char on_stack[16];
    const struct {
      void* pointer;
      std::size_t size;
      std::string reason;
    } refused[] = {
        {nullptr, 16, "the pointer is null"},
        {on_stack, sizeof on_stack, "the pointer is not CUDA memory"},
        {host_memory(), bytes, "the pointer is host memory"},
        {pool_memory(), bytes, "it comes from an asynchronous pool (cudaMallocAsync)"},
        {segment(comm.device()), bytes, "as PyTorch's expandable segments do"},
        {other_device_memory(comm.device() + 4), bytes, "the memory lies on device"},
        {device_memory(), bytes + 1, "run past the end of the allocation"},
    };
    for (const auto& each : refused) {
      // Rank 0 has memory that would do, and learns why rank 1 has not.
      void* const mine = comm.rank() == 1 ? each.pointer : device_memory();
      const std::string text = text_of<host::error>([&] { (void)comm.register_memory(mine, each.size); });
      // Its own allocation is too short for the last.
      const bool own_too = each.size > bytes;
      require(text.find(each.reason) != std::string::npos, "the reason is told: " + text);
      require(own_too || comm.rank() == 1 || text.find("rank 1 failed") != std::string::npos,
              "the rank is named: " + text);
    }
    auto* const right = static_cast<char*>(device_memory());
    const auto memory = comm.register_memory(right + 100, bytes - 100);
    require(memory.data() == right + 100, "what is right is taken");
    const window& w = memory.window();
    std::memset(w.local, comm.rank() + 1, w.bytes);
    comm.barrier();
    for (int member = 0; member < 2; ++member) {
      require(w.table[member][w.bytes - 1] == static_cast<char>(member + 1), "and reaches its peers");
    }
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}
