// Contexts of the network between processes, over libfabric: the laws of context_test.cu, and what becomes of ranks
// whose peers, windows or providers are not there. The comments name the lines of the table in docs/gin.md.
#include <devcomm/devcomm.cuh>

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "context_kernels.cuh"
#include "host/communicator/rank_harness.hpp"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;
using namespace gin_test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using devcomm_test::all_ok;
using devcomm_test::outcomes;

namespace {

using rank_program = std::function<void(host::communicator&)>;

/// Ranks that reach each other by `provider` alone, `inside` in each process.
outcomes on_hosts(int ranks, const std::string& provider, const rank_program& program, int inside = 1,
                  host::communicator_options options = {}) {
  options.lsa_size = 1;
  return devcomm_test::on_processes(
      ranks,
      [&](auto bootstrap) {
        ::setenv("DEVCOMM_GIN_PROVIDER", provider.c_str(), 1);
        host::communicator comm(std::move(bootstrap), options);
        program(comm);
      },
      inside);
}

std::string any_provider() { return GENERATE("tcp;ofi_rxm", "shm"); }

/// Rounds of `shift` with each of `messages`.
rank_program shifts(std::vector<message> messages) {
  return [messages = std::move(messages)](host::communicator& comm) {
    constexpr unsigned blocks = 2;
    std::uint64_t part = 0;
    for (const message& what : messages) part = std::max(part, what.bytes + 64);
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), blocks, 2});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(blocks * part);
    const auto out = comm.allocate(blocks * part);
    const test::device_array<std::uint32_t> wrong(blocks * threads);
    std::uint32_t first = 0;
    for (const message& what : messages) {
      launch(shift, blocks_of(blocks), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), part, what,
             first, 2u, wrong.get());
      test::finish("shift");
      device_comm.check();
      require_none(wrong, std::to_string(what.bytes) + " bytes");
      first += 2;
    }
    comm.barrier();
  };
}

}  // namespace

TEST_CASE("between processes a weak signal has the data of its put before it, for any size and alignment") {
  const std::string provider = any_provider();
  const int ranks = GENERATE(2, 3);
  CAPTURE(provider, ranks);
  CHECK(on_hosts(ranks, provider, shifts({{0, 0, 0}, {1, 3, 0}, {16, 0, 16}, {4097, 1, 7}, {100001, 3, 5}})) ==
        all_ok(ranks));
}

TEST_CASE("large puts arrive whole, in pieces") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  constexpr std::uint64_t large = DEVCOMM_TEST_LARGE;
  CHECK(on_hosts(2, provider, shifts({{large, 0, 0}, {large + 13, 1, 3}})) == all_ok(2));
}

TEST_CASE("ranks of one process and of others reach each other alike") {
  CHECK(on_hosts(4, "tcp;ofi_rxm", shifts({{1, 0, 0}, {777, 1, 2}}), 2) == all_ok(4));
}

TEST_CASE("between processes a strong signal has all earlier puts before it, also where the queue is full") {
  const std::string provider = any_provider();
  const int ranks = GENERATE(2, 3);
  CAPTURE(provider, ranks);
  const auto ends = on_hosts(ranks, provider, require_strong_signals);
  CHECK(ends == all_ok(ranks));
}

TEST_CASE("between processes what a get brought is there after a flush of its peer, or by its counter") {
  const std::string provider = any_provider();
  const bool by_counter = GENERATE(false, true);
  const auto bytes = GENERATE(std::uint64_t{0}, std::uint64_t{777}, (std::uint64_t{3} << 20) + 1);
  CAPTURE(provider, by_counter, bytes);
  const auto ends = on_hosts(3, provider, [&](host::communicator& comm) { require_gets(comm, bytes, by_counter); });
  CHECK(ends == all_ok(3));
}

TEST_CASE("between processes values carry their bytes and no more, and signals can be set, added to and reset") {
  const std::string provider = any_provider();
  const int ranks = GENERATE(2, 3);
  CAPTURE(provider, ranks);
  const auto ends = on_hosts(ranks, provider, require_values);
  CHECK(ends == all_ok(ranks));
}

namespace {

/// Puts to rank 1 until a wait fails.
__global__ void stream_puts(device_comm comm, gin::context_handle contexts, sym_ptr<char> in, sym_ptr<char> out,
                            std::uint64_t bytes, status* outcome) {
  gin::context net{block{}, comm, contexts, 0};
  status now = status::success;
  while (now == status::success) {
    net.put(1, out, in, bytes, gin::signal_add{0});
    net.put(1, out, in, bytes, gin::signal_add{0, 1, gin::strength::weak});
    net.flush();
    now = net.agree();
  }
  outcome[threadIdx.x] = now;
}

/// Rank 0 streams puts to rank 1, which does `end` meanwhile. Returns what rank 0 found.
outcomes stream_until(const std::string& provider,
                      const std::function<void(host::communicator&, host::device_communicator&)>& end) {
  host::communicator_options impatient;
  impatient.kernel_timeout = 5s;
  return on_hosts(
      2, provider,
      [&](host::communicator& comm) {
        constexpr std::uint64_t bytes = 300000;
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
        auto device_comm = comm.create_device_comm(needs);
        const auto in = comm.allocate(bytes);
        const auto out = comm.allocate(bytes);
        comm.barrier();
        if (comm.rank() == 1) {
          std::this_thread::sleep_for(200ms);
          return end(comm, device_comm);
        }
        const test::device_array<status> outcome(threads);
        const auto begun = std::chrono::steady_clock::now();
        launch(stream_puts, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), bytes,
               outcome.get());
        test::finish("stream_puts");
        test::require(std::chrono::steady_clock::now() - begun < 15s, "the waits end within the timeout");
        test::require(outcome.read()[0] != status::success, "the waits fail");
        std::this_thread::sleep_for(1ms);
        device_comm.check();
      },
      1, impatient);
}

}  // namespace

TEST_CASE("a process killed in a stream of puts ends its peer's waits, and is named") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  const auto ends = stream_until(provider, [](host::communicator&, host::device_communicator&) { ::raise(SIGKILL); });
  INFO(ends[0]);
  CHECK(ends[1] == "signal 9");
  CHECK((ends[0].starts_with("remote_error(1)") || ends[0].find("to rank 1 in context 0") != std::string::npos));
}

TEST_CASE("a rank that has destroyed its device communicator ends the puts to it, and is named") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  const auto ends = stream_until(provider, [](host::communicator& comm, host::device_communicator& device_comm) {
    { const host::device_communicator gone = std::move(device_comm); }
    std::this_thread::sleep_for(3s);
    static_cast<void>(comm);
  });
  INFO(ends[0]);
  CHECK(ends[1] == "ok");
  CHECK_THAT(ends[0],
             ContainsSubstring(
                 "kernel_error: check (rank 0 of 2): rank 0: put to rank 1 in context 0: that rank has destroyed "));
}

TEST_CASE("between processes an operation on a window that is gone ends the waits, and says which and why") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  const auto ends = on_hosts(2, provider, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(64);
    sym_ptr<char> gone{};
    {
      const auto out = comm.allocate(64);
      gone = out.pointer<char>();
    }
    comm.barrier();
    const test::device_array<status> outcome(threads);
    launch(put_to_next, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), gone, outcome.get());
    test::finish("put_to_next");
    test::require(outcome.read()[0] == status::aborted, "the wait is aborted");
    const std::string next = "rank " + std::to_string(1 - comm.rank());
    const std::string said = devcomm_test::text_of<host::kernel_error>([&] { device_comm.check(); });
    test::require(said.find("put to " + next + " in context 0: " + next + " has no window") != std::string::npos,
                  "check said: " + said);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("a provider that is not there is refused by name, with another one to take") {
  const std::string provider =
      GENERATE("no such provider", "a name that is much longer than any of libfabric's is ..........");
  const auto ends = on_hosts(2, provider, [](host::communicator& comm) {
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
    static_cast<void>(comm.create_device_comm(needs));
  });
  for (const std::string& end : ends) {
    CHECK_THAT(end, ContainsSubstring("not_supported: create_device_comm"));
    CHECK_THAT(end, ContainsSubstring("libfabric has no provider \"" + provider + "\""));
    CHECK_THAT(end, ContainsSubstring("DEVCOMM_GIN_PROVIDER"));
  }
}

TEST_CASE("the provider shm is refused by name where a process holds several ranks") {
  const auto ends = on_hosts(4, "shm", shifts({{1, 0, 0}}), 2);
  for (const std::string& end : ends) {
    CHECK_THAT(end, ContainsSubstring("not_supported: create_device_comm"));
    CHECK_THAT(end, ContainsSubstring("give each rank a process"));
  }
}

TEST_CASE("ranks with different providers are refused by name") {
  const auto ends = devcomm_test::on_processes(2, [](auto bootstrap) {
    ::setenv("DEVCOMM_GIN_PROVIDER", bootstrap->rank() == 0 ? "tcp;ofi_rxm" : "shm", 1);
    host::communicator comm(std::move(bootstrap));
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
    static_cast<void>(comm.create_device_comm(needs));
  });
  for (const std::string& end : ends) {
    CHECK_THAT(end, ContainsSubstring("rank 1 has libfabric's provider shm and rank 0 has tcp;ofi_rxm"));
  }
}

TEST_CASE("device communicators with contexts leave no descriptor and no thread behind") {
  const auto ends = on_hosts(2, "tcp;ofi_rxm", [](host::communicator& comm) {
    const auto in = comm.allocate(64);
    const auto out = comm.allocate(64);
    const auto round = [&] {
      auto needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
      const auto device_comm = comm.create_device_comm(needs);
      const test::device_array<status> outcome(threads);
      launch(put_to_next, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(),
             outcome.get());
      test::finish("put_to_next");
      device_comm.check();
      test::require(outcome.read()[0] == status::success, "the signal comes");
    };
    for (int i = 0; i < 3; ++i) round();
    const auto before = devcomm_test::count_holdings();
    for (int i = 0; i < 20; ++i) round();
    const auto after = devcomm_test::count_holdings();
    test::require(after.descriptors <= before.descriptors,
                  "descriptors: " + std::to_string(after.descriptors) + " after " + std::to_string(before.descriptors));
    test::require(after.threads <= before.threads, "threads: " + std::to_string(after.threads));
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}
