#include <devcomm/host/communicator.hpp>
#include <devcomm/lsa/mailboxes.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;

namespace {

/// Sets an environment variable for the length of a test.
class scoped_variable {
 public:
  scoped_variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~scoped_variable() { ::unsetenv(name_); }
  scoped_variable(const scoped_variable&) = delete;
  scoped_variable& operator=(const scoped_variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("a limit on LSA teams cuts the world into teams of that size") {
  const int limit = GENERATE(1, 2, 4, 8);
  const bool by_environment = GENERATE(false, true);
  CAPTURE(limit, by_environment);
  const scoped_variable variable(by_environment ? "DEVCOMM_LSA_SIZE" : "DEVCOMM_TEST_UNUSED",
                                 std::to_string(limit).c_str());
  const auto ends = on_threads(8, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = by_environment ? 0 : limit});
    const int first = comm.rank() / limit * limit;
    require(comm.lsa() == team{comm.rank() - first, limit, first, 1}, "LSA teams are runs of the limit's size");
    require(comm.rail() == outer_factor(comm.world(), limit), "rails run across them");
    const auto memory = comm.allocate(64);
    memory.window().local[0] = static_cast<char>(comm.rank() + 1);
    comm.barrier();
    for (int peer = 0; peer < 8; ++peer) {
      const char* const at = memory.window().peer_pointer(peer);
      require((at != nullptr) == comm.lsa().contains(peer), "only team members have an address");
      require(at == nullptr || *at == peer + 1, "and it is theirs");
    }
    require(comm.properties().lsa.available == (limit > 1), "the properties agree");
    comm.barrier();
  });
  CHECK(ends == all_ok(8));
}

TEST_CASE("all ranks learn the small values of each") {
  struct value {
    int rank;
    double time;
  };
  const auto ends = on_threads(4, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 2});
    for (int round = 0; round < 3; ++round) {
      const auto all = comm.all_gather(value{comm.rank(), round + 0.5 * comm.rank()});
      require(all.size() == 4, "one from each rank");
      for (int rank = 0; rank < 4; ++rank) {
        const value& theirs = all[static_cast<std::size_t>(rank)];
        require(theirs.rank == rank && theirs.time == round + 0.5 * rank, "in the order of the ranks");
      }
    }
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("a gather without room for all fails on every rank and says how much it takes") {
  const auto ends = on_threads(3, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const std::vector<std::byte> mine(5);
    std::vector<std::byte> all(comm.rank() == 1 ? 10 : 15);
    comm.all_gather(mine, all);
  });
  const std::string cause = "all_gather (rank 1 of 3): room for 10 bytes, but 3 ranks give 5 each: make it 15";
  CHECK(ends[0] == "remote_error(1): all_gather (rank 0 of 3): rank 1 failed: " + cause);
  CHECK(ends[1] == "invalid_argument: " + cause);
  CHECK(ends[2] == "remote_error(1): all_gather (rank 2 of 3): rank 1 failed: " + cause);
}

TEST_CASE("ranks that gather values of different sizes are told") {
  const auto ends = on_threads(2, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const std::vector<std::byte> mine(comm.rank() == 0 ? 4 : 8);
    std::vector<std::byte> all(2 * mine.size());
    comm.all_gather(mine, all);
  });
  for (const std::string& end : ends) CHECK(end.ends_with("all ranks must make the same calls with the same sizes"));
}

TEST_CASE("a limit that does not divide the ranks leaves a smaller last team, and no rails") {
  const int limit = GENERATE(3, 5, 7);
  CAPTURE(limit);
  const auto ends = on_threads(8, [&](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = limit});
    const int first = comm.rank() / limit * limit;
    const int size = std::min(limit, 8 - first);
    require(comm.lsa() == team{comm.rank() - first, size, first, 1}, "the last team has what is left");
    const auto memory = comm.allocate(64);
    memory.window().local[0] = static_cast<char>(comm.rank() + 1);
    const auto device = comm.create_device_comm(comm.requirements().lsa_barriers(2));
    require(device.get().lsa_size == size, "kernels are told");
    comm.barrier();
    for (int peer = 0; peer < 8; ++peer) {
      const char* const at = memory.window().peer_pointer(peer);
      require((at != nullptr) == comm.lsa().contains(peer), "only team members have an address");
      require(at == nullptr || *at == peer + 1, "and it is theirs");
    }
    const std::string why = text_of<host::not_supported>([&] { static_cast<void>(comm.rail()); });
    require(why.find("has " + std::to_string(8 % limit) + " ranks") != std::string::npos, "rails say why not: " + why);
    comm.barrier();
  });
  CHECK(ends == all_ok(8));
}

TEST_CASE("a limit above the number of ranks limits nothing") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 8});
    require(comm.lsa().size == 2, "all are one team");
    require(comm.rail().size == 1, "and rails are of one rank");
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("malformed variables are named with what they should be") {
  struct bad {
    const char* name;
    const char* value;
  };
  const bad each =
      GENERATE(bad{"DEVCOMM_LSA_SIZE", "four"}, bad{"DEVCOMM_LSA_SIZE", "0"}, bad{"DEVCOMM_LSA_SIZE", ""},
               bad{"DEVCOMM_LSA_SIZE", "2 "}, bad{"DEVCOMM_TIMEOUT", "-1"}, bad{"DEVCOMM_TIMEOUT", "nan"},
               bad{"DEVCOMM_TIMEOUT", "1s"}, bad{"DEVCOMM_TIMEOUT", "1e300"}, bad{"DEVCOMM_CHECK_LAUNCH", "yes"},
               bad{"DEVCOMM_MEMORY_HANDLE", "fd"}, bad{"DEVCOMM_NVLS_ENABLE", "00"}, bad{"DEVCOMM_NVLS_ENABLE", " 0"},
               bad{"DEVCOMM_NVLS_ENABLE", "false"}, bad{"DEVCOMM_NVLS_ENABLE", "2"}, bad{"DEVCOMM_NVLS_ENABLE", ""});
  CAPTURE(each.name, each.value);
  const scoped_variable variable(each.name, each.value);
  const auto ends = on_threads(2, [](auto bootstrap) { host::communicator comm(std::move(bootstrap)); });
  for (const std::string& end : ends) {
    CHECK(end.find("invalid_argument: communicator (rank ") == 0);
    CHECK(end.find(": " + std::string(each.name) + " is \"" + each.value + "\"; set it to") != std::string::npos);
  }
}

TEST_CASE("DEVCOMM_TIMEOUT overrides the option") {
  const scoped_variable variable("DEVCOMM_TIMEOUT", "0.25");
  const auto ends = on_threads(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto device_comm = comm.create_device_comm(comm.requirements());
    require(device_comm.get().timeout == 250000000u, "seconds become nanoseconds");
  });
  CHECK(ends == all_ok(1));
}

TEST_CASE("DEVCOMM_CHECK_LAUNCH has the last word on checked launches, in children too") {
  const auto [value, option, checked] = GENERATE(table<const char*, bool, bool>(
      {{nullptr, false, true}, {"0", false, false}, {"0", true, false}, {"1", false, true}, {"1", true, true}}));
  CAPTURE(value == nullptr ? "unset" : value, option);
  const scoped_variable variable(value == nullptr ? "DEVCOMM_TEST_UNUSED" : "DEVCOMM_CHECK_LAUNCH",
                                 value == nullptr ? "" : value);
  const auto ends = on_threads(2, [option = option, checked = checked](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.check_launch = option});
    const auto child = comm.split(0, comm.rank());
    for (host::communicator* each : {&comm, child.get()}) {
      const auto device = each->create_device_comm(each->requirements());
      require(((device.get().flags & device_comm::check_launch) != 0) == checked, "launches are checked or not");
    }
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("options that must agree fail on all ranks and name the one that differs") {
  const auto sizes = on_threads(4, [](auto bootstrap) {
    const int size = bootstrap->rank() == 2 ? 4 : 2;
    host::communicator comm(std::move(bootstrap), {.lsa_size = size});
  });
  for (const std::string& end : sizes) {
    CHECK(end.find("invalid_argument: communicator") == 0);
    CHECK(end.find("rank 2 was given lsa_size 4 and rank 0 2") != std::string::npos);
  }
}

TEST_CASE("ranks with other time limits for kernels are told so") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    host::communicator_options options;
    if (bootstrap->rank() == 1) options.kernel_timeout = std::chrono::seconds(7);
    host::communicator comm(std::move(bootstrap), options);
  });
  for (const std::string& end : ends) {
    CHECK(end.find("invalid_argument: communicator") == 0);
    CHECK(end.find("rank 1 was given a kernel_timeout of 7000 ms and rank 0 600000 ms; give all ranks the same option, "
                   "or set DEVCOMM_TIMEOUT alike for all") != std::string::npos);
  }
}

TEST_CASE("variables that make no sense are refused, whether or not something would use them") {
  const std::pair<const char*, const char*> wrong[] = {{"DEVCOMM_LL128_ENABLE", "abc"}, {"DEVCOMM_GIN_PAYLOAD", "foo"},
                                                       {"DEVCOMM_GIN_PROXIES", "many"}, {"DEVCOMM_GIN_CARD", ""},
                                                       {"DEVCOMM_GIN_PROVIDER", ""},    {"DEVCOMM_NVLS_ENABLE", "yes"}};
  for (const auto& [name, value] : wrong) {
    INFO(name);
    const scoped_variable variable(name, value);
    const auto ends = on_threads(1, [](auto bootstrap) { host::communicator comm(std::move(bootstrap)); });
    CHECK(ends[0].find("invalid_argument: ") == 0);
    CHECK(ends[0].find(std::string(name) + " is \"" + value + "\"; set it to ") != std::string::npos);
  }
}

TEST_CASE("a variable of the watchdog is reported as unused, once, by programs that do not watch waits") {
  const scoped_variable variable("DEVCOMM_WATCHDOG_AFTER", "5");
  for (const bool watches : {false, true}) {
    std::FILE* const errors = std::tmpfile();
    REQUIRE(errors != nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::fileno(errors), STDERR_FILENO);
      const auto ends = on_threads(2, [&](auto bootstrap) {
        host::communicator_options options;
        options.watchdog = watches;
        host::communicator comm(std::move(bootstrap), options);
      });
      ::_exit(ends == all_ok(2) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    std::string said(4096, '\0');
    std::rewind(errors);
    said.resize(std::fread(said.data(), 1, said.size(), errors));
    std::fclose(errors);
    CHECK((said.find("DEVCOMM_WATCHDOG_AFTER is set, and this program has no watchdog") != std::string::npos) !=
          watches);
    CHECK(said.find("no watchdog") == said.rfind("no watchdog"));
  }
}

TEST_CASE("a program built with another layout is refused on all ranks") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    host::communicator_options options;
    if (bootstrap->rank() == 1) options.layout_version = 99;
    host::communicator comm(std::move(bootstrap), options);
  });
  for (const std::string& end : ends) {
    CHECK(end.find("not_supported: communicator") == 0);
    CHECK(end.find("rank 1 was built with layout version 99") != std::string::npos);
  }
}

TEST_CASE("versions are compared before anything else travels") {
  class counting final : public host::bootstrap {
   public:
    explicit counting(std::shared_ptr<host::bootstrap> real) : real_(std::move(real)) {}
    [[nodiscard]] int rank() const noexcept override { return real_->rank(); }
    [[nodiscard]] int size() const noexcept override { return real_->size(); }
    void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                    std::chrono::milliseconds limit) override {
      sizes.push_back(mine.size());
      real_->all_gather(mine, all, limit);
    }
    std::vector<std::size_t> sizes;

   private:
    std::shared_ptr<host::bootstrap> real_;
  };
  const auto ends = on_threads(3, [](auto bootstrap) {
    const auto counted = std::make_shared<counting>(std::move(bootstrap));
    host::communicator_options options;
    if (counted->rank() == 1) options.layout_version = 99;
    try {
      host::communicator comm(counted, options);
    } catch (const host::not_supported&) {
      require(counted->sizes == std::vector<std::size_t>{64}, "one message of 64 bytes was sent");
      throw;
    }
  });
  for (const std::string& end : ends) CHECK(end.find("rank 1 was built with layout version 99") != std::string::npos);
}

TEST_CASE("a device that does not exist fails on all ranks") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    const int device = bootstrap->rank() == 1 ? 1000 : -1;
    host::communicator comm(std::move(bootstrap), {.device = device});
  });
  CHECK(ends[1].find("invalid_argument: communicator (rank 1 of 3): there is no device 1000") == 0);
  CHECK(ends[0].find("remote_error(1): communicator (rank 0 of 3): rank 1 failed") == 0);
  CHECK(ends[2].find("remote_error(1): communicator (rank 2 of 3): rank 1 failed") == 0);
}

TEST_CASE("a null bootstrap is refused") { CHECK_THROWS_AS(host::communicator(nullptr), host::invalid_argument); }

TEST_CASE("ranks take devices in turn, and two ranks may share one") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    const int rank = bootstrap->rank();
    auto again = bootstrap;
    {
      host::communicator comm(std::move(bootstrap));
      require(comm.device() == rank, "rank i of a host takes device i");
      comm.barrier();
    }
    host::communicator comm(std::move(again), {.device = 0});
    require(comm.device() == 0 && comm.lsa().size == 2, "ranks that share a device are LSA peers");
    const auto memory = comm.allocate(8);
    memory.window().local[0] = static_cast<char>(rank + 1);
    comm.barrier();
    require(*memory.window().lsa_pointer(1 - rank) == 2 - rank, "and reach each other");
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("communicators that a process makes at the same time have windows of different ids") {
  const auto first = host::thread_bootstraps(2);
  const auto second = host::thread_bootstraps(2);
  for (int round = 0; round < 20; ++round) {
    std::array<std::uint32_t, 4> ids{};
    std::barrier all_live(static_cast<std::ptrdiff_t>(ids.size()));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      threads.emplace_back([&, i] {
        host::communicator comm(i < 2 ? first[i % 2] : second[i % 2]);
        const auto memory = comm.allocate(64);
        ids[i] = memory.window().id;
        all_live.arrive_and_wait();
      });
    }
    for (std::thread& each : threads) each.join();
    CHECK(ids[0] == ids[1]);
    CHECK(ids[2] == ids[3]);
    CHECK(ids[0] != ids[2]);
  }
}

TEST_CASE("more communicators than there are numbers reuse those of communicators that are gone") {
  const auto ranks = host::thread_bootstraps(1);
  host::communicator kept(ranks[0]);
  const auto of_kept = kept.allocate(64);
  for (int i = 0; i < 1100; ++i) {
    host::communicator comm(ranks[0]);
    if (i % 100 != 99) continue;
    const auto memory = comm.allocate(64);
    require(memory.window().id != of_kept.window().id, "a window has the id of another one");
  }
}

TEST_CASE("ranks that are in different calls are told which, whatever the calls exchange, and can go on") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto differ = [&](const std::function<void()>& one, const std::function<void()>& others) {
      return text_of<host::invalid_argument>([&] { comm.rank() == 1 ? one() : others(); });
    };
    // Both exchange eight bytes.
    std::string text = differ([&] { static_cast<void>(comm.split(0, 0)); },
                              [&] {
                                static_cast<void>(comm.all_gather(std::array{1, 2}));
                              });
    require(
        text.find(": rank 0 is in all_gather and rank 1 in split; make the same collective calls in the same order") !=
            std::string::npos,
        text);
    text = differ([&] { comm.barrier(); }, [&] { static_cast<void>(comm.allocate(64)); });
    require(text.find(": rank 0 is in allocate and rank 1 in barrier; ") != std::string::npos, text);
    text = differ([&] { static_cast<void>(comm.all_gather(1)); },
                  [&] { static_cast<void>(comm.all_gather(std::uint64_t{1})); });
    require(text.find("rank 0 gave 16 bytes and rank 1 gave ") != std::string::npos ||
                text.find("rank 0 gave 20 bytes and rank 1 gave ") != std::string::npos,
            text);
    comm.barrier();
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("split gives each color its ranks, ordered by key and then by rank") {
  const auto ends = on_threads(7, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const int rank = comm.rank();
    const int color = rank == 6 ? -1 : rank % 2;
    const auto child = comm.split(color, -rank);
    require((child == nullptr) == (color < 0), "a negative color gets nothing");
    if (child) {
      require(child->size() == 3, "each color has three ranks");
      require(child->rank() == 2 - rank / 2, "the largest rank has the smallest key");
      require(child->device() == comm.device(), "a rank keeps its device");
      const auto memory = child->allocate(16);
      memory.window().local[0] = static_cast<char>(rank + 1);
      child->barrier();
      for (int i = 0; i < 3; ++i)
        require(*memory.window().lsa_pointer(i) == 2 * (2 - i) + color + 1, "members are in order");
      child->barrier();
    }
    const auto all = comm.split(0, 0);
    require(all->rank() == rank && all->size() == 7, "equal keys keep the parent's order");
    all->barrier();
  });
  CHECK(ends == all_ok(7));
}

TEST_CASE("children keep to the LSA teams that their parent was limited to") {
  const auto ends = on_threads(8, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap), {.lsa_size = 4});
    const auto child = comm.split(comm.rank() % 2, 0);
    require(child->size() == 4 && child->lsa().size == 2, "two of each parent team make a team");
    const auto grandchild = child->split(0, 0);
    require(grandchild->lsa().size == 2, "and so do grandchildren");
    comm.barrier();
  });
  CHECK(ends == all_ok(8));
}

TEST_CASE("properties say why for everything that is missing") {
  const auto ends = on_threads(1, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const host::properties& p = comm.properties();
    require(p.backend == "simulator", "the simulator names itself");
    for (const auto* each :
         {&p.lsa, &p.ll128, &p.file_descriptor_handles, &p.fabric_handles, &p.cuda_ipc, &p.multicast, &p.network}) {
      require(!each->reason.empty(), "every answer explains itself");
    }
    require(!p.lsa.available && p.lsa.reason == "there is only one rank", "one rank has no peer");
    require(to_string(p).find("LSA: no (there is only one rank)\n") != std::string::npos,
            "the text has a line for each");
  });
  CHECK(ends == all_ok(1));
}

TEST_CASE("multicast that the environment forbids is reported with the variable, and forbidden if in doubt") {
  struct setting {
    const char* name;
    const char* value;
    std::string reason;  // of forbidding it
  };
  const auto taken_for_0 = [](const char* value) {
    return setting{"NCCL_NVLS_ENABLE", value,
                   "NCCL_NVLS_ENABLE is \"" + std::string(value) + "\", which is taken for 0"};
  };
  const auto given = GENERATE_COPY(
      setting{"DEVCOMM_NVLS_ENABLE", "0", "DEVCOMM_NVLS_ENABLE is 0"}, setting{"DEVCOMM_NVLS_ENABLE", "1", ""},
      setting{"NCCL_NVLS_ENABLE", "0", "NCCL_NVLS_ENABLE is 0"}, setting{"NCCL_NVLS_ENABLE", "1", ""},
      setting{"NCCL_NVLS_ENABLE", "02", ""}, taken_for_0("00"), taken_for_0(" 0"), taken_for_0("-0"),
      taken_for_0("0x0"), taken_for_0("off"), taken_for_0("false"), taken_for_0(""));
  CAPTURE(given.name, given.value);
  const char* const before = std::getenv("NCCL_NVLS_ENABLE");
  const std::string saved = before == nullptr ? "" : before;
  ::unsetenv("NCCL_NVLS_ENABLE");
  {
    const scoped_variable variable(given.name, given.value);
    const auto ends = on_threads(2, [&](auto bootstrap) {
      host::communicator comm(std::move(bootstrap));
      const host::capability& multicast = comm.properties().multicast;
      require(multicast.available == given.reason.empty(), "off if forbidden: " + multicast.reason);
      require(given.reason.empty() || multicast.reason == given.reason, "the reason: " + multicast.reason);
    });
    CHECK(ends == all_ok(2));
  }
  if (before != nullptr) ::setenv("NCCL_NVLS_ENABLE", saved.c_str(), 1);
}

TEST_CASE("LL128 mailboxes are refused where lines do not stay whole, on all ranks and with the reason") {
  const auto make_channels = [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    auto needs = comm.requirements();
    needs.add(lsa::ll128_mailboxes{team{0, 1, 0, 1}, 1, 64});
    static_cast<void>(comm.create_device_comm(needs));  // nothing of it crosses a link
    needs.add(lsa::ll128_mailboxes{comm.lsa(), 1, 64});
    static_cast<void>(comm.create_device_comm(needs));
  };
  CHECK(on_threads(2, make_channels) == all_ok(2));
  const scoped_variable variable("DEVCOMM_LL128_ENABLE", "0");
  for (const std::string& end : on_threads(2, make_channels)) {
    CHECK(end.find("not_supported: create_device_comm") == 0);
    CHECK(end.find("DEVCOMM_LL128_ENABLE is 0; ask for LL or Lamport mailboxes") != std::string::npos);
  }
}

TEST_CASE("a rank that leaves with an error leaves nobody waiting") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    require(comm.rank() != 1, "rank 1 gives up");
    comm.barrier();
  });
  CHECK(ends[1] == "error: rank 1 gives up");
  CHECK(ends[0].find("remote_error(1): barrier (rank 0 of 3)") == 0);
  CHECK(ends[2].find("remote_error(1): barrier (rank 2 of 3)") == 0);
}

TEST_CASE("a rank that never comes is named when the limit passes") {
  const auto ends = on_threads(3, [](auto bootstrap) {
    auto keep = bootstrap;
    host::communicator comm(std::move(bootstrap), {.limit = std::chrono::milliseconds(200)});
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      return;
    }
    comm.barrier();
  });
  CHECK(ends[2] == "ok");
  for (int rank : {0, 1}) {
    CHECK(ends[static_cast<std::size_t>(rank)].find("timeout_error: barrier") == 0);
    CHECK(ends[static_cast<std::size_t>(rank)].find("rank 2") != std::string::npos);
  }
}

TEST_CASE("a hundred communicators leave no descriptor, mapping or thread behind") {
  const auto round = [] {
    return on_threads(3, [](auto bootstrap) {
      host::communicator comm(std::move(bootstrap));
      const auto memory = comm.allocate(4096);
      const auto device = comm.create_device_comm(comm.requirements());
      const auto child = comm.split(comm.rank() == 0 ? -1 : 1, 0);
      try {
        static_cast<void>(comm.allocate(comm.rank() == 0 ? 0 : 1));
      } catch (const host::error&) {
      }
      comm.barrier();
    });
  };
  REQUIRE(round() == all_ok(3));
  const holdings before = count_holdings();
  for (int i = 0; i < 100; ++i) REQUIRE(round() == all_ok(3));
  const holdings after = count_holdings();
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.mappings == before.mappings);
  CHECK(after.threads == before.threads);
}
