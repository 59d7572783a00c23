// Run by mpirun. Exits with 1 and says so when a law is broken on any rank; no Catch2, since each rank
// is a process.
#include "job_harness.hpp"

#include <devcomm/host/error.hpp>
#include <devcomm/host/mpi_bootstrap.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm_test;
namespace host = devcomm::host;

namespace {

void require(bool holds, const std::string& law, const std::string& seen = "") {
  if (holds) return;
  std::fprintf(stderr, "broken: %s: %s\n", law.c_str(), seen.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void check_gathering(host::bootstrap& job) {
  unsigned seed = 0;
  for (const std::size_t bytes : {0U, 1U, 33U, 100'000U}) gather_and_check(job, bytes, ++seed);
  const outcome sizes = outcome_of([&] { gather_and_check(job, job.rank() == 1 ? 16 : 8, 1, 5s); });
  if (job.size() > 1) require(sizes.kind == "invalid_argument", "different sizes are an error of all", sizes.text);
  const outcome arguments = outcome_of([&] {
    std::vector<std::byte> mine(8);
    std::vector<std::byte> all(job.rank() == 0 ? 1 : 8 * static_cast<std::size_t>(job.size()));
    job.all_gather(mine, all, 5s);
  });
  require(arguments.kind == (job.rank() == 0 ? "invalid_argument" : "remote_error"),
          "wrong arguments of one rank are its error, and the others hear of it", arguments.text);
  gather_and_check(job, 8, ++seed);
}

void check_missing_rank(host::bootstrap& job) {
  const bool late = job.rank() == 1;
  if (late) std::this_thread::sleep_for(1500ms);
  const outcome o = outcome_of([&] { gather_and_check(job, 8, 1, 500ms); });
  if (late) {
    require(o.kind == "remote_error", "who comes too late hears who timed out", o.kind + ": " + o.text);
    require(o.says("timed out after 500 ms waiting for rank"), "and for whom it waited", o.text);
  } else {
    require(o.kind == "timeout_error" || o.kind == "remote_error", "a missing rank ends the wait", o.text);
    require(o.kind == "remote_error" || o.says("rank 1"), "a timeout names the missing rank", o.text);
    require(o.took < 1400ms, "the limit holds");
  }
}

/// The last rank is told that rank 1 is lost, as by its links, and tells the others.
void check_interruption(host::bootstrap& job) {
  const std::string why = "rank 1 left because of an exception: out of cheese";
  barrier(job);
  if (job.rank() == 1) return;  // it takes no part any more
  const outcome o = outcome_of([&] {
    const std::jthread hears([&] {
      std::this_thread::sleep_for(200ms);
      if (job.rank() == job.size() - 1) job.interrupt(1, why);
    });
    barrier(job, 5s);
  });
  require(o.kind == "remote_error" && o.culprit == 1, "all are told who is lost", o.kind + ": " + o.text);
  require(o.says(why), "and why", o.text);
  require(o.took < 2s, "at once");
}

/// Rank 1 comes after the others have given up; MPI then completes what they had begun, and writes the result.
void check_late_start(int rank) {
  constexpr std::byte pattern{0xab};
  std::vector<std::vector<std::byte>> memory;
  if (rank != 1) {
    const outcome o = outcome_of([] { static_cast<void>(host::mpi_bootstrap(MPI_COMM_WORLD, 300ms)); });
    require(o.kind == "timeout_error", "a rank that does not start ends the start of the others",
            o.kind + ": " + o.text);
    for (std::size_t i = 0; i < 400; ++i) memory.emplace_back(8 + i, pattern);  // among them where the bootstrap lay
  } else {
    std::this_thread::sleep_for(1s);
    static_cast<void>(outcome_of([] { static_cast<void>(host::mpi_bootstrap(MPI_COMM_WORLD, 2s)); }));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (const auto& each : memory) {
    require(std::all_of(each.begin(), each.end(), [](std::byte b) { return b == pattern; }),
            "MPI writes to nothing that was freed", std::to_string(each.size()) + " bytes were changed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const outcome early = outcome_of([] { static_cast<void>(host::mpi_bootstrap(MPI_COMM_WORLD, 1s)); });
  MPI_Init(&argc, &argv);
  require(early.kind == "invalid_argument", "MPI must be initialized first", early.text);
  const outcome o = outcome_of([] {
    const auto job = host::mpi_bootstrap(MPI_COMM_WORLD, 10s);
    check_gathering(*job);
    MPI_Barrier(MPI_COMM_WORLD);
    if (job->size() > 1) check_missing_rank(*job);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto second = host::mpi_bootstrap(MPI_COMM_WORLD, 10s);
    if (second->size() > 2) check_interruption(*second);
  });
  require(o.ok(), "no error", o.kind + ": " + o.text);
  MPI_Barrier(MPI_COMM_WORLD);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1) check_late_start(rank);
  MPI_Finalize();
  return 0;
}
