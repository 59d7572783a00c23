#include <devcomm/host/run_ranks.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>

using namespace devcomm;
using devcomm_test::require;
using devcomm_test::text_of;

TEST_CASE("run_ranks runs the body once for each rank, each on its own thread and device") {
  std::mutex mutex;
  std::set<int> ranks;
  std::set<int> devices;
  host::run_ranks({.ranks = 5}, [&](host::communicator& comm) {
    require(comm.size() == 5, "all ranks are there");
    comm.barrier();
    const std::lock_guard lock(mutex);
    ranks.insert(comm.rank());
    devices.insert(comm.device());
  });
  CHECK(ranks == std::set<int>{0, 1, 2, 3, 4});
  CHECK(devices.size() == 5);
}

TEST_CASE("the simulator makes as many devices as there are ranks") {
  std::atomic<int> largest{0};
  host::run_ranks({.ranks = 12}, [&](host::communicator& comm) {
    if (comm.rank() == 11) largest = comm.device();
  });
  CHECK(largest == 11);
}

TEST_CASE("DEVCOMM_RANKS overrides the number of ranks, and must make sense") {
  ::setenv("DEVCOMM_RANKS", "3", 1);
  std::atomic<int> size{0};
  host::run_ranks({.ranks = 5}, [&](host::communicator& comm) { size = comm.size(); });
  CHECK(size == 3);
  ::setenv("DEVCOMM_RANKS", "many", 1);
  CHECK(text_of<host::invalid_argument>([] { host::run_ranks({}, [](host::communicator&) {}); }) ==
        "DEVCOMM_RANKS is \"many\"; set it to a number of ranks from 1 to 1024, or unset it");
  ::setenv("DEVCOMM_RANKS", "1000000", 1);
  CHECK(text_of<host::invalid_argument>([] { host::run_ranks({}, [](host::communicator&) {}); }) ==
        "DEVCOMM_RANKS is \"1000000\"; set it to a number of ranks from 1 to 1024, or unset it");
  ::unsetenv("DEVCOMM_RANKS");
}

TEST_CASE("the first error of a rank is rethrown with its rank, and the others are aborted") {
  std::atomic<int> aborted{0};
  const std::string text = text_of<host::remote_error>([&] {
    host::run_ranks({.ranks = 4}, [&](host::communicator& comm) {
      if (comm.rank() == 2) throw std::runtime_error("the cat sat on the keyboard");
      while (!comm.aborted()) std::this_thread::yield();
      ++aborted;
      comm.check();
    });
  });
  CHECK(text == "run_ranks: rank 2 failed: the cat sat on the keyboard");
  CHECK(aborted == 3);
}

TEST_CASE("a rank whose exception waits in a destructor is aborted, and its error is the first") {
  struct waits_for_abort {
    host::communicator& comm;
    bool& aborted;
    ~waits_for_abort() {
      for (int i = 0; i < 1000 && !comm.aborted(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      aborted = comm.aborted();
    }
  };
  bool aborted = false;
  const std::string text = text_of<host::remote_error>([&] {
    host::run_ranks({.ranks = 2}, [&](host::communicator& comm) {
      if (comm.rank() == 1) {
        const waits_for_abort waits{comm, aborted};
        throw std::runtime_error("the dog ate the stream");
      }
      comm.barrier();
      comm.barrier();
    });
  });
  CHECK(text == "run_ranks: rank 1 failed: the dog ate the stream");
  CHECK(aborted);
}

TEST_CASE("an exception that a rank's function catches aborts nothing") {
  host::run_ranks({.ranks = 2}, [&](host::communicator& comm) {
    try {
      throw std::runtime_error("caught");
    } catch (const std::exception&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    }
    require(!comm.aborted(), "a handled exception does not abort");
    comm.barrier();
  });
}

TEST_CASE("abort_on_exception aborts where an exception leaves its scope, and only there") {
  host::run_ranks({.ranks = 1}, [&](host::communicator& comm) {
    { const host::abort_on_exception guard(comm); }
    require(!comm.aborted(), "the scope ended in order");
    try {
      const host::abort_on_exception guard(comm);
      throw std::runtime_error("leaves");
    } catch (const std::exception&) {
    }
    require(comm.aborted(), "an exception left the scope");
  });
}

TEST_CASE("an error of this library keeps its class, and the cause wins over what follows from it") {
  const std::string text = text_of<host::invalid_argument>([] {
    host::run_ranks({.ranks = 4},
                    [](host::communicator& comm) { static_cast<void>(comm.allocate(comm.rank() == 1 ? 0 : 8)); });
  });
  CHECK(text.find("allocate (rank 1 of 4): 0 bytes") == 0);
}

TEST_CASE("an error at start-up of one rank ends the run with that error") {
  host::run_options options{.ranks = 2};
  options.communicator.lsa_size = -1;
  CHECK(text_of<host::invalid_argument>([&] {
          host::run_ranks(options, [](host::communicator&) {});
        }).find("lsa_size is -1; give 0") != std::string::npos);
}

namespace {

/// A record of a wait that failed, written as a kernel does.
void record_failure(const host::device_communicator& comm) {
  failure_log& log = *comm.get().failures;
  log.records[0].rank = 0;
  std::atomic_ref(log.records[0].ready).store(1, std::memory_order_release);
}

}  // namespace

TEST_CASE("a wait that failed and that the body did not look at fails the run") {
  const auto run = [](auto&& look) {
    host::run_ranks({.ranks = 2}, [&](host::communicator& comm) {
      const host::device_communicator made = comm.create_device_comm(comm.requirements().lsa_barriers(1));
      if (comm.rank() == 1) record_failure(made);
      look(comm, made);
    });
  };
  const auto nothing = [](host::communicator&, const host::device_communicator&) {};
  CHECK(text_of<host::kernel_error>([&] { run(nothing); }).find("check (rank 1 of 2): a kernel's wait failed") == 0);

  run([](host::communicator&, const host::device_communicator& made) { static_cast<void>(made.failures()); });
  run([](host::communicator& comm, const host::device_communicator&) {
    try {
      comm.check();
    } catch (const host::kernel_error&) {
    }
  });
}
