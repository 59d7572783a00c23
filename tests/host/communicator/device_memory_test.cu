// Windows and registered memory as a device's copy engine sees them; the same laws in the simulator and
// on GPUs, for ranks that are threads and ranks that are processes.
#include <devcomm/host/communicator.hpp>

#include <cuda_runtime.h>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cstdlib>
#include <string>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;

namespace {

void require_cuda(cudaError_t code, const std::string& call) {
  require(code == cudaSuccess, call + ": " + cudaGetErrorName(code));
}

std::vector<char> pattern_of(int rank, std::size_t bytes) {
  std::vector<char> pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>(rank * 31 + static_cast<int>(i % 127) + 1);
  return pattern;
}

/// Where `w` says that a member's memory lies; the table of registered memory is on the device.
char* address_of(const window& w, int member) {
  if (w.base != nullptr) return w.base + static_cast<std::size_t>(member) * w.stride;
  char* address = nullptr;
  require_cuda(cudaMemcpy(&address, w.table + member, sizeof address, cudaMemcpyDeviceToHost), "reading the table");
  return address;
}

/// Every peer finds what each rank wrote to its own part.
void exchange_patterns(host::communicator& comm, const window& w) {
  const auto own = pattern_of(comm.rank(), w.bytes);
  require_cuda(cudaMemcpy(w.local, own.data(), own.size(), cudaMemcpyHostToDevice), "writing the own part");
  require_cuda(cudaStreamSynchronize(nullptr), "writing the own part");  // small copies are on their way for longer
  comm.barrier();
  std::vector<char> found(w.bytes);
  for (int member = 0; member < w.lsa_size; ++member) {
    const int peer = comm.lsa().world_rank(member);
    require_cuda(cudaMemcpy(found.data(), address_of(w, member), found.size(), cudaMemcpyDeviceToHost),
                 "reading rank " + std::to_string(peer));
    require(found == pattern_of(peer, w.bytes), "the memory of rank " + std::to_string(peer) + " is not what it wrote");
  }
  comm.barrier();
}

void require_zeros(const window& w) {
  std::vector<char> found(w.bytes, 'x');
  require_cuda(cudaMemcpy(found.data(), w.local, found.size(), cudaMemcpyDeviceToHost), "reading the own part");
  require(found == std::vector<char>(w.bytes), "a new window holds zeros");
}

class device_buffer {
 public:
  explicit device_buffer(std::size_t bytes) { require_cuda(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~device_buffer() { static_cast<void>(cudaFree(data_)); }
  device_buffer(const device_buffer&) = delete;
  device_buffer& operator=(const device_buffer&) = delete;
  [[nodiscard]] char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
};

constexpr std::size_t window_bytes = 300001;

void use_windows(std::shared_ptr<host::bootstrap> bootstrap) {
  host::communicator comm(std::move(bootstrap));
  for (int i = 0; i < 2; ++i) {
    const auto memory = comm.allocate(window_bytes);
    require_zeros(memory.window());
    exchange_patterns(comm, memory.window());
  }
}

/// Two parts of one allocation, so that processes open it once for both.
void use_registered(std::shared_ptr<host::bootstrap> bootstrap, const std::string& how) {
  host::communicator comm(std::move(bootstrap));
  const device_buffer buffer(1 << 16);
  const auto first = comm.register_memory(buffer.data() + 256, 1000);
  const auto second = comm.register_memory(buffer.data() + 8192, 777);
  require(comm.lsa().size == 1 || first.handle_type() == how, "the way is reported: " + first.handle_type());
  exchange_patterns(comm, first.window());
  exchange_patterns(comm, second.window());
  exchange_patterns(comm, first.window());
}

/// Memory of the virtual memory interface: that of a window.
void register_window(std::shared_ptr<host::bootstrap> bootstrap) {
  host::communicator comm(std::move(bootstrap));
  const auto memory = comm.allocate(window_bytes);
  const auto again = comm.register_memory(memory.window().local + 256, 4096);
  exchange_patterns(comm, again.window());
}

}  // namespace

// Processes come first (--order decl): a process that has used CUDA must not fork.
TEST_CASE("windows of processes") {
  const int ranks = GENERATE(2, 4);
  CHECK(on_processes(ranks, use_windows) == all_ok(ranks));
}

TEST_CASE("windows of processes that hold two ranks each") { CHECK(on_processes(4, use_windows, 2) == all_ok(4)); }

TEST_CASE("registered memory of processes") {
  const int ranks = GENERATE(2, 4);
  CHECK(on_processes(ranks, [](auto bootstrap) { use_registered(std::move(bootstrap), "CUDA IPC"); }) == all_ok(ranks));
}

TEST_CASE("registered memory of processes that hold two ranks each") {
  CHECK(on_processes(
            4, [](auto bootstrap) { use_registered(std::move(bootstrap), "CUDA IPC"); }, 2) == all_ok(4));
}

namespace {

/// What cannot be registered, and what each rank is told, at the start and further on.
struct refusal {
  rank_body body;
  std::string start;
  std::string part;
};

std::vector<refusal> refusals() {
  std::vector<refusal> all;
  all.push_back({[](auto bootstrap) {
                   host::communicator comm(std::move(bootstrap));
                   std::vector<char> bytes(4096);
                   static_cast<void>(comm.register_memory(bytes.data(), bytes.size()));
                 },
                 "", "the pointer is not "});
  all.push_back({[](auto bootstrap) {
                   host::communicator comm(std::move(bootstrap));
                   const device_buffer buffer(4096);
                   static_cast<void>(comm.register_memory(buffer.data(), std::size_t{1} << 40));
                 },
                 "invalid_argument: ", "run past the end of the allocation"});
#if defined(DEVCOMM_SIMULATOR)  // which has no handles of mapped memory
  all.push_back({register_window, "not_supported: ", "use communicator::allocate"});
#endif
  return all;
}

void check_refusals(outcomes (*on_two)(const rank_body&)) {
  for (const refusal& each : refusals()) {
    for (const std::string& end : on_two(each.body)) {
      CAPTURE(end);
      CHECK(end.find(each.start) == 0);
      CHECK(end.find(": register_memory (rank ") != std::string::npos);
      CHECK(end.find(each.part) != std::string::npos);
    }
  }
}

}  // namespace

TEST_CASE("processes are told by name what cannot be registered") {
  check_refusals([](const rank_body& body) { return on_processes(2, body); });
}

#if !defined(DEVCOMM_SIMULATOR)
TEST_CASE("mapped memory is registered by the handles that it was made with") {
  SECTION("of processes") { CHECK(on_processes(2, register_window) == all_ok(2)); }
  SECTION("of processes that hold two ranks each") { CHECK(on_processes(4, register_window, 2) == all_ok(4)); }
}
#endif

#if defined(DEVCOMM_SIMULATOR)  // nobody else uses a simulated GPU
TEST_CASE("a window takes of its own rank's GPU what was asked for, and gives it back") {
  const bool processes = GENERATE(true, false);
  const auto body = [](std::shared_ptr<host::bootstrap> bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto free_bytes = [] {
      std::size_t free = 0;
      std::size_t total = 0;
      require_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      return free;
    };
    constexpr std::size_t large_window_bytes = std::size_t{1} << 30;
    const std::size_t before = free_bytes();
    {
      const auto memory = comm.allocate(large_window_bytes);
      require(before - free_bytes() == large_window_bytes, "a window takes as much as was asked for");
      void* refused = nullptr;
      require(cudaMalloc(&refused, before - large_window_bytes + 1) == cudaErrorMemoryAllocation,
              "cudaMalloc has the rest");
    }
    comm.barrier();  // a process keeps its ranks' parts until the last of them lets go
    require(free_bytes() == before, "a window gives back what it took");
    comm.barrier();
  };
  CHECK((processes ? on_processes(3, body) : on_threads(3, body)) == all_ok(3));
}
#endif

// From here on, threads of this process use CUDA.
TEST_CASE("ranks of one process are told by name what cannot be registered") {
  check_refusals([](const rank_body& body) { return on_threads(2, body); });
}

#if !defined(DEVCOMM_SIMULATOR)
TEST_CASE("mapped memory of one process is registered") { CHECK(on_threads(2, register_window) == all_ok(2)); }
#endif

#if !defined(DEVCOMM_SIMULATOR)  // whose pools are as good as cudaMalloc for peers
TEST_CASE("memory of an asynchronous pool is refused by name where there are peers") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    void* memory = nullptr;
    require_cuda(cudaMallocAsync(&memory, 4096, cudaStreamPerThread), "cudaMallocAsync");
    require_cuda(cudaStreamSynchronize(cudaStreamPerThread), "cudaMallocAsync");
    const std::string text = text_of<host::error>([&] { static_cast<void>(comm.register_memory(memory, 4096)); });
    require_cuda(cudaFreeAsync(memory, cudaStreamPerThread), "cudaFreeAsync");
    require(text.find("it comes from an asynchronous pool (cudaMallocAsync)") != std::string::npos, text);
  });
  CHECK(ends == all_ok(2));
}
#endif

TEST_CASE("memory of another device than the rank's is refused by name") {
  int devices = 0;
  require_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices < 2) SKIP("one device");
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    require_cuda(cudaSetDevice(1 - comm.device()), "cudaSetDevice");
    const device_buffer buffer(4096);
    require_cuda(cudaSetDevice(comm.device()), "cudaSetDevice");
    static_cast<void>(comm.register_memory(buffer.data(), 4096));
  });
  for (const std::string& end : ends) {
    CAPTURE(end);
    CHECK(end.find("invalid_argument: register_memory (rank ") == 0);
    CHECK(end.find("the memory lies on device ") != std::string::npos);
  }
}

TEST_CASE("registered memory of one process is reached where it lies") {
  const int ranks = GENERATE(1, 2, 3, 8);
  std::vector<char*> own(static_cast<std::size_t>(ranks));
  const auto ends = on_threads(ranks, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const device_buffer buffer(777);
    own[static_cast<std::size_t>(comm.rank())] = buffer.data();
    const auto memory = comm.register_memory(buffer.data(), 777);
    const window w = memory.window();
    require(w.table != nullptr && w.base == nullptr, "registered memory is addressed by a table");
    require(w.local == buffer.data() && memory.data() == buffer.data(), "the caller's memory stays where it is");
    for (int peer = 0; peer < ranks; ++peer) {
      require(address_of(w, peer) == own[static_cast<std::size_t>(peer)], "a peer's address is its own");
    }
    exchange_patterns(comm, w);
  });
  CHECK(ends == all_ok(ranks));
}

TEST_CASE("registering null, nothing, or sizes that differ fails by name") {
  const auto null = on_threads(2, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const device_buffer buffer(8);
    static_cast<void>(comm.register_memory(comm.rank() == 0 ? nullptr : buffer.data(), 8));
  });
  CHECK(null[0].find("invalid_argument: register_memory (rank 0 of 2): the pointer is null") == 0);
  CHECK(null[1].find("remote_error(0): register_memory (rank 1 of 2): rank 0 failed") == 0);

  const auto sizes = on_threads(2, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const device_buffer buffer(8);
    static_cast<void>(comm.register_memory(buffer.data(), comm.rank() == 0 ? 4 : 8));
  });
  for (const std::string& end : sizes) CHECK(end.find("rank 1 registers 8 bytes and rank 0 4") != std::string::npos);
}

TEST_CASE("windows of threads") {
  const int ranks = GENERATE(1, 2, 3, 8);
  CHECK(on_threads(ranks, use_windows) == all_ok(ranks));
}

TEST_CASE("registered memory of threads") {
  const int ranks = GENERATE(1, 2, 3, 8);
  CHECK(on_threads(ranks, [](auto bootstrap) { use_registered(std::move(bootstrap), "same process"); }) ==
        all_ok(ranks));
}

TEST_CASE("a window larger than its GPU's memory fails by name, and all can go on") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    std::size_t free = 0;
    std::size_t total = 0;
    require_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    try {
      static_cast<void>(comm.allocate(total + 1));
    } catch (const host::system_error&) {
      const auto memory = comm.allocate(4096);
      exchange_patterns(comm, memory.window());
      throw;
    }
  });
  for (const std::string& end : ends) {
    CAPTURE(end);
    CHECK(end.find("system_error: allocate (rank ") == 0);
    CHECK(end.find(" bytes left; ask for less, or free memory there") != std::string::npos);
  }
}
