// What register_memory accepts, on the stand-in for the CUDA driver.
#include <devcomm/host/captured_buffers.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "communicator/context_of.hpp"
#include "stand_in.hpp"

#include <cuda.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace devcomm;
using namespace devcomm_test;

// Of the Python package.
extern "C" void* devcomm_pool_allocate(std::size_t bytes, int device, CUstream stream);
extern "C" void devcomm_pool_free(void* pointer, std::size_t bytes, int device, CUstream stream);

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
/// As PyTorch's expandable segments: pieces of `bytes`, mapped one after the other in address space with room for one
/// more.
void* segment(int device, std::size_t pieces = 1, CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  wanted.requestedHandleTypes = type;
  CUmemAccessDesc access{};
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr base = 0;
  require_success(found<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&base, (pieces + 1) * bytes, 0, 0, 0),
                  "cuMemAddressReserve");
  for (std::size_t i = 0; i < pieces; ++i) {
    const CUdeviceptr at = base + i * bytes;
    CUmemGenericAllocationHandle handle = 0;
    require_success(found<decltype(cuMemCreate)>("cuMemCreate")(&handle, bytes, &wanted, 0), "cuMemCreate");
    require_success(found<decltype(cuMemMap)>("cuMemMap")(at, bytes, 0, handle, 0), "cuMemMap");
    require_success(found<decltype(cuMemSetAccess)>("cuMemSetAccess")(at, bytes, &access, 1), "cuMemSetAccess");
  }
  return reinterpret_cast<void*>(base);
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
        {segment(comm.device(), 2), 2 * bytes + 1, "run past the end of the allocation"},
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

TEST_CASE("captured buffers whose memory was freed, or allocated anew, are told from those that were not") {
  const auto ends = on_stand_in(2, 1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    auto* const kept = static_cast<char*>(device_memory());
    auto* const freed = static_cast<char*>(device_memory());
    host::captured_buffers buffers = comm.collect_buffers(2);
    const sym_ptr<char> first = buffers.add(kept + 8, 100);
    const sym_ptr<char> second = buffers.add(freed, 100);
    require(first.memory.table[0] == nullptr && second.memory.table[1] == nullptr, "kernels find no address yet");
    comm.register_buffers(buffers);
    require(first.memory.table[comm.rank()] == kept + 8 && second.memory.table[comm.rank()] == freed,
            "kernels find the buffers");
    buffers.check();
    comm.barrier();
    require_success(found<decltype(cuMemFree)>("cuMemFree")(reinterpret_cast<CUdeviceptr>(freed)), "cuMemFree");
    const std::string text = text_of<host::invalid_argument>([&] { buffers.check(); });
    require(text.find("buffer 1 of captured buffers, 100 bytes, has been freed") != std::string::npos, text);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("memory that peers could not access is refused by name, whether ranks are threads or processes") {
  const int inside = GENERATE(1, 2);
  CAPTURE(inside);
  const auto ends = on_stand_in(2, inside, [inside](auto bootstrap) {
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
        {inside == 1 ? segment(comm.device()) : pool_memory(), bytes,
         inside == 1 ? "was not made to be shared by file descriptor" : "it comes from an asynchronous pool"},
        {segment(comm.device() + 4), bytes, "the memory lies on device"},
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

namespace {

struct {
  int inside;
  const char* kind;
  CUmemAllocationHandleType type;
} const ways[] = {{1, "file descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
                  {2, "file descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
                  {1, "fabric", static_cast<CUmemAllocationHandleType>(8)},
                  {4, "same process", CU_MEM_HANDLE_TYPE_NONE}};

}  // namespace

TEST_CASE("memory of one piece each is registered with one stride where that is asked for, other memory by a table") {
  for (const auto& way : ways) {
    CAPTURE(way.inside, way.kind);
    if (std::string(way.kind) == "fabric") ::setenv("DEVCOMM_MEMORY_HANDLE", "fabric", 1);
    const auto ends = on_stand_in(4, way.inside, [&way](auto bootstrap) {
      host::communicator comm(std::move(bootstrap));
      auto* const whole = static_cast<char*>(segment(comm.device(), 1, way.type));
      for (const bool alike : {true, false}) {
        const std::size_t at = alike || comm.rank() == 0 ? 1000 : 2000, size = bytes - 2000;
        const auto memory = host::detail::context_of::register_with_stride(comm, whole + at, size, "board");
        const window& w = memory.window();
        require((w.base != nullptr) == alike, "one stride where all begin at one place");
        require((w.local == whole + at) == !alike, "an address of its own");
        std::memset(whole + at, comm.rank() + 1, size);  // by the caller's address
        comm.barrier();
        for (int member = 0; member < 4; ++member) {
          const char expected = static_cast<char>(member + 1);
          require(w.lsa_pointer(member)[0] == expected && w.lsa_pointer(member)[size - 1] == expected,
                  "member " + std::to_string(member));
        }
        require(w.local[0] == static_cast<char>(comm.rank() + 1), "its own memory");
        comm.barrier();
      }
    });
    ::unsetenv("DEVCOMM_MEMORY_HANDLE");
    CHECK(ends == all_ok(4));
  }
}

TEST_CASE("expandable segments are registered by their own handles, from any place and over several pieces") {
  for (const auto& way : ways) {
    CAPTURE(way.inside, way.kind);
    const bool by_fabric = std::string(way.kind) == "fabric";
    if (by_fabric) ::setenv("DEVCOMM_MEMORY_HANDLE", "fabric", 1);
    const auto ends = on_stand_in(4, way.inside, [&way](auto bootstrap) {
      host::communicator comm(std::move(bootstrap));
      // Rank 2 has memory of cudaMalloc; the others begin at different places of their first pieces.
      const bool plain = comm.rank() == 2 && way.type != static_cast<CUmemAllocationHandleType>(8);
      const std::size_t size = 2 * bytes + 1000;
      const std::size_t at = 100 * static_cast<std::size_t>(comm.rank());
      CUdeviceptr allocated = 0;
      if (plain) require_success(found<decltype(cuMemAlloc)>("cuMemAlloc")(&allocated, 3 * bytes + at), "cuMemAlloc");
      auto* const whole =
          plain ? reinterpret_cast<char*>(allocated) : static_cast<char*>(segment(comm.device(), 3, way.type));
      for (int times = 0; times < 2; ++times) {
        const auto memory = comm.register_memory(whole + at, size);
        const window& w = memory.window();
        const bool some_plain = way.type != static_cast<CUmemAllocationHandleType>(8);
        const std::string& reason = memory.multimem().reason;
        require((reason.find("comes from cudaMalloc") != std::string::npos) == some_plain &&
                    (reason.find("may lack the granularity of a multicast object") != std::string::npos) == !some_plain,
                "each rank hears why there is no multicast: " + reason);
        require(plain || memory.handle_type() == way.kind, "its own handles: " + memory.handle_type());
        require(w.table[comm.rank()] == whole + at, "this rank keeps its own address");
        std::memset(w.local, comm.rank() + 1 + times, size);
        comm.barrier();
        for (int member = 0; member < 4; ++member) {
          for (const std::size_t byte : {std::size_t{0}, bytes, 2 * bytes, size - 1}) {
            require(w.table[member][byte] == static_cast<char>(member + 1 + times), "every piece reaches its peers");
          }
        }
        comm.barrier();
      }
      const auto later = comm.allocate(bytes);  // windows after it have their own numbers
      comm.barrier();
    });
    if (by_fabric) ::unsetenv("DEVCOMM_MEMORY_HANDLE");
    CHECK(ends == all_ok(4));
  }
}

TEST_CASE("memory of a pool for PyTorch becomes windows, of ranks in one process and in others") {
  const int inside = GENERATE(1, 2);
  const auto ends = on_stand_in(4, inside, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    constexpr std::size_t size = (5 << 20) + 1000;
    auto* const segment = static_cast<char*>(devcomm_pool_allocate(size, comm.device(), nullptr));
    require(segment != nullptr, "there is memory");
    {
      // Two tensors of the segment.
      const auto first = comm.register_memory(segment, 1000);
      const auto second = comm.register_memory(segment + (3 << 20) + 512, 2 << 20);
      for (const auto* memory : {&first, &second}) {
        const window& w = memory->window();
        std::memset(w.local, comm.rank() + 1, w.bytes);
        comm.barrier();
        for (int member = 0; member < 4; ++member)
          require(w.lsa_pointer(member, w.bytes - 1)[0] == member + 1, "a peer's memory is reached");
        comm.barrier();
      }
    }
    devcomm_pool_free(segment, size, comm.device(), nullptr);
    require(devcomm_pool_allocate(std::size_t{1} << 50, comm.device(), nullptr) == nullptr, "there is not that much");
  });
  CHECK(ends == all_ok(4));
}
