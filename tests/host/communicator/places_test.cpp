// Where ranks run, and what they are told of it: PID namespaces and shared GPUs.
#include <devcomm/host/communicator.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cuda_runtime_api.h>

#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <string>

using namespace devcomm;
using namespace devcomm_test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// As a rank sends it.
std::string pid_space() {
  struct stat space {};
  require(::stat("/proc/self/ns/pid", &space) == 0, "there is a PID namespace");
  const std::uint64_t number = space.st_ino;
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

}  // namespace

TEST_CASE("ranks in different PID namespaces share windows, and are told why they cannot register memory") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    const bool elsewhere = bootstrap->rank() == 1;
    host::communicator comm(
        std::make_shared<altered_bootstrap>(std::move(bootstrap), elsewhere ? pid_space() : std::string()));
    require(comm.lsa().size == 2, "descriptors cross PID namespaces");
    const auto memory = comm.allocate(4096);
    *static_cast<int*>(memory.data()) = comm.rank() + 1;
    comm.barrier();
    require(*reinterpret_cast<int*>(memory.window().lsa_pointer(1 - comm.rank())) == 2 - comm.rank(), "and bytes too");

    const host::capability& ipc = comm.properties().cuda_ipc;
    require(!ipc.available, "there is no CUDA IPC");
    require(contains(ipc.reason, "rank " + std::to_string(1 - comm.rank()) + " is in another PID namespace"),
            "properties have the reason: " + ipc.reason);
    void* own = nullptr;
    require(cudaMalloc(&own, 4096) == cudaSuccess, "there is memory");
    const std::string text = text_of<host::not_supported>([&] { static_cast<void>(comm.register_memory(own, 4096)); });
    require(contains(text, "is in another PID namespace") && contains(text, "use communicator::allocate"),
            "and so has the error: " + text);
    require(cudaFree(own) == cudaSuccess, "it is freed");
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("ranks of one PID namespace have CUDA IPC") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    require(comm.properties().cuda_ipc.available, comm.properties().cuda_ipc.reason);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("ranks that share a GPU are told with whom") {
  const int inside = GENERATE(0, 1);
  CAPTURE(inside);
  const rank_body body = [](auto bootstrap) {
    const int mine = bootstrap->rank() == 1 ? 1 : 0;
    host::communicator comm(std::move(bootstrap), {.device = mine});
    const host::capability& own = comm.properties().own_device;
    require(own.available == (comm.rank() == 1), "rank 1 has a GPU of its own, the others share one");
    const std::string text = to_string(comm.properties());
    if (comm.rank() == 1) require(contains(text, "GPU of its own: yes"), text);
    if (comm.rank() == 0) require(contains(text, "GPU of its own: no (it is shared with rank 2: "), text);
    if (comm.rank() == 2) require(contains(own.reason, "shared with rank 0: "), own.reason);
    comm.barrier();
  };
  const auto ends = inside == 0 ? on_threads(3, body) : on_processes(3, body);
  CHECK(ends == all_ok(3));
}
