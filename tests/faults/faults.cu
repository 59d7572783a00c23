/// What a user sees when a rank misbehaves. One scenario a run:
///
///     faults absent_rank       the last rank never launches
///     faults different_grid    the last rank launches another grid
///     faults killed_process    the last rank's process is killed; one process a rank, see run.sh
///     faults killed_signaller  the same, while the others wait for its signals
///     faults throwing_rank     the last rank throws, in one process or in one a rank, see run.sh
///     faults throwing_user     the same with communicators that the program makes and destroys itself
///
/// Each surviving rank must leave its kernel within the deadline, hold a record that names the
/// culprit, and go on. Exit status 0 means that it did. Prints what it saw.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>
#include <devcomm/host/watchdog.hpp>

#include "support/ranks.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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

/// Waits for a signal from `from`; counts the blocks that got it.
__global__ void wait_for_signal(device_comm comm, lsa::signal_handle signals, int from, unsigned* blocks_done) {
  lsa::signal_session signal{block{}, comm, signals, blockIdx.x};
  signal.take(from);
  const status outcome = signal.agree();
  if (threadIdx.x == 0 && outcome == status::success) atomicAdd(blocks_done, 1u);
}

/// All but the last wait for the last one's signals, which has been killed.
void killed_signaller(host::communicator& comm) {
  const int culprit = comm.size() - 1;
  auto needs = comm.requirements();
  const auto signals = needs.add(lsa::signals{comm.lsa(), blocks});
  const auto device_comm = comm.create_device_comm(needs);
  comm.barrier();
  if (comm.rank() == culprit) std::raise(SIGKILL);
  const test::device_array<unsigned> done(1);
  const auto begin = std::chrono::steady_clock::now();
  launch(wait_for_signal, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), signals,
         culprit, done.get());
  test::finish("wait_for_signal");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  test::require(done.read()[0] == 0, "a block got a signal of a dead process");
  require_prompt(seconds);
  test::require(comm.dead_rank() == culprit, "dead_rank is " + std::to_string(comm.dead_rank()));
  const std::string text = error_of([&] { comm.check(); });
  test::require(text.find("rank " + std::to_string(culprit)) != std::string::npos,
                "the error names no culprit: " + text);
  std::printf("rank %d left after %.2f s: %s\n", comm.rank(), seconds, text.c_str());
}

constexpr const char* reason = "the cat sat on the keyboard";

void require_part(const std::string& text, const std::string& part) {
  test::require(text.find(part) != std::string::npos, "\"" + part + "\" is missing in: " + text);
}

std::atomic<int> survivors{0};

/// The last rank throws while the kernels of the others wait for it, for ever as far as their limit goes. They must end
/// within a second and know which rank left, and why: `because` is empty, or ": " and the reason.
void wait_for_throwing(host::communicator& comm, const std::string& because) {
  const int culprit = comm.size() - 1;
  const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
  double seconds = 0;
  test::require(launch_and_time(device_comm, blocks, seconds) == blocks, "the first launch failed");
  comm.barrier();
  if (comm.rank() == culprit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    throw std::runtime_error(reason);
  }
  const unsigned done = launch_and_time(device_comm, blocks, seconds);
  test::require(done == 0, "a block passed a barrier that the rank which threw never reached");
  test::require(seconds < 1.3, "the kernel ended only after " + std::to_string(seconds) + " s");
  const std::string who = "rank " + std::to_string(culprit) + " left because of an exception" + because + "; ";
  const std::string text = error_of([&] { comm.check(); });
  require_part(text, "check (rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) + "): " + who);
  require_part(text, " waited for rank " + std::to_string(culprit) + " to reach epoch 3 and last saw 2: aborted");
  test::require(error_of([&] { device_comm.check(); }) == text, "the device communicator's check says something else");
  test::require(comm.dead_rank() == culprit, "dead_rank is " + std::to_string(comm.dead_rank()));
  std::printf("rank %d left after %.2f s: %s\n", comm.rank(), seconds, text.c_str());
  ++survivors;
}

void throwing_rank(host::communicator& comm) { wait_for_throwing(comm, std::string(": ") + reason); }

/// Without `run_ranks`, whose place this takes; nobody knows the reason then.
void run_throwing_user() {
  const auto one = [](std::shared_ptr<host::bootstrap> ranks) {
    const auto keep = ranks;  // a bootstrap that outlives the communicator tells nobody anything
    const int culprit = ranks->size() - 1;
    try {
      host::communicator comm(std::move(ranks), {.kernel_timeout = std::chrono::minutes(10)});
      wait_for_throwing(comm, "");
    } catch (const std::exception& error) {
      if (keep->rank() == culprit && error.what() == std::string(reason)) {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        return true;
      }
      std::fprintf(stderr, "rank %d: %s\n", keep->rank(), error.what());
      return false;
    }
    return true;
  };
  if (host::launched_by_environment()) {
    test::require(one(host::environment_bootstrap()), "this rank failed");
    return;
  }
  std::vector<std::thread> of_ranks;
  std::atomic<int> succeeded{0};
  for (auto& ranks : host::thread_bootstraps(3)) {
    of_ranks.emplace_back([&, own = std::move(ranks)]() mutable { succeeded += one(std::move(own)) ? 1 : 0; });
  }
  for (std::thread& each : of_ranks) each.join();
  test::require(succeeded == 3 && survivors == 2, "a rank failed");
}

/// `run_ranks` must throw the culprit's error, from all ranks of one process or from the culprit's alone.
void run_throwing_rank(const host::run_options& options) {
  std::string text = "nothing";
  try {
    host::run_ranks(options, throwing_rank);
  } catch (const host::remote_error& error) {
    text = error.what();
  }
  if (host::launched_by_environment() && survivors == 1) return;
  require_part(text, "run_ranks: rank ");
  require_part(text, std::string(" failed: ") + reason);
  test::require(host::launched_by_environment() || survivors > 0, "no rank survived");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc == 2 ? argv[1] : "";
  const std::function<void(host::communicator&)> body = scenario == "absent_rank"        ? absent_rank
                                                        : scenario == "different_grid"   ? different_grid
                                                        : scenario == "killed_process"   ? killed_process
                                                        : scenario == "killed_signaller" ? killed_signaller
                                                        : scenario == "throwing_rank"    ? throwing_rank
                                                        : scenario == "throwing_user"    ? throwing_rank
                                                                                         : nullptr;
  if (!body) {
    std::fprintf(
        stderr,
        "usage: %s absent_rank | different_grid | killed_process | killed_signaller | throwing_rank | throwing_user\n",
        argv[0]);
    return 2;
  }
  if ((scenario == "killed_process" || scenario == "killed_signaller") && !host::launched_by_environment()) {
    std::fprintf(stderr, "start one process for each rank; see tests/faults/run.sh\n");
    return 2;
  }
  try {
    host::run_options options;
    options.communicator.kernel_timeout = kernel_timeout;
    options.communicator.check_launch = scenario == "different_grid";
    if (scenario == "throwing_user") {
      run_throwing_user();
      return 0;
    }
    if (scenario == "throwing_rank") {
      options.ranks = 3;
      options.communicator.kernel_timeout = std::chrono::minutes(10);
      run_throwing_rank(options);
      return 0;
    }
    host::run_ranks(options, body);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
