// A communicator uses the devices that its options name, and what they fail at is an error on every rank.
#include <device/backend.hpp>

#include <devcomm/host/communicator.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <thread>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

using namespace host::detail;

/// The simulator's devices, one of which may have no memory.
class failing_devices final : public backend {
 public:
  std::atomic<int> created{0};
  std::atomic<int> without_memory{-1};

  [[nodiscard]] std::string_view name() const noexcept override { return real_.name(); }
  [[nodiscard]] backend_traits traits() const override { return real_.traits(); }
  [[nodiscard]] int device_count() override { return real_.device_count(); }
  void provide_devices(int count) override { real_.provide_devices(count); }
  [[nodiscard]] device_facts facts(int device) override { return real_.facts(device); }
  void make_current(int device) override { real_.make_current(device); }
  [[nodiscard]] bool wait_until_idle(int device, std::chrono::milliseconds limit) override {
    return real_.wait_until_idle(device, limit);
  }

  [[nodiscard]] std::size_t granularity(int device) override { return real_.granularity(device); }
  [[nodiscard]] std::unique_ptr<physical_memory> create_physical(int device, std::size_t bytes,
                                                                 handle_kind kind) override {
    if (device == without_memory) throw host::system_error("out of memory on purpose");
    ++created;
    return real_.create_physical(device, bytes, kind);
  }
  [[nodiscard]] std::unique_ptr<address_range> reserve(std::size_t bytes) override { return real_.reserve(bytes); }
  [[nodiscard]] std::unique_ptr<host_memory> allocate_host(int device, std::size_t bytes) override {
    return real_.allocate_host(device, bytes);
  }
  [[nodiscard]] std::unique_ptr<opened_memory> allocate_device(int device, std::size_t bytes) override {
    return real_.allocate_device(device, bytes);
  }
  void zero(int device, void* destination, std::size_t bytes, std::chrono::milliseconds limit) override {
    real_.zero(device, destination, bytes, limit);
  }
  void copy(int device, void* destination, const void* source, std::size_t bytes,
            std::chrono::milliseconds limit) override {
    real_.copy(device, destination, source, bytes, limit);
  }
  void read(int device, void* destination, const void* source, std::size_t bytes,
            std::chrono::milliseconds limit) override {
    real_.read(device, destination, source, bytes, limit);
  }

  [[nodiscard]] host::capability peer_access(int device, const std::string& peer_uuid) override {
    return real_.peer_access(device, peer_uuid);
  }
  [[nodiscard]] host::capability ll128_capability(int device, const std::string& peer_uuid) override {
    return real_.ll128_capability(device, peer_uuid);
  }
  void enable_peer_access(int device, int peer_device) override { real_.enable_peer_access(device, peer_device); }
  [[nodiscard]] std::unique_ptr<physical_memory> import_descriptor(int device, int descriptor,
                                                                   std::size_t bytes) override {
    return real_.import_descriptor(device, descriptor, bytes);
  }
  [[nodiscard]] std::unique_ptr<physical_memory> import_bytes(int device, handle_kind kind,
                                                              std::span<const std::byte> handle,
                                                              std::size_t bytes) override {
    return real_.import_bytes(device, kind, handle, bytes);
  }
  void check_pointer(int device, void* pointer, std::size_t bytes, bool for_peers) override {
    real_.check_pointer(device, pointer, bytes, for_peers);
  }
  [[nodiscard]] exported_pointer export_pointer(int device, void* pointer) override {
    return real_.export_pointer(device, pointer);
  }
  [[nodiscard]] std::uint64_t allocation_id(int device, const void* pointer) override {
    return real_.allocation_id(device, pointer);
  }
  [[nodiscard]] std::unique_ptr<opened_memory> open_pointer(int device, std::span<const std::byte> handle) override {
    return real_.open_pointer(device, handle);
  }

 private:
  backend& real_ = current_backend();
};

}  // namespace

TEST_CASE("a communicator and its children use the devices that the options name") {
  failing_devices devices;
  devices.provide_devices(2);
  const auto ends = on_threads(2, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.devices = &devices});
    const auto window = comm.allocate(100);
    const auto child = comm.split(0, 0);
    const auto of_child = child->allocate(100);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
  CHECK(devices.created == 4);
}

TEST_CASE("a failed allocation leaves nothing of its peers' memory in any process") {
  const auto ends = on_processes(3, [&](auto bootstrap) {
    failing_devices devices;
    devices.provide_devices(3);
    host::communicator comm(std::move(bootstrap), {.devices = &devices});
    const auto fail = [&] {
      devices.without_memory = 1;
      const std::string text = text_of<host::error>([&] { (void)comm.allocate(100); });
      require(text.find("out of memory on purpose") != std::string::npos, "the text tells why: " + text);
      devices.without_memory = -1;
    };
    const auto descriptors = [] { return count_holdings().descriptors; };
    fail();  // links between the ranks are made as they are first used
    comm.barrier();
    const std::size_t before = descriptors();
    constexpr std::size_t failures = 10;
    for (std::size_t i = 0; i < failures; ++i) fail();
    comm.barrier();
    // What is on its way arrives. Each failure would leave the descriptors of two peers; a link that is made late, one.
    constexpr std::size_t of_links = 4;
    for (int i = 0; i < 200 && descriptors() > before + of_links; ++i) std::this_thread::sleep_for(10ms);
    const std::size_t after = descriptors();
    require(after <= before + of_links,
            "descriptors: " + std::to_string(before) + " before, " + std::to_string(after) + " after");
    const auto window = comm.allocate(100);
    comm.barrier();
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("a device without memory is an error on every rank, after which allocation succeeds") {
  failing_devices devices;
  devices.provide_devices(2);
  devices.without_memory = 1;
  const auto ends = on_threads(2, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.devices = &devices});
    const std::string text = comm.rank() == 1 ? text_of<host::system_error>([&] { (void)comm.allocate(100); })
                                              : text_of<host::remote_error>([&] { (void)comm.allocate(100); });
    require(text.find("out of memory on purpose") != std::string::npos, "the text tells why: " + text);
    devices.without_memory = -1;
    comm.barrier();
    const auto window = comm.allocate(100);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}
