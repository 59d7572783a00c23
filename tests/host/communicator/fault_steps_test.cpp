/// A rank that is killed, or runs out of descriptors, at each step of its start-up in turn.
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "fault_injection.hpp"
#include "rank_harness.hpp"

#include <sys/mman.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <memory>
#include <new>
#include <regex>
#include <string>
#include <vector>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

constexpr int ranks = 3;
constexpr auto limit = 3s;          // of every step that waits
constexpr int jobs_at_a_time = 24;  // most of them wait

/// Told by the rank of the fault, to outlive it.
struct witness {
  bool in_last_call;  ///< others may end well from here on
  bool untouched;     ///< there were fewer calls than that
};

struct unmap {
  void operator()(witness* told) const { ::munmap(told, sizeof(witness)); }
};
using shared_witness = std::unique_ptr<witness, unmap>;

shared_witness make_witness() {
  void* const page = ::mmap(nullptr, sizeof(witness), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  return shared_witness(new (page) witness{});
}

/// All of a start-up: bootstrap, communicator, window, device communicator, split.
void start_up(const host::unique_id& id, int rank, witness& told, bool has_fault) {
  const auto bootstrap = host::tcp_bootstrap(id, rank, ranks, limit);
  host::communicator_options options;
  options.limit = limit;
  host::communicator comm(bootstrap, options);
  const auto memory = comm.allocate(4096);
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
  const auto child = comm.split(comm.rank() % 2, 0);
  if (has_fault) told.in_last_call = true;
  comm.barrier();
}

void require_nothing_left(const holdings& before) {
  const holdings after = count_holdings();
  // Rank 0 takes over the socket that the id had reserved, and closes it.
  require(after.descriptors <= before.descriptors, "descriptors are closed: " + std::to_string(before.descriptors) +
                                                       " before, " + std::to_string(after.descriptors) + " after");
  require(after.mappings <= before.mappings, "mappings are gone");
  require(after.threads == before.threads, "threads have ended");
}

void run_rank(const host::unique_id& id, int rank, int victim, fault what, int at, witness& told) {
  const holdings before = count_holdings();
  if (rank == victim) arm(what, at);
  try {
    start_up(id, rank, told, rank == victim);
  } catch (...) {
    disarm();
    require_nothing_left(before);
    throw;
  }
  if (rank == victim) told.untouched = !disarm();
  require_nothing_left(before);
}

bool names(const std::string& end, int victim) {
  const bool failed = end.rfind("remote_error", 0) == 0 || end.rfind("timeout_error", 0) == 0;
  // "rank 0", "ranks 0 and 2", "ranks 1, 2 and 0".
  const std::regex named("\\branks?( [0-9]+,?)*( and)? " + std::to_string(victim) + "\\b");
  return failed && std::regex_search(end, named);
}

struct trial {
  int step;
  shared_witness told;
  std::unique_ptr<process_job> job;
};

/// Whether the fault happened.
bool check(const trial& t, fault what, int victim) {
  const outcomes ends = t.job->finish();
  CAPTURE(victim, t.step, ends);
  if (t.told->untouched) {
    CHECK(ends == all_ok(ranks));
    return false;
  }
  const std::string& own = ends[static_cast<std::size_t>(victim)];
  if (what == fault::death) {
    CHECK(own == "signal 9");
  } else if (own == "ok") {  // it could do without
    CHECK(ends == all_ok(ranks));
    return true;
  } else {
    CHECK(own.find("Too many open files") != std::string::npos);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& end = ends[static_cast<std::size_t>(rank)];
    if (rank != victim) CHECK((names(end, victim) || (end == "ok" && t.told->in_last_call)));
  }
  return true;
}

/// The fault at step 0, 1, 2, ... until a rank gets through without it; how many there were.
int try_each_step(fault what, int victim) {
  int faults = 0;
  for (int step = 0;; step += jobs_at_a_time) {
    std::vector<trial> trials;
    for (int i = 0; i < jobs_at_a_time; ++i) {
      trials.push_back({step + i, make_witness(), nullptr});
      witness& told = *trials.back().told;
      trials.back().job = std::make_unique<process_job>(
          ranks, [&told, victim, what, at = step + i](const host::unique_id& id, int rank) {
            run_rank(id, rank, victim, what, at, told);
          });
    }
    for (const trial& t : trials) {
      if (!check(t, what, victim)) return faults;
      ++faults;
    }
  }
}

}  // namespace

TEST_CASE("a rank killed at any step of start-up is named by all others, and nothing of theirs is left") {
  const int victim = GENERATE(0, 1);
  // The fewest calls that could make such a start-up; with less, calls are not counted.
  CHECK(try_each_step(fault::death, victim) > 40);
}

TEST_CASE("a rank that runs out of descriptors at any step of start-up says so, and nothing of any rank is left") {
  const int victim = GENERATE(0, 1);
  CHECK(try_each_step(fault::no_descriptors, victim) > 5);
}
