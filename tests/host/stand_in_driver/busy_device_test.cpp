// Devices on which a kernel runs that does not end: host calls end at their limit, and memory is freed later.
#include <devcomm/host/communicator.hpp>

#include "stand_in.hpp"

#include <cuda.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool same(const stand_in_held& a, const stand_in_held& b) {
  return a.memory == b.memory && a.reservations == b.reservations && a.mappings == b.mappings &&
         a.device_memory == b.device_memory && a.host_memory == b.host_memory;
}

/// Deferred frees run on a thread of the library's.
void require_held_again(const stand_in_held& before) {
  for (int i = 0; i < 10'000 && !same(stand_in().held(), before); ++i) std::this_thread::sleep_for(1ms);
  require(same(stand_in().held(), before), "what was left is freed once the kernel is over");
}

void* device_memory() {
  CUdeviceptr data = 0;
  const auto allocate = reinterpret_cast<decltype(&cuMemAlloc)>(stand_in().find("cuMemAlloc"));
  require(allocate(&data, 4096) == CUDA_SUCCESS, "there is memory");
  return reinterpret_cast<void*>(data);
}

}  // namespace

TEST_CASE("a call that needs a device which a kernel fills ends at its limit, and the ranks are told why") {
  const std::string call = GENERATE("allocate", "register_memory", "create_device_comm");
  CAPTURE(call);
  const auto ends = on_stand_in(2, 1, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.limit = 3s});
    void* const own = device_memory();
    const auto attempt = [&] {
      if (call == "allocate") static_cast<void>(comm.allocate(5000));
      if (call == "register_memory") static_cast<void>(comm.register_memory(own, 4096));
      if (call == "create_device_comm") static_cast<void>(comm.create_device_comm(comm.requirements()));
    };
    const stand_in_held before = stand_in().held();
    if (comm.rank() == 1) stand_in().keep_busy(1);
    const auto start = clock_type::now();
    const std::string text =
        comm.rank() == 1 ? text_of<host::timeout_error>(attempt) : text_of<host::remote_error>(attempt);
    require(clock_type::now() - start < 20s, "the limit holds");
    require(contains(text, call + " (rank " + std::to_string(comm.rank()) + " of 2): "), "the call is named: " + text);
    require(contains(text, " memory of device 1 did not end within 1500 ms: kernels fill the device"),
            "the device is named: " + text);
    require(comm.rank() == 1 || contains(text, "rank 1 failed"), "the rank is named: " + text);
    comm.barrier();
    stand_in().keep_busy(0);
    require_held_again(before);
    attempt();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("what is destroyed while a kernel runs is freed when the kernel is over, in order") {
  const auto ends = on_stand_in(2, 1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.watchdog = true});
    void* const own = device_memory();
    const stand_in_held before = stand_in().held();
    {
      std::optional<host::symmetric_memory> plain = comm.allocate(5000);
      std::optional<host::symmetric_memory> multimem = comm.allocate(5000, "", host::multimem_policy::required);
      std::optional<host::symmetric_memory> registered = comm.register_memory(own, 4096);
      std::optional<host::device_communicator> device = comm.create_device_comm(comm.requirements());
      comm.barrier();
      stand_in().keep_busy(1);
      const auto start = clock_type::now();
      device.reset();
      registered.reset();
      multimem.reset();
      plain.reset();
      require(clock_type::now() - start < 10s, "destructors do not wait for kernels");
    }
    require(!same(stand_in().held(), before), "what kernels may use is kept");
    comm.barrier();
    const auto other = text_of<host::error>([&] { static_cast<void>(comm.allocate(0)); });
    require(contains(other, "0 bytes"), "calls go on: " + other);
    stand_in().keep_busy(0);
    require_held_again(before);
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("an allocation waits a moment for memory that is being freed, and says what keeps it") {
  const auto ends = on_stand_in(
      1, 1,
      [](auto bootstrap) {
        host::communicator comm(std::move(bootstrap));
        std::optional<host::symmetric_memory> memory = comm.allocate(700'000);
        stand_in().keep_busy(1);
        memory.reset();
        const std::string text = text_of<host::system_error>([&] { static_cast<void>(comm.allocate(700'000)); });
        require(contains(text, "windows were destroyed while kernels run"), "the reason is told: " + text);
        std::thread end([] {
          std::this_thread::sleep_for(200ms);
          stand_in().keep_busy(0);
        });
        memory = comm.allocate(700'000);
        end.join();
      },
      {{"STAND_IN_CUDA_MEMORY", "1000000"}});
  CHECK(ends == all_ok(1));
}
