// How the spans of all ranks reach rank 0. The spans are written by the host; tests/trace has those of kernels.
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace.hpp>
#include <devcomm/host/communicator.hpp>

#include "rank/topology.hpp"
#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

using namespace devcomm;
using namespace devcomm_test;

namespace {

constexpr span_name names[] = {"of rank zero", "of rank one", "of rank two", "of rank three"};

/// A span in the last place of the last ring, as a kernel leaves it.
void record(const device_comm& d) {
  char* const window = d.resources.local;
  const trace_rings rings = reinterpret_cast<const resource_header*>(window)->trace;
  const std::uint32_t ring = rings.rings() - 1;
  const span_name name = names[d.rank];
  const trace_record written{1000, 2000, name.low, name.high};
  std::memcpy(window + rings.offset + rings.count(ring), &rings.spans, sizeof rings.spans);
  for (std::uint32_t i = 0; i < rings.spans; ++i) {
    std::memcpy(window + rings.offset + rings.record(ring, i), &written, sizeof written);
  }
}

/// By which ranks know each other's hosts.
std::string host_name() {
  const auto name = host::detail::name_of_host();
  return {reinterpret_cast<const char*>(name.data()), name.size()};
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a trace of any size reaches rank 0, and no other rank of its host receives it") {
  const int inside = GENERATE(0, 1, 2);  // ranks of a process; 0: all in this one
  const bool apart = inside == 1 && GENERATE(false, true);
  CAPTURE(inside, apart);
  constexpr int ranks = 4;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("devcomm_trace_" + std::to_string(::getpid()) + ".json")).string();
  const rank_body body = [&](auto bootstrap) {
    const bool elsewhere = apart && bootstrap->rank() % 2 == 1;
    const auto counting = std::make_shared<altered_bootstrap>(std::move(bootstrap), elsewhere ? host_name() : "");
    host::communicator comm(counting);
    // 17 MiB a rank, or a little more than a piece.
    const auto device = comm.create_device_comm(comm.requirements().with(tracing{apart ? 1'100u : 17'500u, 32}));
    record(device.get());
    const std::size_t before = counting->received();
    comm.write_trace(device, path);
    const std::size_t received = counting->received() - before;
    if (apart) {
      require(comm.lsa().size == 1, "odd ranks pass for ranks of another host");
    } else {
      require(received < 64'000, "spans do not travel to all ranks, but " + std::to_string(received) + " bytes did");
    }
    const auto memory = comm.allocate(100);  // windows after it have their own numbers
    comm.barrier();
  };
  const auto ends = inside == 0 ? on_threads(ranks, body) : on_processes(ranks, body, inside);
  CHECK(ends == all_ok(ranks));
  const std::string trace = text_of_file(path);
  for (const char* name : {"of rank zero", "of rank one", "of rank two", "of rank three"}) {
    CHECK(trace.find(name) != std::string::npos);
  }
  std::filesystem::remove(path);
}
