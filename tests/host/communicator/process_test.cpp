#include <devcomm/host/communicator.hpp>

#include <device/backend.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

/// Every byte of every peer's slot is what that peer wrote.
void exchange_patterns(host::communicator& comm, const window& w) {
  for (std::size_t i = 0; i < w.bytes; ++i)
    w.local[i] = static_cast<char>(comm.rank() * 31 + static_cast<int>(i % 127) + 1);
  comm.barrier();
  for (int member = 0; member < w.lsa_size; ++member) {
    const int peer = comm.lsa().world_rank(member);
    for (std::size_t i = 0; i < w.bytes; ++i) {
      require(w.lsa_pointer(member)[i] == static_cast<char>(peer * 31 + static_cast<int>(i % 127) + 1), [&] {
        return "byte " + std::to_string(i) + " of rank " + std::to_string(peer) + " is not what that rank wrote";
      });
    }
  }
  comm.barrier();
}

/// Waits until a peer is known to be lost; fails after a second.
void require_loss(const host::communicator& comm, int culprit) {
  const auto start = std::chrono::steady_clock::now();
  while (comm.dead_rank() < 0) {
    require(std::chrono::steady_clock::now() - start < 1s, "a death is noticed within a second");
    std::this_thread::sleep_for(1ms);
  }
  require(comm.dead_rank() == culprit, "rank " + std::to_string(comm.dead_rank()) + " is named, not the culprit");
  require(comm.aborted(), "a death aborts the communicator");
}

}  // namespace

TEST_CASE("processes reach each other's windows by every kind of handle") {
  const int ranks = GENERATE(2, 3, 4, 7, 8);
  const auto kind = GENERATE(from_range(host::detail::handle_kinds));
  CAPTURE(ranks, kind.name);
  const auto ends = on_processes(ranks, [&](auto bootstrap) {
    ::setenv("DEVCOMM_MEMORY_HANDLE", std::string(kind.variable).c_str(), 1);
    host::communicator comm(std::move(bootstrap));
    require(comm.lsa().size == ranks, "processes of one host are one LSA team");
    const auto memory = comm.allocate(10007);
    require(memory.handle_type() == kind.name, "the way is reported: " + memory.handle_type());
    exchange_patterns(comm, memory.window());
    const auto again = comm.allocate(5);
    exchange_patterns(comm, again.window());
  });
  CHECK(ends == all_ok(ranks));
}

TEST_CASE("processes reach each other's windows in pinned host memory by descriptors, and are refused without") {
  const int inside = GENERATE(1, 2);
  CAPTURE(inside);
  const auto ends = on_processes(
      4,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap));
        const auto memory = comm.allocate(10007, host::memory_place::pinned_host);
        require(memory.handle_type() == "file descriptor", "the way is reported: " + memory.handle_type());
        exchange_patterns(comm, memory.window());
      },
      inside);
  CHECK(ends == all_ok(4));
  const auto refused = on_processes(2, [](auto bootstrap) {
    ::setenv("DEVCOMM_MEMORY_HANDLE", "fabric", 1);
    host::communicator comm(std::move(bootstrap));
    require(!comm.properties().pinned_host.available, "fabric handles are for memory of devices");
    static_cast<void>(comm.allocate(64, host::memory_place::pinned_host));
  });
  for (const std::string& end : refused) {
    CHECK(end.find("there are no windows in pinned host memory: the processes of the LSA team share memory by fabric "
                   "handles, and that of the host by descriptors only") != std::string::npos);
  }
}

TEST_CASE("processes that hold several ranks each reach all of them, at one address a process") {
  const int lsa_size = GENERATE(0, 2, 4);
  CAPTURE(lsa_size);
  static std::atomic<char*> base_of_team[8];  // each process has its own
  const auto ends = on_processes(
      8,
      [&](auto bootstrap) {
        host::communicator comm(std::move(bootstrap), {.lsa_size = lsa_size});
        const auto memory = comm.allocate(999);
        const window w = memory.window();
        char* expected = nullptr;
        std::atomic<char*>& base = base_of_team[w.lsa_first];
        require(base.compare_exchange_strong(expected, w.base) || expected == w.base, "a byte has one address here");
        require(memory.handle_type() == (lsa_size == 2 ? "same process" : "file descriptor"),
                "a team reports its handle type");
        exchange_patterns(comm, w);
      },
      2);
  CHECK(ends == all_ok(8));
}

TEST_CASE("device communicators and splits work across processes") {
  const auto ends = on_processes(4, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    auto needs = comm.requirements();
    needs.lsa_barriers(2);
    const auto device = comm.create_device_comm(needs);
    require(device.get().resources.lsa_size == 4, "resources reach all processes");
    exchange_patterns(comm, device.get().resources);
    const auto child = comm.split(comm.rank() == 0 ? -1 : 1, -comm.rank());
    require((comm.rank() == 0) == (child == nullptr), "a negative color gets nothing");
    if (child) {
      require(child->rank() == 3 - comm.rank() && child->size() == 3, "the child is ordered by key");
      const auto memory = child->allocate(100);
      exchange_patterns(*child, memory.window());
    }
    comm.barrier();
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("one process's error reaches the others by name, and all can go on") {
  const auto ends = on_processes(3, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const std::string got =
        text_of<host::error>([&] { static_cast<void>(comm.allocate(comm.rank() == 1 ? 0 : 4096)); });
    require(got.find("0 bytes; ask for at least 1") != std::string::npos, "the text travels: " + got);
    const auto memory = comm.allocate(4096);
    exchange_patterns(comm, memory.window());
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("a killed process is noticed within a second, named, and ends its peers' waits") {
  const int inside = GENERATE(1, 2);
  CAPTURE(inside);
  const auto ends = on_processes(
      4,
      [](auto bootstrap) {
        host::communicator comm(std::move(bootstrap));
        const auto device = comm.create_device_comm(comm.requirements());
        comm.barrier();
        if (comm.rank() == 2) {
          std::this_thread::sleep_for(50ms);
          ::raise(SIGKILL);
        }
        require_loss(comm, 2);
        require(std::atomic_ref(device.get().failures->abort).load() == abort_by_host, "waits of kernels end");
        comm.check();
      },
      inside);
  for (int rank : {0, 1}) {
    const std::string& end = ends[static_cast<std::size_t>(rank)];
    CHECK(end.find("remote_error(2): check (rank " + std::to_string(rank) + " of 4): the process (pid ") == 0);
    CHECK(end.find(inside == 1 ? "of rank 2 ended" : "of ranks 2 and 3 ended") != std::string::npos);
  }
  CHECK(ends[2] == "signal 9");
  if (inside == 2) CHECK(ends[3] == "signal 9");
}

TEST_CASE("a killed process is noticed although a child of it keeps its connections open") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    comm.barrier();
    if (comm.rank() == 1) {
      if (::fork() == 0) {
        // Lets go of the harness's pipe by ending soon; far later than the death must be noticed.
        ::usleep(2000000);
        ::_exit(0);
      }
      ::raise(SIGKILL);
    }
    require_loss(comm, 1);
  });
  CHECK(ends[0] == "ok");
  CHECK(ends[1] == "signal 9");
}

TEST_CASE("a process that leaves in peace is not mourned") {
  const auto ends = on_processes(3, [](auto bootstrap) {
    auto keep = bootstrap;  // what ends is the communicator, not the bootstrap
    auto comm = std::make_unique<host::communicator>(std::move(bootstrap));
    comm->barrier();
    if (comm->rank() == 1) {
      comm.reset();
      std::this_thread::sleep_for(200ms);
      return;
    }
    std::this_thread::sleep_for(100ms);
    require(comm->dead_rank() == -1 && !comm->aborted(), "leaving is no death");
    comm->check();
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("static communicators and what they made end with the program, in peace") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    struct program {
      explicit program(std::shared_ptr<host::bootstrap> ranks)
          : comm(std::move(ranks), {.watchdog = true}),
            memory(comm.allocate(4096)),
            device(comm.create_device_comm(comm.requirements())) {}
      host::communicator comm;
      host::symmetric_memory memory;
      host::device_communicator device;
    };
    // Older than anything that the library makes on first use, so destroyed after it.
    static std::unique_ptr<program> all;
    static std::unique_ptr<program> again;
    all = std::make_unique<program>(bootstrap);
    again = std::make_unique<program>(bootstrap);
    again->comm.barrier();
    if (all->comm.rank() == 1) {
      for (int i = 0; i < 300 && !all->comm.aborted(); ++i) std::this_thread::sleep_for(1ms);
      require(all->comm.dead_rank() == -1 && !all->comm.aborted(), "rank 0 left in peace");
    }
    std::exit(7);
  });
  CHECK(ends == outcomes{"exit 7", "exit 7"});
}

TEST_CASE("windows have ids that all ranks agree on, and that no other communicator of a rank has") {
  const auto ends = on_processes(3, [](auto bootstrap) {
    host::communicator world(bootstrap);
    const auto id_in = [](host::communicator& comm) {
      const auto memory = comm.allocate(64);
      return memory.window().id;
    };
    const std::uint32_t first = id_in(world);
    const auto child = world.split(world.rank() == 0 ? 0 : 1, 0);
    const std::uint32_t of_child = id_in(*child);
    if (world.rank() != 0) {
      const auto grandchild = child->split(0, 0);
      require(id_in(*grandchild) != of_child, "a child's child has other ids");
    }
    world.barrier();
    host::communicator again(bootstrap);
    const std::uint32_t second = id_in(again);
    require(first != of_child && first != second && of_child != second, "each has ids of its own");
    throw std::runtime_error(std::to_string(first) + " and " + std::to_string(second));
  });
  CHECK(ends[0].starts_with("error: "));
  CHECK(ends == outcomes(3, ends[0]));
}

TEST_CASE("a rank that aborts and leaves takes its peers with it, and they name it") {
  const auto ends = on_processes(3, [](auto bootstrap) {
    auto keep = bootstrap;
    auto comm = std::make_unique<host::communicator>(std::move(bootstrap));
    comm->barrier();
    if (comm->rank() == 1) {
      comm->abort();
      comm.reset();
      std::this_thread::sleep_for(300ms);
      return;
    }
    require_loss(*comm, 1);
    comm->check();
  });
  CAPTURE(ends);
  CHECK(ends[1] == "ok");
  // Rank 0 or 2 may hear of the end from the other, which leaves for the same reason.
  for (int rank : {0, 2}) CHECK(ends[static_cast<std::size_t>(rank)].find("remote_error(1): check") == 0);
}

TEST_CASE("after a death, collective calls fail by name instead of waiting") {
  const auto ends = on_processes(3, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    comm.barrier();
    if (comm.rank() == 2) ::raise(SIGKILL);
    require_loss(comm, 2);
    static_cast<void>(comm.allocate(64));
  });
  CAPTURE(ends);
  for (int rank : {0, 1}) CHECK(ends[static_cast<std::size_t>(rank)].find("remote_error(2): allocate") == 0);
}

TEST_CASE("a process killed at any moment of a collective call leaves nobody waiting, and is named") {
  const int moment = GENERATE(0, 1, 2, 3, 5, 8, 13, 21);
  CAPTURE(moment);
  const auto ends = on_processes(3, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    comm.barrier();
    std::thread killer;
    if (comm.rank() == 2) {
      killer = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(moment));
        ::raise(SIGKILL);
      });
    }
    for (;;) static_cast<void>(comm.create_device_comm(comm.requirements()));
  });
  CHECK(ends[2] == "signal 9");
  CAPTURE(ends);
  for (int rank : {0, 1}) CHECK(ends[static_cast<std::size_t>(rank)].find("remote_error(2): create_device_comm") == 0);
}

TEST_CASE("memory that CUDA IPC cannot share is refused by name across processes") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    char bytes[16];
    static_cast<void>(comm.register_memory(bytes, sizeof bytes));
  });
  for (const std::string& end : ends) {
    CHECK(end.find("not_supported: register_memory (rank ") == 0);
    CHECK(end.find("the pointer is not cudaMalloc memory") != std::string::npos);
  }
}

TEST_CASE("thirty communicators leave no descriptor, mapping or thread behind in any process") {
  const auto ends = on_processes(3, [](auto bootstrap) {
    const auto round = [&] {
      host::communicator comm(bootstrap);
      const auto memory = comm.allocate(4096);
      const auto device = comm.create_device_comm(comm.requirements());
      try {
        static_cast<void>(comm.allocate(comm.rank() == 0 ? 0 : 1));
      } catch (const host::error&) {
      }
      comm.barrier();
    };
    for (int i = 0; i < 3; ++i) round();
    const holdings before = count_holdings();
    for (int i = 0; i < 30; ++i) round();
    const holdings after = count_holdings();
    require(after.descriptors == before.descriptors, "descriptors: " + std::to_string(after.descriptors));
    require(after.mappings == before.mappings, "mappings: " + std::to_string(after.mappings));
    require(after.threads == before.threads, "threads: " + std::to_string(after.threads));
  });
  CHECK(ends == all_ok(3));
}
