#include <devcomm/channel/fifos.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/diagnostics/trace.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/watchdog.hpp>

#include <diagnostics/unreceived_steps.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

using namespace devcomm;
using namespace devcomm_test;

TEST_CASE("a device communicator says who a rank is, and its resources are zeros on all ranks") {
  const int ranks = GENERATE(1, 2, 3, 4, 7, 8);
  const auto ends = on_threads(ranks, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.kernel_timeout = std::chrono::milliseconds(1500)});
    auto needs = comm.requirements();
    needs.lsa_barriers(4);
    const auto buffer = needs.add_buffer<float>(1001);
    const host::device_communicator device = comm.create_device_comm(needs);
    const device_comm& d = device.get();
    require(d.version == device_comm::layout_version, "the version is the library's");
    require(d.rank == comm.rank() && d.size == ranks, "rank and size are the communicator's");
    require(d.lsa() == comm.lsa() && d.world() == comm.world() && d.rail() == comm.rail(),
            "teams are the communicator's");
    require(d.lsa_barriers.count == 4 && d.lsa_barriers.members == static_cast<uint32_t>(ranks),
            "barriers are as asked");
    require(d.timeout == 1500000000u, "the timeout is in nanoseconds");
    require((d.flags & device_comm::check_launch) != 0, "the simulator checks launches");
    require(d.failures->abort == 0, "nothing is aborted");
    require(d.resources.bytes >= needs.bytes(), "the window holds what was asked for");
    for (std::size_t i = resource_header_bytes; i < needs.bytes(); ++i)
      require(d.resources.local[i] == 0, "resources start as zeros");
    comm.barrier();
    *d.buffer(buffer).local() = static_cast<float>(comm.rank());
    comm.barrier();
    for (int peer = 0; peer < ranks; ++peer) {
      require(*d.buffer(buffer).lsa(peer) == static_cast<float>(peer), "a buffer lies at one offset on all ranks");
    }
    require(device.failures().empty(), "no wait has failed");
    device.check();
    comm.check();
    comm.barrier();
  });
  CHECK(ends == all_ok(ranks));
}

TEST_CASE("requirements that differ fail on all ranks and name the one that differs") {
  const auto ends = on_threads(4, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    auto needs = comm.requirements();
    needs.lsa_barriers(comm.rank() == 3 ? 2 : 1);
    static_cast<void>(comm.create_device_comm(needs));
  });
  for (const std::string& end : ends) {
    CHECK(end.find("invalid_argument: create_device_comm") == 0);
    CHECK(end.find("the requirements of rank 3") != std::string::npos);
  }
}

TEST_CASE("what kernels find without a handle is asked for once") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    auto needs = comm.requirements();
    needs.lsa_barriers(1).lsa_barriers(2);
    static_cast<void>(comm.create_device_comm(needs));
  });
  for (const std::string& end : ends) {
    CAPTURE(end);
    CHECK(end.find("invalid_argument: create_device_comm") == 0);
    CHECK(end.find("lsa_barriers twice, and kernels would find the last one only; ask once for all, or add "
                   "lsa::barriers{team, count}") != std::string::npos);
  }
  const auto traced = on_threads(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    static_cast<void>(comm.create_device_comm(comm.requirements().with(tracing{1, 8}).with(tracing{1, 8})));
  });
  CHECK(traced[0].find("tracing twice") != std::string::npos);
}

TEST_CASE("a kernel that needs the LSA team to be the world is refused where it is not, by name") {
  for (const int lsa_size : {2, 4}) {
    const auto ends = on_threads(4, [lsa_size](auto bootstrap) {
      host::communicator comm(std::move(bootstrap), {.lsa_size = lsa_size});
      const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(1).with(lsa::whole_world{}));
      require(device.get().lsa_rank() == comm.rank(), "the ranks are one team");
    });
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      CAPTURE(ends[rank]);
      if (lsa_size == 4) {
        CHECK(ends[rank] == "ok");
      } else {
        CHECK(ends[rank].find("not_supported: create_device_comm") == 0);
        CHECK(ends[rank].find("lsa::whole_world, and the LSA team is 2 of 4 ranks (from rank " +
                              std::to_string(rank / 2 * 2) + ")") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a rank's index in its LSA team differs from its rank where there are several teams") {
  const auto ends = on_threads(4, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 2});
    const auto device = comm.create_device_comm(comm.requirements());
    require(device.get().lsa_rank() == comm.rank() % 2, "the index in a team of 2");
    require(device.get().lsa_rank() == device.get().lsa().rank, "the team's");
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("requirements of one size in another order differ") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    auto needs = comm.requirements();
    if (comm.rank() == 0) {
      static_cast<void>(needs.add_buffer<int>(32));
      static_cast<void>(needs.add_buffer<double>(32));
    } else {
      static_cast<void>(needs.add_buffer<double>(32));
      static_cast<void>(needs.add_buffer<int>(32));
    }
    static_cast<void>(comm.create_device_comm(needs));
  });
  for (const std::string& end : ends) CHECK(end.find("the requirements of rank 1") != std::string::npos);
}

TEST_CASE("requirements of another LSA team are refused") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    static_cast<void>(comm.create_device_comm(requirements(team{0, 64, 0, 1})));
  });
  for (const std::string& end : ends)
    CHECK(end.find("the requirements were made for another LSA team") != std::string::npos);
}

TEST_CASE("abort reaches every device communicator of all ranks, those made later too, and of no other communicator") {
  const auto body = [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto child = comm.split(0, comm.rank());
    const auto spared = child->create_device_comm(child->requirements());
    const auto before = comm.create_device_comm(comm.requirements());
    comm.barrier();
    if (comm.rank() == 1) comm.abort();
    const auto start = std::chrono::steady_clock::now();
    while (!comm.aborted() && std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    require(comm.aborted() && comm.dead_rank() == -1, "all are told in time, and nobody is lost");
    const auto after = comm.create_device_comm(comm.requirements());  // steps of the host go on
    for (const auto* each : {&before, &after}) {
      require(std::atomic_ref(each->get().failures->abort).load() == abort_by_host,
              "the abort word is the communicator's abort state");
    }
    require(!child->aborted() && std::atomic_ref(spared.get().failures->abort).load() == 0, "others go on");
    child->check();
    const std::string place =
        "check (rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) + "): ";
    const std::string told = comm.rank() == 1 ? text_of<host::kernel_error>([&] { comm.check(); })
                                              : text_of<host::remote_error>([&] { comm.check(); });
    const std::string expected = comm.rank() == 1 ? "abort() was called;" : "rank 1 aborted its communicator;";
    require(told.starts_with(place + expected), "the reason is known: " + told);
    comm.barrier();
    // To leave after an abort is a loss, which would end the barrier of those who are still in it.
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  };
  CHECK(on_threads(3, body) == all_ok(3));
  CHECK(on_processes(3, body) == all_ok(3));
  CHECK(on_processes(4, body, 2) == all_ok(4));
}

TEST_CASE("failures outlive their device communicator, whose log is left alone") {
  const auto ends = on_threads(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    for (const uint32_t block : {7u, 8u}) {
      const auto gone = comm.create_device_comm(comm.requirements());
      gone.get().failures->records[0] = {
          1, status::timeout, operation::lsa_barrier, 3, 0, 1, block, 0, 5, 4, {}, {}, {}, {}, 3, 0};
    }
    const auto kept = comm.create_device_comm(comm.requirements());
    kept.check();
    comm.abort();  // writes to the logs that are left, which AddressSanitizer watches
    comm.check();
  });
  CHECK(ends[0] ==
        "kernel_error: check (rank 0 of 1): a kernel's wait failed:"
        "\n  rank 0, block 7: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: timeout"
        "\n  rank 0, block 8: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: timeout");
}

TEST_CASE("of very many failures of destroyed device communicators the first are kept, and check says so") {
  const auto ends = on_threads(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    for (uint32_t round = 0; round < 40; ++round) {
      const auto gone = comm.create_device_comm(comm.requirements());
      uint32_t block = round * failure_log::capacity;
      for (failure_record& record : gone.get().failures->records) {
        record = {1, status::timeout, operation::lsa_barrier, 3, 0, 1, block++, 0, 5, 4, {}, {}, {}, {}, 3, 0};
      }
    }
    comm.check();
  });
  CHECK(ends[0].size() < 100000);
  CHECK(ends[0].find("rank 0, block 0: ") != std::string::npos);
  CHECK(ends[0].find("rank 0, block 2500: ") == std::string::npos);
  CHECK(ends[0].find("later failures were not kept") != std::string::npos);
}

TEST_CASE("without failures, device communicators that are gone leave nothing for check") {
  const auto ends = on_threads(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    for (int i = 0; i < 3; ++i) static_cast<void>(comm.create_device_comm(comm.requirements()));
    comm.check();
  });
  CHECK(ends == all_ok(1));
}

TEST_CASE("check throws a sentence for each complete record, oldest first") {
  const auto ends = on_threads(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto device = comm.create_device_comm(comm.requirements());
    failure_log& log = *device.get().failures;
    const auto record = [&](std::size_t place, uint32_t block, uint32_t ready) {
      log.records[place] = {ready, status::timeout, operation::lsa_barrier, 3, 0, 1, block, 0, 5, 4, {}, {}, {}, {}, 3,
                            0};
    };
    record(0, 7, 1);
    record(1, 8, 0);  // still being written
    record(2, 9, 1);
    const auto found = device.failures();
    require(found.size() == 2 && found[0].block == 7 && found[1].block == 9, "incomplete records are not shown");
    try {
      device.check();
    } catch (const host::kernel_error&) {
      comm.check();
    }
  });
  CHECK(ends[0] ==
        "kernel_error: check (rank 0 of 1): a kernel's wait failed:"
        "\n  rank 0, block 7: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: timeout"
        "\n  rank 0, block 9: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: timeout");
}

TEST_CASE("a failed wait is described as a sentence") {
  failure_record r{
      1, status::timeout, operation::lsa_barrier, 3, 2, 1, 3, 40, 5, 4, {16, 256, 0}, {8, 256, 0}, {}, {}, 3, 0};
  CHECK(host::describe(r) ==
        "rank 2, block 3: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: timeout");
  r.peer = r.rank;
  r.among_groups = 1;
  for (const std::uint32_t index : {1u, 3u}) {  // the last is its own
    r.peer_index = index;
    CHECK(host::describe(r) == "rank 2, block 3: LSA barrier 3 waited for the group of LSA barrier " +
                                   std::to_string(index) + " to reach epoch 5 and last saw 4: timeout");
  }
  r.among_groups = 0;
  r.peer = 1;
  r.outcome = status::aborted;
  CHECK(host::describe(r) ==
        "rank 2, block 3: LSA barrier 3 waited for rank 1 to reach epoch 5 and last saw 4: aborted");
  r.outcome = status::mismatch;
  CHECK(host::describe(r) ==
        "rank 2, block 3: LSA barrier 3: launch mismatch: rank 1 launched 8 blocks of 256 threads where rank 2 "
        "launched 16 of 256");
  r.mine = {8, 256, 11};
  r.theirs = {8, 256, 12};
  CHECK(
      host::describe(r) ==
      "rank 2, block 3: LSA barrier 3: launch mismatch: rank 1 launched with key 12 where rank 2 launched with key 11");
  r.theirs = r.mine;
  r.my_call = call_contract::of("all_reduce_one_shot", 0, 16, 4);
  CHECK(host::describe(r) ==
        "rank 2, block 3: LSA barrier 3: launch mismatch: rank 1 called no collective where rank 2 called "
        "all_reduce_one_shot of packs 0 to 16 of 4-byte elements");
  r.their_call = call_contract::of("all_reduce_one_shot", 8, 16, 4, 1);
  CHECK(host::describe(r) ==
        "rank 2, block 3: LSA barrier 3: launch mismatch: rank 1 called all_reduce_one_shot of packs 8 to 16 of 4-byte "
        "elements with root 1 where rank 2 called all_reduce_one_shot of packs 0 to 16 of 4-byte elements with root 0");
}

TEST_CASE("a watchdog whose thread cannot start leaves nothing behind, and starts the next time") {
  const auto ends = on_processes(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.watchdog = true});
    // A stack that the address space has no room for.
    constexpr std::size_t stack_bytes = std::size_t{1} << 30;
    pthread_attr_t large;
    require(::pthread_attr_init(&large) == 0 && ::pthread_attr_setstacksize(&large, stack_bytes) == 0 &&
                ::pthread_setattr_default_np(&large) == 0,
            "threads get large stacks");
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    require(::getrlimit(RLIMIT_AS, &limit) == 0, "there is a limit");
    const rlimit little{pages * static_cast<std::size_t>(::getpagesize()) + stack_bytes / 4, limit.rlim_max};
    require(::setrlimit(RLIMIT_AS, &little) == 0, "it can be lowered");
    bool failed = false;
    try {
      static_cast<void>(comm.create_device_comm(comm.requirements()));
    } catch (const std::system_error&) {
      failed = true;
    }
    require(::setrlimit(RLIMIT_AS, &limit) == 0, "and raised again");
    require(failed, "no thread, no device communicator");
    require(host::describe_waits().empty(), "nothing is watched");
    const std::size_t before = count_holdings().threads;
    const auto device = comm.create_device_comm(comm.requirements());
    require(count_holdings().threads == before + 1, "the watchdog's thread runs");
  });
  CHECK(ends == all_ok(1));
}

TEST_CASE("what prints the watchdog's reports may destroy the last device communicator") {
  const auto ends = on_processes(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.watchdog = true});
    std::mutex mutex;
    std::optional<host::device_communicator> device = comm.create_device_comm(comm.requirements());
    std::atomic<bool> printed{false};
    host::set_watchdog({std::chrono::milliseconds(0), true, [&](const std::string&) {
                          const std::lock_guard lock(mutex);
                          device.reset();
                          printed = true;
                        }});
    ::raise(SIGUSR1);
    for (int i = 0; i < 2000 && !printed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    require(printed, "the report comes, and its thread does not wait for itself");
    const auto again = comm.create_device_comm(comm.requirements());
    printed = false;
    ::raise(SIGUSR1);
    for (int i = 0; i < 2000 && !printed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    require(printed, "a new thread reports");
    host::set_watchdog({});
  });
  CHECK(ends == all_ok(1));
}

TEST_CASE("steps that nobody has received name the right peer where LSA teams are no consecutive ranks") {
  const channel::fifo_layout<channel::protocol::simple> fifos{2, 4, 1};
  constexpr std::uint64_t offset = resource_header_bytes;
  std::vector<std::uint64_t> words((offset + fifos.bytes()) / sizeof(std::uint64_t));
  char* const memory = reinterpret_cast<char*>(words.data());
  const auto at = [&](auto* type, std::uint64_t where) { return reinterpret_cast<decltype(type)>(memory + where); };

  device_comm comm{};
  comm.rank = 21;
  comm.size = 40;
  comm.lsa_first = first_lsa_number;
  comm.lsa_size = 3;
  comm.resources.local = memory;
  comm.resources.bytes = offset + fifos.bytes();
  const std::vector<int> lsa_ranks{1, 21, 31};

  at(static_cast<resource_header*>(nullptr), 0)->fifos = offset + fifos.note();
  *at(static_cast<channel::fifos_note*>(nullptr), offset + fifos.note()) = {
      channel::fifos_note::is_added, 2, 4, 0, offset + fifos.head(0), offset + fifos.counts(0),
      offset + fifos.contract(0, 0), 0};
  auto* const counts = at(static_cast<channel::fifo_counts*>(nullptr), offset + fifos.counts(1));
  counts->sent = 3;
  counts->peers = channel::fifo_peer_mark(first_lsa_number + 2);
  *at(static_cast<std::uint32_t*>(nullptr), offset + fifos.head(1)) = 1;

  int asked = -1;
  const auto find = [&](bool departed) {
    return host::detail::find_unreceived_steps(
        host::detail::current_backend(), 0, comm, lsa_ranks,
        [&](int rank) {
          asked = rank;
          return departed;
        },
        std::chrono::seconds(1));
  };
  CHECK_FALSE(find(false).has_value());
  CHECK(asked == 31);
  const auto found = find(true);
  REQUIRE(found.has_value());
  CHECK((found->peer == 31 && found->index == 1 && found->expected == 2));
  CHECK(
      host::describe(*found) ==
      "rank 21: FIFO 1: mismatch: the last 2 steps that rank 21 sent to rank 31 had not been received when the device "
      "communicator ended");
}
