#include <util/cpu_list.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sched.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm::host::detail;

namespace {

using cpus = std::vector<int>;

}  // namespace

TEST_CASE("lists of processors are read as the kernel writes them") {
  CHECK(parse_cpu_list("0") == cpus{0});
  CHECK(parse_cpu_list("0-3,8") == cpus{0, 1, 2, 3, 8});
  CHECK(parse_cpu_list("5-5") == cpus{5});
  for (const char* const wrong : {"", "a", "1-", "-1", "3-1", "1,", ",1", "1 2", "1-2-3", "4096", "99999999999"}) {
    CHECK(!parse_cpu_list(wrong));
  }
}

TEST_CASE("processors near a device are found by its place on the bus") {
  const auto root = std::filesystem::temp_directory_path() / ("devcomm_cpus_" + std::to_string(::getpid()));
  const auto folder = root / "bus/pci/devices/0001:9a:1b.0";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "local_cpulist") << "16-17,48\n";
  CHECK(cpus_near(std::uint64_t{1} << 32 | 0x9a1b, root) == cpus{16, 17, 48});
  CHECK(cpus_near(0x9a1b, root).empty());
  std::filesystem::remove_all(root);
}

TEST_CASE("a thread stays on what it is given") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  int some = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(some), &before)) ++some;
  CHECK(usable_cpus({some}) == cpus{some});
  cpu_set_t now;
  CPU_ZERO(&now);
  std::thread([&] {
    stay_on({});
    stay_on({some});
    ::sched_getaffinity(0, sizeof now, &now);
  }).join();
  CHECK(CPU_COUNT(&now) == 1);
  CHECK(CPU_ISSET(static_cast<std::size_t>(some), &now));
}
