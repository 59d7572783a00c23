// What the watchdog says of waits that last, while they last.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/error.hpp>
#include <devcomm/host/watchdog.hpp>

#include "support/ranks.hpp"
#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

using namespace devcomm;
using namespace std::chrono_literals;

namespace {

constexpr unsigned threads = 64;

__global__ void meet(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
}

/// Each rank begins with another barrier.
/// Rank 0 waits for a signal of rank 1, which gives it.
__global__ void signal_once(device_comm comm, lsa::signal_handle signals, sym_ptr<std::uint64_t> word) {
  lsa::signal_session signal{block{}, comm, signals, 2};
  lsa::signal_session own{block{}, comm, word};
  if (comm.rank == 0) {
    signal.take(1, 3);
    own.wait(lsa::any_peer, lsa::equal_to{9});
  } else {
    signal.add(0, 3);
    own.store(0, 9);
  }
}

__global__ void meet_crosswise(device_comm comm) {
  const unsigned first = static_cast<unsigned>(comm.rank);
  lsa::barrier_session one{block{}, comm, first};
  one.sync();
  lsa::barrier_session other{block{}, comm, 1 - first};
  other.sync();
}

__global__ void exchange(device_comm comm, lsa::ll_handle channels) {
  lsa::ll_session session{block{}, comm, channels, 0};
  session.begin_round();
  for (int member = 0; member < session.members().size; ++member) session.send(member, threadIdx.x, threadIdx.x);
  std::uint64_t received[2][1];
  session.receive(0, session.members().size, threadIdx.x, received);
}

/// Parts in two exchanges among blocks of one rank: block 0 is part 1 of the one, block 1 part 0 of the other, and
/// nobody the rest.
__global__ void exchange_in_rank(device_comm comm, lsa::ll_handle one, lsa::ll_handle other) {
  const int part = blockIdx.x == 0 ? 1 : 0;
  lsa::ll_session session{block{}, comm, lsa::local_team{part, 2, 0}, part == 1 ? one : other};
  session.begin_round();
  for (int member = 0; member < session.members().size; ++member) session.send(member, threadIdx.x, threadIdx.x);
  std::uint64_t received[2][1];
  session.receive(0, session.members().size, threadIdx.x, received);
}

/// Collects the watchdog's reports while it lives.
class reports {
 public:
  explicit reports(host::watchdog_options options) {
    options.print = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      text_ += text;
    };
    host::set_watchdog(options);
  }
  ~reports() { host::set_watchdog({0ms, false, {}}); }
  reports(const reports&) = delete;
  reports& operator=(const reports&) = delete;

  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  /// Waits until `part` has been reported. Sleeps, as a thread that waits for others cannot help kernels.
  void await(const std::string& part) const {
    const auto limit = std::chrono::steady_clock::now() + 20s;
    while (text().find(part) == std::string::npos) {
      if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("no report of '" + part + "': " + text());
      std::this_thread::sleep_for(5ms);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// All ranks but the last launch `meet`; the last does so after `before` has returned on its thread.
void meet_late(int ranks, unsigned blocks, const std::function<void()>& before) {
  test::on_ranks(ranks, [&](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
    comm.barrier();
    if (comm.rank() == ranks - 1) before();
    launch(meet, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get());
    test::finish("meet");
    device_comm.check();
    comm.barrier();
    test::require(host::describe_waits().empty(), "a wait is told of that is over: " + host::describe_waits());
  });
}

void require_part(const std::string& text, const std::string& part) {
  test::require(text.find(part) != std::string::npos, "'" + part + "' is missing in: " + text);
}

}  // namespace

TEST_CASE("the watchdog reports who waits for a late rank, with block, barrier and epoch") {
  if (!test::can_meet(3)) SKIP("3 ranks would share GPUs");
  const reports seen({100ms, false, {}});
  meet_late(3, 2, [&] { seen.await("rank 2"); });
  const std::string text = seen.text();
  require_part(text, "devcomm watchdog: who waits for whom, the longest for ");
  require_part(
      text,
      "ranks 0 and 1, blocks 0 and 1, thread 1 wait at LSA barriers 0 and 1 for rank 2 to reach epoch 1 and last saw 0, for ");
  require_part(text, "; rank 2 waits for nobody");
  require_part(text, "ranks 0 and 1 wait in the end for rank 2, which waits for nobody");
}

TEST_CASE("the watchdog says which signal is waited for, and what it is to become") {
  const reports seen({100ms, false, {}});
  test::on_ranks(2, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 4});
    const auto device_comm = comm.create_device_comm(needs);
    const auto memory = comm.allocate(64);
    comm.barrier();
    if (comm.rank() == 1) seen.await("LSA signal 2");
    launch(signal_once, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), signals,
           memory.pointer<std::uint64_t>() + 5);
    test::finish("signal_once");
    device_comm.check();
    comm.barrier();
  });
  require_part(seen.text(),
               "rank 0, block 0, thread 0 waits at LSA signal 2 for rank 1 to bring it to at least 3 and last saw 0");
}

TEST_CASE("the watchdog shows ranks that wait for each other") {
  const reports seen({100ms, false, {}});
  bool told = false;
  try {
    test::on_ranks(2, [&](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
      comm.barrier();
      std::jthread rescuer([&] {
        seen.await("wait for each other");
        comm.abort();
      });
      launch(meet_crosswise, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get());
      test::finish("meet_crosswise");
      device_comm.check();
    });
  } catch (const host::kernel_error&) {
    told = true;  // the waits were aborted
  } catch (const host::remote_error& by) {
    told = std::string(by.what()).find("aborted its communicator") != std::string::npos;  // by the other rank, first
  }
  REQUIRE(told);
  const std::string text = seen.text();
  require_part(text, "waits at LSA barrier 0 for rank 1 to reach epoch 1");
  require_part(text, "; rank 1 itself waits at LSA barrier 1 for rank 0");
  require_part(text, "these wait for each other: rank 0 -> rank 1 -> rank 0");
}

TEST_CASE("the watchdog names the peer whose packets are missing") {
  const reports seen({100ms, false, {}});
  test::on_ranks(2, [&](host::communicator& comm) {
    devcomm::requirements needs = comm.requirements();
    const lsa::ll_handle channels = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, threads});
    const auto device_comm = comm.create_device_comm(needs);
    comm.barrier();
    if (comm.rank() == 0) seen.await("LL mailbox");
    launch(exchange, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), channels);
    test::finish("exchange");
    device_comm.check();
    comm.barrier();
  });
  require_part(seen.text(), "threads 0-63 wait at LL mailbox 0 for rank 0 to reach epoch 1 and last saw 0, for ");
}

TEST_CASE("the watchdog and the record of a failed wait name the group of the same rank whose packets are missing") {
  const reports seen({100ms, false, {}});
  test::on_ranks(1, [&](host::communicator& comm) {
    devcomm::requirements needs = comm.requirements();
    const lsa::ll_handle one = needs.add(lsa::local_ll_mailboxes{2, 2, threads});
    const lsa::ll_handle other = needs.add(lsa::local_ll_mailboxes{2, 2, threads});
    const auto device_comm = comm.create_device_comm(needs);
    launch(exchange_in_rank, {.grid = 2, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), one,
           other);
    const auto at = [](const lsa::ll_handle& handle) {
      return "of the handle at " + std::to_string(handle.offset) + " bytes ";
    };
    seen.await("wait at LL mailbox 1 for LL mailbox 0 " + at(one) + "of the same rank to reach epoch 1 and last saw 0");
    seen.await("wait at LL mailbox 0 for LL mailbox 1 " + at(other) + "of the same rank to reach epoch 1");
    seen.await("rank 0 waits in the end for LL mailbox 0 " + at(one) + "of rank 0, where nobody waits");
    comm.abort();
    test::finish("exchange_in_rank");
    const auto failures = device_comm.failures();
    test::require(!failures.empty(), "there is no record");
    for (const failure_record& record : failures)
      require_part(
          host::describe(record),
          record.block == 0
              ? "rank 0, block 0: LL mailbox 1 waited for the group of LL mailbox 0 to reach epoch 1 and last saw 0"
              : "rank 0, block 1: LL mailbox 0 waited for the group of LL mailbox 1 to reach epoch 1 and last saw 0");
  });
  const std::string text = seen.text();
  test::require(text.find("each other") == std::string::npos, "groups of two handles are taken for a circle: " + text);
}

namespace {
volatile std::sig_atomic_t handled_before = 0;
}

TEST_CASE("SIGUSR1 asks for a report, and the handler of before is called too") {
  std::signal(SIGUSR1, [](int) { handled_before = handled_before + 1; });
  const reports seen({0ms, true, {}});
  meet_late(2, 1, [&] {
    while (host::describe_waits().empty()) std::this_thread::sleep_for(5ms);
    test::require(seen.text().empty(), "a report came that nobody asked for: " + seen.text());
    ::kill(::getpid(), SIGUSR1);
    seen.await("rank 0, block 0, thread 0 waits at LSA barrier 0 for rank 1 to reach epoch 1");
  });
  REQUIRE(handled_before == 1);
}

TEST_CASE("a debugger's call writes the waits to stderr") {
  const reports quiet({0ms, false, {}});
  std::string text;
  meet_late(2, 1, [&] {
    while (host::describe_waits().empty()) std::this_thread::sleep_for(5ms);
    std::FILE* const file = std::tmpfile();
    const int before = ::dup(STDERR_FILENO);
    ::dup2(::fileno(file), STDERR_FILENO);
    devcomm_print_waits();
    ::dup2(before, STDERR_FILENO);
    ::close(before);
    std::rewind(file);
    char line[1024] = {};
    while (std::fgets(line, sizeof line, file) != nullptr) text += line;
    std::fclose(file);
  });
  require_part(text, "rank 0, block 0, thread 0 waits at LSA barrier 0 for rank 1 to reach epoch 1 and last saw 0");
}

#if defined(DEVCOMM_SIMULATOR)
TEST_CASE("a rank that waits for a lock of the watchdog's thread is in no deadlock") {
  std::mutex held;
  std::atomic<bool> is_held = false;
  const auto print = [&](const std::string&) {
    const std::lock_guard lock(held);
    is_held = true;
    const auto until = std::chrono::steady_clock::now() + 200ms;
    while (std::chrono::steady_clock::now() < until) {
    }
  };
  const reports quiet({10ms, false, {}});
  host::set_watchdog({10ms, false, print});
  meet_late(2, 1, [&] {
    while (!is_held) std::this_thread::sleep_for(5ms);
    const std::lock_guard lock(held);
  });
  CHECK(is_held);
}

TEST_CASE("the watchdog delays no deadlock report, and tells of no wait that a failed kernel left behind") {
  const reports quiet({50ms, false, {}});
  const auto begin = std::chrono::steady_clock::now();
  test::on_ranks(2, [&](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
    comm.barrier();
    launch(meet_crosswise, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get());
    test::require(cudaStreamSynchronize(cudaStreamPerThread) == cudaErrorLaunchTimeout, "the deadlock was not found");
    simulator::clear_failure();
    comm.barrier();
    test::require(host::describe_waits().empty(), "a wait is told of that is over: " + host::describe_waits());
  });
  CHECK(std::chrono::steady_clock::now() - begin < 5s);  // of the 10 s that a thread which might help is given
}
#endif
