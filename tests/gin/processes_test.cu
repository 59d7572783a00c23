// Contexts of the network between processes, over libfabric: the laws of context_test.cu, and what becomes of ranks
// whose peers, windows or providers are not there. The comments name the lines of the table in docs/gin.md.
#include <devcomm/devcomm.cuh>

#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "context_kernels.cuh"
#include "host/communicator/own_host.hpp"
#include "host/communicator/rank_harness.hpp"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <malloc.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

using namespace devcomm;
using namespace gin_test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using devcomm_test::all_ok;
using devcomm_test::outcomes;

namespace {

using rank_program = std::function<void(host::communicator&)>;

/// Ranks that reach each other by `provider`, and those of an LSA team by stores too; `inside` in each process.
outcomes on_hosts(int ranks, const std::string& provider, const rank_program& program, int inside = 1,
                  host::communicator_options options = {}, int lsa_size = 1) {
  options.lsa_size = lsa_size;
  return devcomm_test::on_processes(
      ranks,
      [&](auto bootstrap) {
        ::setenv("DEVCOMM_GIN_PROVIDER", provider.c_str(), 1);
        host::communicator comm(std::move(bootstrap), options);
        program(comm);
      },
      inside);
}

/// GIN_TEST_PROVIDERS lists others to take.
std::string any_provider() {
  static const auto all = [] {
    const char* const listed = std::getenv("GIN_TEST_PROVIDERS");
    std::istringstream words(listed == nullptr ? "tcp;ofi_rxm shm" : listed);
    return std::vector<std::string>{std::istream_iterator<std::string>(words), {}};
  }();
  return GENERATE(from_range(all));
}

constexpr int guard_byte = 0xa5;

/// All of the blocks' parts of a window, but what each got of `what`, is as `guard_byte` left it.
void require_guards(const sym_ptr<char>& out, unsigned blocks, std::uint64_t part, const message& what) {
  std::vector<unsigned char> found(blocks * part);
  check_cuda(cudaMemcpyAsync(found.data(), out.local(), found.size(), cudaMemcpyDefault, cudaStreamPerThread),
             "cudaMemcpyAsync");
  test::finish("cudaMemcpyAsync");
  for (std::uint64_t i = 0; i < found.size(); ++i) {
    const bool inside = i % part >= what.destination && i % part < what.destination + what.bytes;
    test::require(inside || found[i] == guard_byte, [&] {
      return "a put of " + std::to_string(what.bytes) + " bytes to byte " + std::to_string(what.destination) +
             " has changed byte " + std::to_string(i % part);
    });
  }
}

/// Rounds of `shift` with each of `messages`, which write nothing around them.
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
      check_cuda(cudaMemsetAsync(out.data(), guard_byte, blocks * part, cudaStreamPerThread), "cudaMemsetAsync");
      test::finish("cudaMemsetAsync");
      comm.barrier();
      launch(shift, blocks_of(blocks), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), part, what,
             first, 2u, wrong.get());
      test::finish("shift");
      device_comm.check();
      require_none(wrong, std::to_string(what.bytes) + " bytes");
      require_guards(out.pointer<char>(), blocks, part, what);
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
  // A message carries 8,192 bytes.
  CHECK(on_hosts(ranks, provider,
                 shifts({{0, 1, 3},
                         {1, 3, 0},
                         {16, 0, 16},
                         {4097, 1, 7},
                         {8192, 0, 0},
                         {8192, 3, 5},
                         {8193, 0, 0},
                         {8193, 5, 3},
                         {100001, 3, 5}})) == all_ok(ranks));
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

TEST_CASE("between processes a fence orders what all contexts have put to a peer before its later signals") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  CHECK(on_hosts(2, provider, require_fences) == all_ok(2));
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

enum class acquaintance { has_met, new_to };

/// Rank 0 streams puts to rank 1, which does `end` meanwhile, or before where they have not met. Returns how both
/// ended.
outcomes stream_until(const std::string& provider, acquaintance peer,
                      const std::function<void(host::communicator&, host::device_communicator&)>& end) {
  host::communicator_options impatient;
  impatient.kernel_timeout = 8s;
  return on_hosts(
      2, provider,
      [&](host::communicator& comm) {
        constexpr std::uint64_t bytes = 300000;
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
        auto device_comm = comm.create_device_comm(needs);
        const auto in = comm.allocate(bytes);
        const auto out = comm.allocate(bytes);
        const test::device_array<status> outcome(threads);
        if (peer == acquaintance::has_met) {
          launch(put_to_next, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(),
                 outcome.get());
          test::finish("put_to_next");
        }
        comm.barrier();
        if (comm.rank() == 1) {
          if (peer == acquaintance::has_met) std::this_thread::sleep_for(200ms);
          end(comm, device_comm);
          if (peer == acquaintance::new_to) comm.barrier();
          return;
        }
        if (peer == acquaintance::new_to) comm.barrier();
        const auto begun = std::chrono::steady_clock::now();
        launch(stream_puts, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), bytes,
               outcome.get());
        test::finish("stream_puts");
        test::require(std::chrono::steady_clock::now() - begun < 24s, "the waits end within the timeout");
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
  const auto ends = stream_until(provider, acquaintance::has_met,
                                 [](host::communicator&, host::device_communicator&) { ::raise(SIGKILL); });
  INFO(ends[0]);
  CHECK(ends[1] == "signal 9");
  CHECK((ends[0].starts_with("remote_error(1)") || ends[0].find("to rank 1 in context 0") != std::string::npos));
}

TEST_CASE("eight device communicators of which a peer was killed are gone as soon as one") {
  const auto ends = on_hosts(2, "tcp;ofi_rxm", [](host::communicator& comm) {
    constexpr std::uint64_t bytes = 300000;
    const auto in = comm.allocate(bytes);
    const auto out = comm.allocate(bytes);
    const test::device_array<status> outcome(threads);
    std::vector<host::device_communicator> all;
    std::vector<gin::context_handle> contexts;
    for (int i = 0; i < 8; ++i) {
      auto needs = comm.requirements();
      contexts.push_back(needs.add(gin::contexts{comm.world(), 1, 1}));
      all.push_back(comm.create_device_comm(needs));
      launch(put_to_next, blocks_of(1), all.back().get(), contexts.back(), in.pointer<char>(), out.pointer<char>(),
             outcome.get());
      test::finish("put_to_next");
    }
    comm.barrier();
    if (comm.rank() == 1) ::raise(SIGKILL);
    // Each has puts under way that nobody acknowledges any more.
    for (std::size_t i = 0; i < all.size(); ++i)
      launch(stream_puts, blocks_of(1), all[i].get(), contexts[i], in.pointer<char>(), out.pointer<char>(), bytes,
             outcome.get());
    test::finish("stream_puts");
    const auto begun = std::chrono::steady_clock::now();
    all.clear();
    const auto took = std::chrono::steady_clock::now() - begun;
    test::require(took < 3s,
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) + " ms");
    try {
      comm.check();
    } catch (const host::error&) {
    }
  });
  CHECK(ends[1] == "signal 9");
  CHECK(ends[0] == "ok");
}

TEST_CASE("a rank that has destroyed its device communicator ends the puts to it, and is named") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  const auto ends = stream_until(provider, acquaintance::has_met,
                                 [](host::communicator& comm, host::device_communicator& device_comm) {
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

TEST_CASE(
    "a rank that has destroyed its device communicator before it was ever met ends the puts to it, and is named") {
  const auto ends = stream_until("tcp;ofi_rxm", acquaintance::new_to,
                                 [](host::communicator&, host::device_communicator& device_comm) {
                                   const host::device_communicator gone = std::move(device_comm);
                                 });
  INFO(ends[0]);
  CHECK(ends[1] == "ok");
  CHECK_THAT(ends[0], ContainsSubstring("kernel_error: check (rank 0 of 2): rank 0: put to rank 1 in context 0: "));
}

namespace {

__global__ void meet(device_comm comm, status* outcome) {
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync();
  outcome[threadIdx.x] = barrier.agree();
}

}  // namespace

TEST_CASE("a wait for stores of a process that has returned, or destroyed what it uses, ends and names its rank") {
  const bool stays = GENERATE(false, true);
  const auto ends = on_hosts(
      2, "tcp;ofi_rxm",
      [stays](host::communicator& comm) {
        const test::device_array<status> outcome(threads);
        auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        comm.barrier();
        if (comm.rank() == 1) {
          { const host::device_communicator gone = std::move(device_comm); }
          if (stays) comm.barrier();
          return;
        }
        const auto start = std::chrono::steady_clock::now();
        launch(meet, blocks_of(1), device_comm.get(), outcome.get());
        test::finish("meet");
        test::require(std::chrono::steady_clock::now() - start < 10s, "the wait takes long");
        test::require(outcome.read()[0] == status::aborted, "the wait is aborted");
        const std::string said = devcomm_test::text_of<host::remote_error>([&] { device_comm.check(); });
        test::require(said.find("rank 1 has destroyed its device communicator") != std::string::npos, said);
        if (stays) comm.barrier();
      },
      1, {}, 2);
  CHECK(ends == all_ok(2));
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

namespace {

__global__ void put_in_context(device_comm comm, gin::context_handle contexts, std::uint32_t context, sym_ptr<char> in,
                               sym_ptr<char> out, status* outcome) {
  gin::context net{block{}, comm, contexts, context};
  net.put((comm.rank + 1) % comm.size, out, in, 64);
  net.flush();
  outcome[threadIdx.x] = net.agree();
}

}  // namespace

TEST_CASE("several proxies serve the contexts, and name them by their numbers") {
  const auto ends = on_hosts(2, "tcp;ofi_rxm", [](host::communicator& comm) {
    ::setenv("DEVCOMM_GIN_PROXIES", "2", 1);
    ::setenv("DEVCOMM_GIN_CPUS", "0-1023", 1);
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 3, 1});
    const auto device_comm = comm.create_device_comm(needs);
    test::require(device_comm.network().reason.starts_with("2 proxies over libfabric's provider tcp;ofi_rxm"),
                  device_comm.network().reason);
    const auto in = comm.allocate(64);
    sym_ptr<char> gone{};
    const test::device_array<status> outcome(threads);
    const auto put = [&](std::uint32_t context, sym_ptr<char> out) {
      launch(put_in_context, blocks_of(1), device_comm.get(), contexts, context, in.pointer<char>(), out,
             outcome.get());
      test::finish("put_in_context");
    };
    const auto out = comm.allocate(64);
    for (std::uint32_t context = 0; context < 3; ++context) put(context, out.pointer<char>());
    device_comm.check();
    {
      const auto short_lived = comm.allocate(64);
      gone = short_lived.pointer<char>();
    }
    comm.barrier();
    put(2, gone);
    const std::string next = "rank " + std::to_string(1 - comm.rank());
    const std::string said = devcomm_test::text_of<host::kernel_error>([&] { device_comm.check(); });
    test::require(said.find("put to " + next + " in context 2: " + next + " has no window") != std::string::npos,
                  "check said: " + said);
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("numbers of proxies, and their processors, are refused by name where they make no sense") {
  const auto ends = devcomm_test::on_processes(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
    const auto create = [&](const char* variable, const std::string& value) {
      if (!value.empty()) ::setenv(variable, value.c_str(), 1);
      auto needs = comm.requirements();
      static_cast<void>(needs.add(gin::contexts{comm.world(), 4}));
      const std::string said =
          devcomm_test::text_of<host::error>([&] { static_cast<void>(comm.create_device_comm(needs)); });
      ::unsetenv(variable);
      return said;
    };
    const auto require_said = [](const std::string& said, const char* what) {
      test::require(said.find(what) != std::string::npos, "was said: " + said);
    };
    require_said(create("DEVCOMM_GIN_PROXIES", std::to_string(1 + comm.rank())),
                 "rank 1 uses 2 proxies and rank 0 1; set DEVCOMM_GIN_PROXIES alike on all ranks");
    require_said(create("DEVCOMM_GIN_PROXIES", "0"), "a number of threads from 1 to 64");
    require_said(create("DEVCOMM_GIN_PROXIES", comm.rank() == 1 ? "1" : ""),
                 "rank 1 uses 1 proxies and rank 0 as many as its processors allow; set DEVCOMM_GIN_PROXIES alike");
    // One rank's mistake: the other is told, and both go on to their next calls.
    require_said(create("DEVCOMM_GIN_PROXIES", comm.rank() == 1 ? "several" : "1"),
                 comm.rank() == 1 ? "create_device_comm (rank 1 of 2): DEVCOMM_GIN_PROXIES is \"several\""
                                  : "create_device_comm (rank 0 of 2): rank 1 failed: ");
    require_said(create("DEVCOMM_GIN_CPUS", "some"), "a list of processors (0-3,8)");
    require_said(create("DEVCOMM_GIN_CPUS", "1023"), "processors on which this process may run");
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

TEST_CASE("the network card that is named is taken, and one that is not there is refused with those that are") {
  const auto ends = on_hosts(2, "tcp;ofi_rxm", [](host::communicator& comm) {
    const auto create = [&](const char* card) {
      ::setenv("DEVCOMM_GIN_CARD", card, 1);
      auto needs = comm.requirements();
      static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
      return comm.create_device_comm(needs).network().reason;
    };
    const auto refusal = [&](const char* card) {
      return devcomm_test::text_of<host::error>([&] { static_cast<void>(create(card)); });
    };
    const std::string none = refusal("no such card");
    test::require(
        none.find("libfabric's provider \"tcp;ofi_rxm\" has no card \"no such card\", but ") != std::string::npos &&
            none.find("lo") != std::string::npos && none.find("set DEVCOMM_GIN_CARD to one that") != std::string::npos,
        "was said: " + none);
    const std::string empty = refusal("");
    test::require(empty.find("DEVCOMM_GIN_CARD is \"\"") != std::string::npos, "was said: " + empty);
    const std::string taken = create("lo");
    test::require(taken.starts_with("libfabric's provider tcp;ofi_rxm on lo;"), taken);
    ::setenv("DEVCOMM_INTERFACE", "eth0", 1);  // of other hosts, of which there are none
    test::require(create("lo") == taken, "the card counts");
    ::unsetenv("DEVCOMM_INTERFACE");
    shifts({{8, 0, 0}, {300001, 1, 0}})(comm);
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("a process has contexts over shm whose predecessor of the same number was killed") {
  const auto ends = on_hosts(2, "shm", [](host::communicator& comm) {
    // What such a one would have left there, by libfabric's own name.
    struct left_file {
      explicit left_file(int i)
          : path("/dev/shm/" + std::to_string(::getpid()) + ":" + std::to_string(::getuid()) + ":" +
                 std::to_string(i)) {
        std::ofstream(path) << "left";
      }
      ~left_file() { std::remove(path.c_str()); }
      std::string path;
    };
    const left_file first(0);
    const left_file second(1);
    shifts({{8, 0, 0}})(comm);
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("the provider shm is refused by name where a process holds several ranks") {
  const auto ends = on_hosts(4, "shm", shifts({{1, 0, 0}}), 2);
  for (const std::string& end : ends) {
    CHECK_THAT(end, ContainsSubstring("not_supported: create_device_comm"));
    CHECK_THAT(end, ContainsSubstring("give each rank a process"));
  }
}

TEST_CASE("the provider shm is refused where /dev/shm has no room, and the error says so") {
  const auto ends = devcomm_test::on_processes(2, [](auto bootstrap) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
      throw std::runtime_error("no mount namespace");
    }
    ::setenv("DEVCOMM_GIN_PROVIDER", "shm", 1);
    host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
    static_cast<void>(comm.create_device_comm(needs));
  });
  if (ends[0] == "error: no mount namespace") SKIP("this system does not let a process mount");
  for (const std::string& end : ends) {
    CHECK_THAT(end, ContainsSubstring("not_supported: create_device_comm"));
    CHECK_THAT(end, ContainsSubstring("which needs 17 MiB of /dev/shm for each rank; set DEVCOMM_GIN_PROVIDER to"));
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

// With the providers of strict_libfabric.cpp, which STRICT_CARDS gives to a process.
TEST_CASE("between hosts the first provider of network cards that all ranks can use is chosen", "[.][cards]") {
  struct course {
    const char* cards[2];  // of the ranks
    const char* chosen;
    const char* why;
  };
  const course one =
      GENERATE(course{{"psm3 cxi", "cxi psm3"}, "cxi", "all ranks have network cards of it"},
               course{{"cxi psm3", "psm3"}, "psm3", "all ranks have network cards of it"},
               course{{"cxi:down psm3", "cxi psm3"}, "psm3", "all ranks have network cards of it"},
               course{{"cxi:broken psm3", "cxi psm3"}, "psm3", "all ranks have network cards of it"},
               course{{"cxi", "psm3"}, "tcp;ofi_rxm", "rank 1 has those of other providers"},
               course{{"cxi", ""}, "tcp;ofi_rxm", "rank 1 has none: no provider of libfabric drives a network card"},
               course{{"cxi", "cxi:down"}, "tcp;ofi_rxm", "rank 1 has none: the link of lo is down"},
               course{{"cxi:broken", "cxi"}, "tcp;ofi_rxm", "rank 0 has none: fi_domain of libfabric's provider cxi"});
  CAPTURE(one.cards[0], one.cards[1]);
  const auto ends = devcomm_test::on_processes(2, [&](auto bootstrap) {
    if (!devcomm_test::enter_own_host()) throw std::runtime_error("no network namespace");
    ::setenv("STRICT_CARDS", one.cards[bootstrap->rank()], 1);
    ::setenv("DEVCOMM_ADDRESS", "127.0.0.1", 1);  // none other is in the namespace
    host::communicator comm(std::move(bootstrap));
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
    const auto device_comm = comm.create_device_comm(needs);
    const std::string said = device_comm.network().reason;
    test::require(said.starts_with("libfabric's provider " + std::string(one.chosen) + " "), "network() says: " + said);
    test::require(said.find(one.why) != std::string::npos, "network() says: " + said);
    comm.barrier();
  });
  if (ends[0] == "error: no network namespace") SKIP("this system does not let a process enter a network namespace");
  CHECK(ends == all_ok(2));
}

TEST_CASE("on one host no network card is looked for, and the provider that is named is taken", "[.][cards]") {
  const bool named = GENERATE(false, true);
  const auto ends = devcomm_test::on_processes(2, [&](auto bootstrap) {
    if (named) ::setenv("DEVCOMM_GIN_PROVIDER", "psm3", 1);
    host::communicator comm(std::move(bootstrap), {.lsa_size = 1});
    shifts({{8, 0, 0}, {300001, 1, 0}})(comm);
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
    const std::string said = comm.create_device_comm(needs).network().reason;
    test::require(said.starts_with(named ? "libfabric's provider psm3 " : "libfabric's provider tcp;ofi_rxm "), said);
  });
  CHECK(ends == all_ok(2));
}

namespace {

/// Puts to all other ranks, and waits for what comes from them; `round` counts the launches with these contexts.
__global__ void put_to_all(device_comm comm, gin::context_handle contexts, sym_ptr<char> in, sym_ptr<char> out,
                           std::uint64_t bytes, std::uint32_t round, status* outcome) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  const auto others = static_cast<std::uint64_t>(comm.size - 1);
  for (int i = 1; i < comm.size; ++i) {
    const int peer = (comm.rank + i) % comm.size;
    net.put(peer, out + static_cast<std::int64_t>(bytes) * comm.rank, in, bytes, gin::signal_add{0});
  }
  net.wait_signal(0, others * (round + 1));
  net.flush();
  outcome[blockIdx.x * threads + threadIdx.x] = net.agree();
}

/// What the process holds; memory without what the allocator keeps.
struct all_holdings {
  devcomm_test::holdings counted;
  long own;  // KiB in memory and in swap, without files: the system drops and reads their pages as it likes
};

all_holdings hold_now() {
  ::malloc_trim(0);
  long own = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:") || line.starts_with("VmSwap:")) own += std::stol(line.substr(line.find(':') + 1));
  }
  return {devcomm_test::count_holdings(), own};
}

/// Creates and destroys contexts, and half the time windows, around every eight launches.
void soak(host::communicator& comm, int launches) {
  constexpr std::uint64_t bytes = 40'000;
  constexpr int in_a_row = 8;
  const auto kept_in = comm.allocate(bytes);
  const auto kept_out = comm.allocate(bytes * static_cast<std::uint64_t>(comm.size()));
  const test::device_array<status> outcome(2 * threads);
  const auto cycle = [&](int number) {
    const unsigned blocks = 1 + static_cast<unsigned>(number) % 2;
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), blocks, 1});
    const auto device_comm = comm.create_device_comm(needs);
    std::optional<host::symmetric_memory> own;
    if (number % 2 == 0) own.emplace(comm.allocate(bytes));
    const auto in = own ? own->pointer<char>() : kept_in.pointer<char>();
    for (std::uint32_t i = 0; i < in_a_row; ++i) {
      launch(put_to_all, blocks_of(blocks), device_comm.get(), contexts, in, kept_out.pointer<char>(), bytes, i,
             outcome.get());
    }
    test::finish("put_to_all");
    device_comm.check();
    test::require(outcome.read()[0] == status::success, "the signals come");
    comm.barrier();
  };
  const int cycles = launches / in_a_row;
  for (int i = 0; i < cycles / 4; ++i) cycle(i);
  const all_holdings before = hold_now();
  for (int i = cycles / 4; i < cycles; ++i) cycle(i);
  const all_holdings after = hold_now();
  const auto grew = [](const char* what, auto from, auto to) {
    return std::string(what) + " grew from " + std::to_string(from) + " to " + std::to_string(to);
  };
  const auto& [then, kept] = before;
  const auto& [now, own] = after;
  test::require(now.descriptors <= then.descriptors, grew("descriptors", then.descriptors, now.descriptors));
  test::require(now.threads <= then.threads, grew("threads", then.threads, now.threads));
  test::require(now.mappings <= then.mappings, grew("mappings of windows", then.mappings, now.mappings));
  // The simulator keeps names and lists of memory that is gone, some 400 bytes a cycle. A ring has 64 KiB.
  test::require(kept > 0, "this system tells how much memory a process has");
  test::require(own <= kept + 1024 + cycles, grew("memory (KiB)", kept, own));
  comm.barrier();
}

}  // namespace

// By itself, as scripts/soak.sh and a test of few launches call it.
TEST_CASE("launches between creations and destructions leave nothing behind, on two hosts of two ranks", "[.][soak]") {
  const char* const asked = std::getenv("SOAK_LAUNCHES");
  const int launches = asked == nullptr ? 0 : std::atoi(asked);
  REQUIRE(launches >= 64);
  host::communicator_options options;
  options.lsa_size = 2;
  const auto ends = devcomm_test::on_processes(
      4,
      [&](auto bootstrap) {
        ::mallopt(M_ARENA_MAX, 2);  // more would each grow to what they need at most
        host::communicator comm(std::move(bootstrap), options);
        soak(comm, launches);
      },
      1, 60 + launches);
  CHECK(ends == all_ok(4));
}

namespace {

/// Puts to a rank of another host, of two hosts or more, until a wait fails.
__global__ void stream_across_hosts(device_comm comm, gin::context_handle contexts, sym_ptr<char> in, sym_ptr<char> out,
                                    std::uint64_t bytes, status* outcome) {
  gin::context net{block{}, comm, contexts, 0};
  const int peer = (comm.rank + comm.size / 2) % comm.size;
  status now = status::success;
  while (now == status::success) {
    net.put(peer, out, in, bytes, gin::signal_add{0});
    net.flush();
    now = net.agree();
  }
  outcome[threadIdx.x] = now;
}

}  // namespace

namespace {
void require_collectives(host::communicator& comm);
}

// The next two are one rank of a job each. tests/gin/hosts.sh starts them on hosts that are network namespaces.

TEST_CASE("on several hosts the laws of the network hold", "[.][laws]") {
  host::communicator comm(host::environment_bootstrap());
  test::require(comm.lsa().size < comm.size(), "there are several hosts");
  shifts({{0, 0, 0}, {1, 3, 0}, {4097, 1, 7}, {100001, 3, 5}, {DEVCOMM_TEST_LARGE / 4 + 13, 1, 3}})(comm);
  require_strong_signals(comm);
  for (const auto bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{777}, (std::uint64_t{1} << 20) + 1}) {
    require_gets(comm, bytes, bytes % 2 == 0);
  }
  require_values(comm);
  require_collectives(comm);
  SUCCEED();
}

TEST_CASE("a stream between hosts ends with an error, and the rank says which", "[.][stream]") {
  std::string ended = "no error";
  int rank = -1;
  try {
    host::communicator comm(host::environment_bootstrap());
    rank = comm.rank();
    constexpr std::uint64_t bytes = 100'000;
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(bytes);
    const auto out = comm.allocate(bytes);
    const test::device_array<status> outcome(threads);
    comm.barrier();
    std::printf("rank %d streams\n", rank);
    std::fflush(stdout);
    launch(stream_across_hosts, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(),
           bytes, outcome.get());
    test::finish("stream_across_hosts");
    device_comm.check();
  } catch (const host::error& error) {
    ended = error.what();
  }
  std::printf("rank %d ended: %s\n", rank, ended.c_str());
  CHECK(ended != "no error");
}

// By itself, as sanitizers take memory and time of their own.
TEST_CASE("idle device communicators take little memory and next to no time", "[.][idle]") {
  const auto ends = on_hosts(2, "tcp;ofi_rxm", [](host::communicator& comm) {
    auto needs = comm.requirements();
    static_cast<void>(needs.add(gin::contexts{comm.world(), 4, 1}));
    const all_holdings before = hold_now();
    std::vector<host::device_communicator> all;
    all.push_back(comm.create_device_comm(needs));
    comm.barrier();
    const all_holdings with_one = hold_now();
    while (all.size() < 8) all.push_back(comm.create_device_comm(needs));
    comm.barrier();
    const all_holdings with_all = hold_now();
    const auto grew = [](const all_holdings& from, const all_holdings& to) { return to.own - from.own; };
    test::require(grew(before, with_one) < 25 * 1024, std::to_string(grew(before, with_one)) + " KiB");
    test::require(grew(with_one, with_all) < 7 * 1536,
                  std::to_string(grew(with_one, with_all)) + " KiB for seven more");
    test::require(with_all.counted.threads == with_one.counted.threads, "they share a thread");
    const auto used = [] {
      timespec now{};
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
      return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
    };
    double least = 1;  // of a busy machine
    std::this_thread::sleep_for(2500ms);
    for (int i = 0; i < 6 && least > 0.01; ++i) {
      const double begun = used();
      std::this_thread::sleep_for(400ms);
      least = std::min(least, (used() - begun) / 0.4);
    }
    test::require(least <= 0.01, std::to_string(least * 100) + " % of a processor");
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
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
    const auto without = devcomm_test::count_holdings().threads;
    {
      const auto no_contexts = comm.create_device_comm(comm.requirements().lsa_barriers(1));
      const auto threads_now = devcomm_test::count_holdings().threads;
      test::require(threads_now == without, "a device communicator without contexts starts no thread");
    }
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

namespace {

/// What collectives of a world of several LSA teams need.
struct hosts_job {
  explicit hosts_job(host::communicator& comm)
      : needs(comm.requirements().lsa_barriers(blocks)),
        contexts(needs.add(gin::contexts{.world = comm.world(), .count = 1, .barriers = blocks})),
        scratch(needs.add(
            gin::buffer<float>{collective::hierarchical_scratch<float>(count, comm.size(), comm.lsa().size)})),
        device_comm(comm.create_device_comm(needs)),
        in(comm.allocate(count * sizeof(float))),
        out(comm.allocate(count * sizeof(float))) {
    std::vector<float> values(count);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = of_rank(comm.rank(), i);
    copy(in.data(), values.data());
    comm.barrier();
  }
  static void copy(void* to, const void* from) {
    check_cuda(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDefault, cudaStreamPerThread), "copy");
    test::finish("copy");
  }
  static float of_rank(int rank, std::uint64_t i) { return static_cast<float>(rank * 3) + static_cast<float>(i % 50); }
  [[nodiscard]] std::vector<float> output() const {
    std::vector<float> values(count);
    copy(values.data(), out.data());
    return values;
  }

  static constexpr unsigned blocks = 2;
  static constexpr std::uint64_t count = 6000;
  requirements needs;
  gin::context_handle contexts;
  gin::buffer_handle<float> scratch;
  host::device_communicator device_comm;
  host::symmetric_memory in;
  host::symmetric_memory out;
};

/// `rounds` all-reduces, or until a wait fails.
__global__ void reduce_rounds(device_comm comm, gin::context_handle contexts, sym_ptr<float> in, sym_ptr<float> out,
                              sym_ptr<float> scratch, std::uint64_t count, std::uint32_t rounds, status* outcome) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
  status now = status::success;
  for (std::uint32_t round = 0; round < rounds && now == status::success; ++round) {
    collective::all_reduce_hierarchical<float>(barrier, in, out, scratch, count, sum{});
    now = barrier.agree();
  }
  outcome[blockIdx.x * threads + threadIdx.x] = now;
}
__global__ void exchange_all(device_comm comm, gin::context_handle contexts, sym_ptr<float> in, sym_ptr<float> out,
                             std::uint64_t length) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
  collective::all_to_all_hybrid<float>(barrier, in, out, length);
}

status launch_rounds(const hosts_job& job, std::uint32_t rounds) {
  const test::device_array<status> outcome(hosts_job::blocks * threads);
  launch(reduce_rounds, blocks_of(hosts_job::blocks), job.device_comm.get(), job.contexts, job.in.pointer<float>(),
         job.out.pointer<float>(), job.device_comm.memory_of(job.scratch), hosts_job::count, rounds, outcome.get());
  test::finish("reduce_rounds");
  return outcome.read()[0];
}

}  // namespace

namespace {

/// Barriers of all hosts, all-reduce and all-to-all are right for no elements, one, an odd number and many.
void require_collectives(host::communicator& comm) {
  constexpr std::uint64_t counts[] = {0, 1, 777, 100'003};
  constexpr std::uint64_t most = 100'003;
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  auto needs = comm.requirements().lsa_barriers(hosts_job::blocks);
  const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .barriers = hosts_job::blocks});
  const auto scratch =
      needs.add_buffer<float>(collective::hierarchical_scratch<float>(most, comm.size(), comm.lsa().size));
  const auto device_comm = comm.create_device_comm(needs);
  const auto in = comm.allocate(ranks * most * sizeof(float));
  const auto out = comm.allocate(ranks * most * sizeof(float));
  std::vector<float> values(ranks * most);
  const auto copy = [&](void* to, const void* from) {
    check_cuda(cudaMemcpyAsync(to, from, in.bytes(), cudaMemcpyDefault, cudaStreamPerThread), "copy");
    test::finish("copy");
  };
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = hosts_job::of_rank(comm.rank(), i);
  copy(in.data(), values.data());
  const test::device_array<status> outcome(hosts_job::blocks * threads);
  for (const std::uint64_t count : counts) {
    comm.barrier();
    launch(reduce_rounds, blocks_of(hosts_job::blocks), device_comm.get(), contexts, in.pointer<float>(),
           out.pointer<float>(), device_comm.get().buffer(scratch), count, 1u, outcome.get());
    test::finish("reduce_rounds");
    device_comm.check();
    test::require(outcome.read()[0] == status::success, "the all-reduce ends well");
    copy(values.data(), out.data());
    for (std::uint64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < comm.size(); ++rank) sum += hosts_job::of_rank(rank, i);
      test::require(values[i] == sum, [&] { return "sum " + std::to_string(i) + " of " + std::to_string(count); });
    }
    comm.barrier();
    launch(exchange_all, blocks_of(hosts_job::blocks), device_comm.get(), contexts, in.pointer<float>(),
           out.pointer<float>(), count);
    test::finish("exchange_all");
    device_comm.check();
    copy(values.data(), out.data());
    for (std::uint64_t i = 0; i < ranks * count; ++i) {
      const float right =
          hosts_job::of_rank(static_cast<int>(i / count), static_cast<std::uint64_t>(comm.rank()) * count + i % count);
      test::require(values[i] == right,
                    [&] { return "element " + std::to_string(i) + " of " + std::to_string(count); });
    }
  }
  comm.barrier();
}

}  // namespace

TEST_CASE("between processes collectives over hosts are right") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  const auto ends = on_hosts(
      4, provider,
      [](host::communicator& comm) {
        const hosts_job job(comm);
        test::require(launch_rounds(job, 3) == status::success, "the all-reduces end well");
        const std::vector<float> total = job.output();
        for (std::uint64_t i = 0; i < hosts_job::count; ++i)
          test::require(total[i] == 18 + 4 * static_cast<float>(i % 50), [&] { return "sum " + std::to_string(i); });
        require_collectives(comm);
        const std::uint64_t length = hosts_job::count / 4;
        launch(exchange_all, blocks_of(hosts_job::blocks), job.device_comm.get(), job.contexts, job.in.pointer<float>(),
               job.out.pointer<float>(), length);
        test::finish("exchange_all");
        job.device_comm.check();
        const std::vector<float> all = job.output();
        for (std::uint64_t i = 0; i < hosts_job::count; ++i) {
          const auto from = static_cast<int>(i / length);
          const float right = hosts_job::of_rank(from, static_cast<std::uint64_t>(comm.rank()) * length + i % length);
          test::require(all[i] == right, [&] { return "element " + std::to_string(i); });
        }
        comm.barrier();
      },
      1, {}, 2);
  CHECK(ends == all_ok(4));
}

TEST_CASE("a process killed in a stream of collectives over hosts ends all others, and is named") {
  const std::string provider = any_provider();
  CAPTURE(provider);
  host::communicator_options impatient;
  impatient.kernel_timeout = 5s;
  const auto ends = on_hosts(
      4, provider,
      [](host::communicator& comm) {
        const hosts_job job(comm);
        if (comm.rank() == 3) {
          std::thread([] {
            std::this_thread::sleep_for(300ms);
            ::raise(SIGKILL);
          }).detach();
        }
        const auto begun = std::chrono::steady_clock::now();
        test::require(launch_rounds(job, ~0u) != status::success, "the waits fail");
        test::require(std::chrono::steady_clock::now() - begun < 24s, "the waits end within the timeout");
        job.device_comm.check();
      },
      1, impatient, 2);
  CHECK(ends[3] == "signal 9");
  for (std::size_t rank = 0; rank < 3; ++rank) {
    INFO(ends[rank]);
    CHECK((ends[rank].starts_with("remote_error(3)") || ends[rank].find("rank 3") != std::string::npos));
  }
}

namespace {

/// Two all-reduces of different counts, one behind the other, by chunks or slots along the rails.
__global__ void reduce_along_rails(device_comm comm, gin::context_handle contexts, collective::rail_memory<float> rails,
                                   sym_ptr<float> in, sym_ptr<float> out, std::uint64_t count, std::uint64_t first,
                                   std::uint32_t rounds, status* outcome) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), blockIdx.x};
  const auto rest = static_cast<std::int64_t>(first);
  status now = status::success;
  for (std::uint32_t round = 0; round < rounds && now == status::success; ++round) {
    collective::all_reduce_hierarchical<float>(barrier, in, out, rails, first, sum{});
    collective::all_reduce_hierarchical<float>(barrier, in + rest, out + rest, rails, count - first, sum{});
    now = barrier.agree();
  }
  outcome[blockIdx.x * threads + threadIdx.x] = now;
}

/// What that needs: `hosts_job`, and chunks small enough for many to be under way.
struct rails_job : hosts_job {
  rails_job(host::communicator& comm, collective::rail_exchange how)
      : hosts_job(comm),
        exchange(how),
        ring_needs(comm.requirements().lsa_barriers(blocks)),
        rings(ring_needs.add(collective::rail_rings{.groups = blocks, .chunk_bytes = 1024, .slots = 4})),
        slots(ring_needs.add(collective::network_slots{.members = comm.rail(), .groups = blocks})),
        ring_contexts(ring_needs.add(gin::contexts{.world = comm.world(), .count = 1, .barriers = blocks})),
        ring_comm(comm.create_device_comm(ring_needs)) {}

  [[nodiscard]] status launch_rounds(std::uint32_t rounds) const {
    const test::device_array<status> outcome(blocks * threads);
    const collective::rail_memory<float> rails{exchange, {}, rings, slots};
    launch(reduce_along_rails, blocks_of(blocks), ring_comm.get(), ring_contexts, rails, in.pointer<float>(),
           out.pointer<float>(), count, std::uint64_t{1001}, rounds, outcome.get());
    test::finish("reduce_along_rails");
    return outcome.read()[0];
  }

  collective::rail_exchange exchange;
  requirements ring_needs;
  collective::rail_ring_handle rings;
  collective::network_slot_handle slots;
  gin::context_handle ring_contexts;
  host::device_communicator ring_comm;
};

}  // namespace

TEST_CASE("between processes collectives over hosts are right along the rails, by chunks and by slots") {
  const std::string provider = any_provider();
  const auto how = GENERATE(collective::rail_exchange::ring, collective::rail_exchange::one_shot);
  const int inside = GENERATE(1, 2);
  const int hosts = inside == 2 ? 2 : 3;
  CAPTURE(provider, hosts, inside);
  const auto ends = on_hosts(
      hosts * inside, provider,
      [how](host::communicator& comm) {
        const rails_job job(comm, how);
        test::require(job.launch_rounds(3) == status::success, "the all-reduces end well");
        job.ring_comm.check();
        const std::vector<float> total = job.output();
        for (std::uint64_t i = 0; i < hosts_job::count; ++i) {
          float right = 0;
          for (int rank = 0; rank < comm.size(); ++rank) right += hosts_job::of_rank(rank, i);
          test::require(total[i] == right, [&] { return "sum " + std::to_string(i); });
        }
        comm.barrier();
      },
      1, {}, inside);
  CHECK(ends == all_ok(hosts * inside));
}

TEST_CASE("a process killed in a stream of collectives over hosts ends all others along the rails") {
  const auto how = GENERATE(collective::rail_exchange::ring, collective::rail_exchange::one_shot);
  host::communicator_options impatient;
  impatient.kernel_timeout = 5s;
  const auto ends = on_hosts(
      3, "tcp;ofi_rxm",
      [how](host::communicator& comm) {
        const rails_job job(comm, how);
        if (comm.rank() == 2) {
          std::thread([] {
            std::this_thread::sleep_for(300ms);
            ::raise(SIGKILL);
          }).detach();
        }
        const auto begun = std::chrono::steady_clock::now();
        test::require(job.launch_rounds(~0u) != status::success, "the waits fail");
        test::require(std::chrono::steady_clock::now() - begun < 24s, "the waits end within the timeout");
        job.ring_comm.check();
      },
      1, impatient);
  CHECK(ends[2] == "signal 9");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    INFO(ends[rank]);
    CHECK((ends[rank].starts_with("remote_error(2)") || ends[rank].find("rank 2") != std::string::npos));
  }
}
