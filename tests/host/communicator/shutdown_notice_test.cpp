// A rank whose part ends because of an exception says so: the waits of the others end, and name it.
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/run_ranks.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

/// How the ranks of a job live together.
struct way {
  const char* name;
  int inside;  ///< ranks in each process; 0: threads of this one
};

way any_way() { return GENERATE(way{"threads", 0}, way{"processes", 1}, way{"processes of two ranks", 2}); }

outcomes on(const way& how, int ranks, const rank_body& body) {
  return how.inside == 0 ? on_threads(ranks, body) : on_processes(ranks, body, how.inside);
}

struct on_purpose : std::runtime_error {
  using runtime_error::runtime_error;
};

/// `action` must end within a second, with an error that has `parts`.
template <class Action>
void require_prompt_error(Action action, std::initializer_list<const char*> parts) {
  const auto start = clock_type::now();
  const std::string text = text_of<host::remote_error>(action);
  require(clock_type::now() - start < 1s, "the error comes within a second: " + text);
  for (const char* part : parts) require(text.find(part) != std::string::npos, std::string(part) + " is said: " + text);
}

bool ends_waits(const host::device_communicator& comm) {
  return std::atomic_ref(comm.get().failures->abort).load() == abort_by_host;
}

/// Fails after a second.
template <class Condition>
void require_soon(Condition holds, const char* law) {
  const auto start = clock_type::now();
  while (!holds()) {
    require(clock_type::now() - start < 1s, law);
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

TEST_CASE("an exception that destroys a communicator ends the waits of the others' hosts, and is named") {
  const way how = any_way();
  CAPTURE(how.name);
  const auto ends = on(how, 4, [](auto bootstrap) {
    const auto keep = bootstrap;  // its end would be noticed, too
    const auto culprit = [&] {
      host::communicator comm(std::move(bootstrap));
      comm.barrier();
      std::this_thread::sleep_for(100ms);  // the others wait by now
      throw on_purpose("the cat sat on the keyboard");
    };
    if (keep->rank() == 1) {
      try {
        culprit();
      } catch (const on_purpose&) {
        std::this_thread::sleep_for(2s);
      }
      return;
    }
    host::communicator comm(std::move(bootstrap));
    comm.barrier();
    const std::string call = "barrier (rank " + std::to_string(comm.rank()) + " of 4): ";
    require_prompt_error([&] { comm.barrier(); }, {call.c_str(), "rank 1 left because of an exception"});
    require_prompt_error([&] { static_cast<void>(comm.allocate(64)); }, {"rank 1 left because of an exception"});
    require_prompt_error([&] { comm.check(); }, {"rank 1 left because of an exception; destroy this communicator"});
    require(comm.dead_rank() == 1 && comm.aborted(), "it counts as lost");
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("an exception that destroys a communicator ends the waits of the others' kernels") {
  const way how = any_way();
  CAPTURE(how.name);
  const auto ends = on(how, 4, [](auto bootstrap) {
    const auto keep = bootstrap;
    const auto use = [&] {
      host::communicator comm(std::move(bootstrap));
      const auto before = comm.create_device_comm(comm.requirements());
      const auto after = comm.create_device_comm(comm.requirements());
      comm.barrier();
      if (comm.rank() == 1) {
        std::this_thread::sleep_for(100ms);  // the others have left the barrier by now
        throw on_purpose("out of cheese");
      }
      require_soon([&] { return ends_waits(before) && ends_waits(after); }, "waits end within a second");
      for (const auto* each : {&before, &after}) {
        require_prompt_error([&] { each->check(); },
                             {"rank 1 left because of an exception; destroy this communicator"});
      }
    };
    try {
      use();
    } catch (const on_purpose&) {
      std::this_thread::sleep_for(2s);
    }
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("an exception that destroys a device communicator alone ends waits there and nowhere else") {
  const way how = any_way();
  CAPTURE(how.name);
  const auto ends = on(how, 4, [](auto bootstrap) {
    host::communicator comm(std::move(bootstrap));
    const auto kept = comm.create_device_comm(comm.requirements());
    std::optional<host::device_communicator> given_up;
    try {
      auto own = comm.create_device_comm(comm.requirements());
      comm.barrier();
      if (comm.rank() == 2) throw on_purpose("not enough cheese");
      given_up = std::move(own);
    } catch (const on_purpose&) {
    }
    if (given_up) {
      require_soon([&] { return ends_waits(*given_up); }, "waits end within a second");
      require_prompt_error(
          [&] { given_up->check(); },
          {"check (rank ", "rank 2 abandoned device communicator 2 because of an exception; destroy it"});
      require_prompt_error([&] { comm.check(); }, {"rank 2 abandoned device communicator 2 because of an exception"});
    }
    given_up.reset();
    comm.barrier();  // all go on
    require(!ends_waits(kept) && !comm.aborted() && comm.dead_rank() == -1, "nothing else ends");
    kept.check();
    comm.check();
    const auto again = comm.create_device_comm(comm.requirements());
    require(!ends_waits(again), "a new one begins afresh");
    comm.barrier();
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("what is made and destroyed while an exception unwinds ends in order") {
  const auto ends = on_threads(2, [](auto bootstrap) {
    const auto use = [](const std::shared_ptr<host::bootstrap>& ranks, bool waits) {
      host::communicator comm(ranks);
      const auto device = comm.create_device_comm(comm.requirements());
      comm.barrier();
      if (waits) std::this_thread::sleep_for(100ms);
      require(!comm.aborted() && !ends_waits(device), "nobody failed");
    };
    class finally {
     public:
      explicit finally(std::function<void()> what) : what_(std::move(what)) {}
      ~finally() { what_(); }

     private:
      std::function<void()> what_;
    };
    if (bootstrap->rank() == 0) return use(bootstrap, true);
    try {
      const finally last([&] { use(bootstrap, false); });
      throw on_purpose("unrelated");
    } catch (const on_purpose&) {
      std::this_thread::sleep_for(300ms);
    }
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("a rank that leaves because others did not answer says so to those that were busy") {
  const way how = any_way();
  CAPTURE(how.name);
  const auto ends = on(how, 4, [](auto bootstrap) {
    const auto keep = bootstrap;
    try {
      host::communicator comm(std::move(bootstrap), {.limit = 2s});
      const auto device = comm.create_device_comm(comm.requirements());
      comm.barrier();
      if (comm.rank() == 0) comm.barrier();  // which nobody else calls
      const auto start = clock_type::now();
      while (!ends_waits(device) && clock_type::now() - start < 5s) std::this_thread::sleep_for(1ms);
      require_prompt_error([&] { device.check(); },
                           {"rank 0 left because of an exception: barrier (rank 0 of 4): ", "waiting for ranks 1"});
    } catch (const host::timeout_error&) {
      require(keep->rank() == 0, "rank 0 alone waits");
    }
  });
  CHECK(ends == all_ok(4));
}

TEST_CASE("run_ranks tells the ranks that wait what the exception says") {
  std::atomic<int> told{0};
  const std::string text = text_of<host::remote_error>([&] {
    host::run_ranks({.ranks = 4}, [&](host::communicator& comm) {
      const auto device = comm.create_device_comm(comm.requirements());
      comm.barrier();
      if (comm.rank() == 2) throw std::runtime_error("the cat sat on the keyboard");
      if (comm.rank() == 3) {
        require_soon([&] { return ends_waits(device); }, "waits of kernels end within a second");
        require_prompt_error(
            [&] { device.check(); },
            {"check (rank 3 of 4): rank 2 left because of an exception: the cat sat on the keyboard; "});
      } else {
        require_prompt_error([&] { comm.barrier(); },
                             {"rank 2 left because of an exception: the cat sat on the keyboard"});
      }
      ++told;
    });
  });
  CHECK(text == "run_ranks: rank 2 failed: the cat sat on the keyboard");
  CHECK(told == 3);
}

TEST_CASE("run_ranks tells the processes that wait what the exception says") {
  const auto body = [](host::communicator& comm) {
    const auto device = comm.create_device_comm(comm.requirements());
    comm.barrier();
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      throw std::runtime_error("the cat sat on the keyboard");
    }
    if (comm.rank() == 1) require_soon([&] { return ends_waits(device); }, "waits of kernels end within a second");
    comm.barrier();
  };
  process_job job(3, [&](const host::unique_id& id, int rank) {
    ::setenv("DEVCOMM_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("DEVCOMM_SIZE", "3", 1);
    ::setenv("DEVCOMM_ROOT", (id.host() + ":" + std::to_string(id.port())).c_str(), 1);
    host::run_ranks({}, body);
  });
  const auto ends = job.finish();
  const std::string why = "rank 2 left because of an exception: the cat sat on the keyboard";
  CHECK(ends[0] == "remote_error(2): barrier (rank 0 of 3): " + why);
  CHECK(ends[1] == "remote_error(2): barrier (rank 1 of 3): " + why);
  CHECK(ends[2] == "remote_error(2): run_ranks: rank 2 failed: the cat sat on the keyboard");
}

TEST_CASE("the first failure is the one that run_ranks throws, whatever it leads to elsewhere") {
  for (int round = 0; round < 20; ++round) {
    const std::string text = text_of<host::remote_error>([&] {
      host::run_ranks({.ranks = 3}, [&](host::communicator& comm) {
        const auto device = comm.create_device_comm(comm.requirements());
        comm.barrier();
        if (comm.rank() == 1) throw std::runtime_error("the cause");
        require_soon([&] { return ends_waits(device); }, "waits of kernels end");
        throw std::runtime_error("wrong results");  // as its kernel gave up
      });
    });
    REQUIRE(text == "run_ranks: rank 1 failed: the cause");
  }
}
