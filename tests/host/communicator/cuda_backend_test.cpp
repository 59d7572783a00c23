#include <device/backend.hpp>

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/run_ranks.hpp>

#include <catch2/catch_test_macros.hpp>

#include <dlfcn.h>

#include <string>

using namespace devcomm;

namespace {

bool driver_present() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

}  // namespace

TEST_CASE("the CUDA library links without the driver, and names itself") {
  CHECK(host::detail::current_backend().name() == "cuda");
}

TEST_CASE("without a driver, everything that needs one says so and what to do") {
  if (driver_present()) SKIP("there is a CUDA driver");
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      static_cast<void>(host::detail::current_backend().device_count());
      FAIL("a device count without a driver");
    } catch (const host::not_supported& e) {
      const std::string text = e.what();
      CAPTURE(text);
      CHECK(text.find("there is no CUDA driver: libcuda.so.1") == 0);
      CHECK(text.find("link devcomm::simulator (from Python: DEVCOMM_BACKEND=simulator) to run without a GPU") !=
            std::string::npos);
    }
  }
  CHECK_THROWS_AS(host::communicator(host::thread_bootstraps(1)[0]), host::not_supported);
  CHECK_THROWS_AS(host::run_ranks({.ranks = 2}, [](host::communicator&) {}), host::not_supported);
}

TEST_CASE("with a driver and a device, the facts are complete") {
  if (!driver_present()) SKIP("there is no CUDA driver");
  auto& devices = host::detail::current_backend();
  const int count = devices.device_count();
  for (int device = 0; device < count; ++device) {
    const auto facts = devices.facts(device);
    CHECK(!facts.name.empty());
    CHECK(facts.multiprocessors > 0);
    CHECK(facts.uuid.size() == 36);
    for (const auto* each :
         {&facts.file_descriptor_handles, &facts.fabric_handles, &facts.cuda_ipc, &facts.multicast}) {
      CHECK(!each->reason.empty());
    }
    CHECK(devices.granularity(device) % 4096 == 0);
    CHECK(devices.peer_access(device, facts.uuid).available);
  }
}
