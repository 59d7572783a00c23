/// What a user sees when a rank misbehaves. One scenario a run:
///
///     faults absent_rank       the last rank never launches
///     faults different_grid    the last rank launches another grid
///     faults killed_process    the last rank's process is killed; one process a rank, see run.sh
///
/// Each surviving rank must leave its kernel within the deadline, hold a record that names the
/// culprit, and go on. Exit status 0 means that it did. Prints what it saw.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>
#include <devcomm/host/watchdog.hpp>

#include "support/ranks.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>

using namespace devcomm;

namespace {

constexpr auto kernel_timeout = std::chrono::milliseconds(1500);
constexpr auto watchdog_patience = std::chrono::milliseconds(500);
constexpr unsigned blocks = 4;
constexpr unsigned threads = 128;

/// Two barriers a block; counts the blocks that got through.
__global__ void meet_twice(device_comm comm, unsigned* blocks_done) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync();
  barrier.sync();
  const status outcome = barrier.agree();
  if (threadIdx.x == 0 && outcome == status::success) atomicAdd(blocks_done, 1u);
}

unsigned launch_and_time(const host::device_communicator& comm, unsigned grid, double& seconds) {
  const test::device_array<unsigned> done(1);
  const auto begin = std::chrono::steady_clock::now();
  launch(meet_twice, {.grid = grid, .block = threads, .stream = cudaStreamPerThread}, comm.get(), done.get());
  test::finish("meet_twice");
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return done.read()[0];
}

/// The error that `action` throws, as text; none is a failure of the test.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const host::error& error) {
    return error.what();
  }
  throw std::runtime_error("no error was reported");
}

void require_prompt(double seconds) {
  test::require(seconds < 3 * std::chrono::duration<double>(kernel_timeout).count(),
                "the kernel took " + std::to_string(seconds) + " s to give up");
}

/// What the watchdog reported; printed as it comes.
class watchdog_reports {
 public:
  void listen() {
    host::set_watchdog({watchdog_patience, false, [this](const std::string& text) {
                          std::fputs(text.c_str(), stdout);
                          const std::lock_guard lock(mutex_);
                          text_ += text;
                        }});
  }
  [[nodiscard]] bool tell(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return text_.find(part) != std::string::npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

watchdog_reports reports;

void absent_rank(host::communicator& comm) {
  const int culprit = comm.size() - 1;
  if (comm.rank() == 0) reports.listen();
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  if (comm.rank() != culprit) {
    double seconds = 0;
    const unsigned done = launch_and_time(device_comm, blocks, seconds);
    test::require(done == 0, "a block passed a barrier that the absent rank never reached");
    require_prompt(seconds);
    bool named = false;
    for (const failure_record& record : device_comm.failures()) {
      named = named || (record.outcome == status::timeout && record.peer == culprit && record.expected == 1);
    }
    test::require(named, "no record names the absent rank");
    test::require(reports.tell(" wait at LSA barriers 0-3 for rank " + std::to_string(culprit) + " to reach epoch 1"),
                  "the watchdog did not tell of the waits");
    test::require(reports.tell("wait in the end for rank " + std::to_string(culprit) + ", which waits for nobody") ||
                      reports.tell("waits in the end for rank " + std::to_string(culprit) + ", which waits for nobody"),
                  "the watchdog did not name the absent rank");
    std::printf("rank %d left after %.2f s: %s\n", comm.rank(), seconds,
                error_of([&] { device_comm.check(); }).c_str());
  }
  comm.barrier();

  // All go on with fresh resources.
  const auto again = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  double seconds = 0;
  test::require(launch_and_time(again, blocks, seconds) == blocks, "the ranks could not go on");
  again.check();
}

void different_grid(host::communicator& comm) {
  const int culprit = comm.size() - 1;
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  double seconds = 0;
  launch_and_time(device_comm, comm.rank() == culprit ? blocks / 2 : blocks, seconds);
  require_prompt(seconds);
  bool named = false;
  for (const failure_record& record : device_comm.failures()) {
    if (record.outcome != status::mismatch) continue;
    const bool about_culprit = record.peer == culprit || record.rank == culprit;
    named = named || (about_culprit && record.mine.grid_blocks != record.theirs.grid_blocks);
  }
  test::require(named, "no record names the rank with the other grid");
  std::printf("rank %d left after %.2f s: %s\n", comm.rank(), seconds, error_of([&] { device_comm.check(); }).c_str());
  comm.barrier();
}

void killed_process(host::communicator& comm) {
  const int culprit = comm.size() - 1;
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  double seconds = 0;
  test::require(launch_and_time(device_comm, blocks, seconds) == blocks, "the first launch failed");
  comm.barrier();
  if (comm.rank() == culprit) std::raise(SIGKILL);
  const unsigned done = launch_and_time(device_comm, blocks, seconds);
  test::require(done == 0, "a block passed a barrier with a dead process");
  require_prompt(seconds);
  test::require(comm.dead_rank() == culprit, "dead_rank is " + std::to_string(comm.dead_rank()));
  const std::string text = error_of([&] { comm.check(); });
  test::require(text.find("rank " + std::to_string(culprit)) != std::string::npos,
                "the error names no culprit: " + text);
  std::printf("rank %d left after %.2f s: %s\n", comm.rank(), seconds, text.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc == 2 ? argv[1] : "";
  const std::function<void(host::communicator&)> body = scenario == "absent_rank"      ? absent_rank
                                                        : scenario == "different_grid" ? different_grid
                                                        : scenario == "killed_process" ? killed_process
                                                                                       : nullptr;
  if (!body) {
    std::fprintf(stderr, "usage: %s absent_rank | different_grid | killed_process\n", argv[0]);
    return 2;
  }
  if (scenario == "killed_process" && !host::launched_by_environment()) {
    std::fprintf(stderr, "start one process for each rank; see tests/faults/run.sh\n");
    return 2;
  }
  try {
    host::run_options options;
    options.communicator.kernel_timeout = kernel_timeout;
    options.communicator.check_launch = scenario == "different_grid";
    host::run_ranks(options, body);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
