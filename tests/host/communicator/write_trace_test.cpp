// How the spans of all ranks reach rank 0. The spans are written by the host; tests/trace has those of kernels.
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace.hpp>
#include <devcomm/host/communicator.hpp>

#include "communicator/trace_parts.hpp"
#include "rank/topology.hpp"
#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

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

/// While it lives this process can write no byte to a file, if `wanted`. Descriptors stay free: UBSan needs some.
class no_room_in_files {
 public:
  explicit no_room_in_files(bool wanted) {
    if (!wanted) return;
    require(::getrlimit(RLIMIT_FSIZE, &before_) == 0, "there is a limit");
    const rlimit none{0, before_.rlim_max};
    handler_ = std::signal(SIGXFSZ, SIG_IGN);  // an error of the call instead
    limited_ = ::setrlimit(RLIMIT_FSIZE, &none) == 0;
    require(limited_, "it can be lower");
  }
  ~no_room_in_files() {
    if (!limited_) return;
    static_cast<void>(::setrlimit(RLIMIT_FSIZE, &before_));
    std::signal(SIGXFSZ, handler_);
  }
  no_room_in_files(const no_room_in_files&) = delete;
  no_room_in_files& operator=(const no_room_in_files&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
  bool limited_ = false;
};

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a trace of any size reaches rank 0, and no other rank receives it") {
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
    require(comm.lsa().size == (apart ? 2 : 4), "odd ranks pass for ranks of another host");
    require(received < 64'000 || (apart && comm.rank() == 0),
            "spans do not travel to all ranks, but " + std::to_string(received) + " bytes did");
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

TEST_CASE("a trace that one rank cannot send leaves no descriptor of the others on rank 0") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("devcomm_no_trace_" + std::to_string(::getpid()) + ".json")).string();
  const auto ends = on_processes(3, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto device = comm.create_device_comm(comm.requirements().with(tracing{16, 32}));
    record(device.get());
    const auto before = count_holdings().descriptors;
    comm.barrier();  // no rank sends before all have counted
    std::string text;
    {
      const no_room_in_files full(comm.rank() == 2);
      text = text_of<host::error>([&] { comm.write_trace(device, path); });
    }
    require(text.find("write failed") != std::string::npos, "rank 2 can write no file: " + text);
    std::this_thread::sleep_for(300ms);  // what rank 1 sent has arrived
    require(count_holdings().descriptors == before, "descriptors that arrived are closed");
    comm.barrier();
  });
  CHECK(ends == all_ok(3));
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("pieces of all ranks' traces are bounded together") {
  for (const int ranks : {1, 2, 16, 17, 1024, 4096}) {
    CAPTURE(ranks);
    CHECK(host::detail::bytes_of_trace_piece(ranks) * static_cast<std::size_t>(ranks) <= std::size_t{16} << 20);
    CHECK(host::detail::bytes_of_trace_piece(ranks) <= std::size_t{1} << 20);
  }
  CHECK(host::detail::bytes_of_trace_piece(100'000) == 4096);
}
