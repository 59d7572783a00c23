// Starts a job of many processes with simulated GPUs, and prints how long start-up took and what rank 0 sent.
//
//   scale_job RANKS ROOT [NETWORK_NAMESPACE...]
//
// ROOT is rank 0's host:port. With namespaces, which are files such as /proc/PID/ns/net, each is a host: ranks fill the
// first, then the second. With SCALE_JOB_CONTEXTS in the environment the device communicator has a context of the
// network, which takes 22 MB a rank. Exits with 1 when a rank failed; its error is on standard error.
#include <devcomm/gin/contexts.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

#include "sent_bytes.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

namespace host = devcomm::host;

namespace {

/// Times are seconds of the steady clock, which all processes share.
struct record {
  double started = 0;
  double joined = 0;
  double made = 0;
  double allocated = 0;
  double resources = 0;
  std::uint64_t sent_joined = 0;
  std::uint64_t sent_made = 0;
  std::uint64_t sent_allocated = 0;
  std::uint64_t sent_resources = 0;
  std::int64_t resident_kib = 0;
  std::int32_t lsa = 0;
  std::int32_t done = 0;
};

constexpr const char* variable = "SCALE_JOB_RECORDS";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail(const std::string& what) {
  std::perror(("scale_job: " + what).c_str());
  std::exit(1);
}

record* map_records(int fd, std::size_t count) {
  void* const at = ::mmap(nullptr, count * sizeof(record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail("mmap");
  return static_cast<record*>(at);
}

int run_rank(const char* records) {
  const double started = now();
  try {
    const host::process_environment place = host::read_process_environment();
    record& mine = map_records(std::atoi(records), static_cast<std::size_t>(place.size))[place.rank];
    mine.started = started;
    const auto ranks = host::environment_bootstrap();
    mine.joined = now();
    mine.sent_joined = devcomm_test::sent_bytes();
    host::communicator comm(ranks);
    mine.made = now();
    mine.sent_made = devcomm_test::sent_bytes();
    const host::symmetric_memory memory = comm.allocate(std::size_t{1} << 20);
    mine.allocated = now();
    mine.sent_allocated = devcomm_test::sent_bytes();
    devcomm::requirements needs = comm.requirements().lsa_barriers(1);
    if (std::getenv("SCALE_JOB_CONTEXTS") != nullptr) {
      static_cast<void>(needs.add(devcomm::gin::contexts{comm.world(), 1}));
    }
    const host::device_communicator device_comm = comm.create_device_comm(needs);
    mine.resources = now();
    mine.sent_resources = devcomm_test::sent_bytes();
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    mine.resident_kib = used.ru_maxrss;
    mine.lsa = comm.lsa().size;
    comm.barrier();
    mine.done = 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}

void start_rank(int rank, int records, const std::vector<std::string>& hosts, int ranks, char** arguments) {
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child != 0) return;
  if (!hosts.empty()) {
    const auto which = static_cast<std::size_t>(rank) * hosts.size() / static_cast<std::size_t>(ranks);
    const int space = ::open(hosts[which].c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) fail("entering " + hosts[which]);
  }
  ::setenv("DEVCOMM_RANK", std::to_string(rank).c_str(), 1);
  ::setenv(variable, std::to_string(records).c_str(), 1);
  ::execv("/proc/self/exe", arguments);
  fail("execv");
}

struct step {
  const char* name;
  double record::*end;
  std::uint64_t record::*sent;
};

void print(const record* all, int ranks, std::size_t hosts, double start) {
  const auto last = [&](double record::*when) {
    return (*std::max_element(all, all + ranks, [&](const record& a, const record& b) { return a.*when < b.*when; })).*
           when;
  };
  std::printf("%d ranks, %zu host%s, LSA teams of %d, %lld KiB of memory a rank at most\n", ranks, hosts,
              hosts == 1 ? "" : "s", all[0].lsa,
              static_cast<long long>(std::max_element(all, all + ranks, [](const record& a, const record& b) {
                                       return a.resident_kib < b.resident_kib;
                                     })->resident_kib));
  const step steps[] = {{"joined", &record::joined, &record::sent_joined},
                        {"communicator", &record::made, &record::sent_made},
                        {"allocate", &record::allocated, &record::sent_allocated},
                        {"create_device_comm", &record::resources, &record::sent_resources}};
  std::printf("%-20s %10s %20s\n", "step", "seconds", "bytes from rank 0");
  double before = last(&record::started);
  std::uint64_t sent = 0;
  std::printf("%-20s %10.3f\n", "processes started", before - start);
  for (const step& each : steps) {
    const double end = last(each.end);
    std::printf("%-20s %10.3f %20llu\n", each.name, end - before,
                static_cast<unsigned long long>(all[0].*each.sent - sent));
    before = end;
    sent = all[0].*each.sent;
  }
  std::printf("%-20s %10.3f %20llu\n", "total", before - start, static_cast<unsigned long long>(sent));
}

}  // namespace

int main(int count, char** arguments) {
  if (const char* const records = std::getenv(variable)) return run_rank(records);
  const int ranks = count < 3 ? 0 : std::atoi(arguments[1]);
  const std::vector<std::string> hosts(arguments + std::min(count, 3), arguments + count);
  if (ranks < 1 || (!hosts.empty() && ranks % static_cast<int>(hosts.size()) != 0)) {
    std::fprintf(stderr, "usage: scale_job RANKS ROOT [NETWORK_NAMESPACE...], of which the number divides RANKS\n");
    return 2;
  }
  ::setenv("DEVCOMM_SIZE", arguments[1], 1);
  ::setenv("DEVCOMM_ROOT", arguments[2], 1);
  const int records = ::memfd_create("records", 0);
  if (records < 0 || ::ftruncate(records, static_cast<off_t>(sizeof(record)) * ranks) != 0) fail("memfd_create");
  const record* const all = map_records(records, static_cast<std::size_t>(ranks));

  const double start = now();
  for (int rank = 0; rank < ranks; ++rank) start_rank(rank, records, hosts, ranks, arguments);
  int failed = 0;
  for (int i = 0; i < ranks; ++i) {
    int status = 0;
    if (::wait(&status) < 0) fail("wait");
    if (status != 0) ++failed;
  }
  const auto done = std::count_if(all, all + ranks, [](const record& one) { return one.done == 1; });
  if (failed != 0 || done != ranks) {
    std::fprintf(stderr, "scale_job: %d of %d ranks failed\n", failed, ranks);
    return 1;
  }
  print(all, ranks, std::max<std::size_t>(hosts.size(), 1), start);
  return 0;
}
