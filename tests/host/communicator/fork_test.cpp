// A forked child has copies of its parent's communicators. Their destructors leave the parent's job alone.
#include <devcomm/host/communicator.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

/// Runs `body` in a forked child, which a signal ends if it hangs; how it ended.
std::string in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    try {
      body();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit " + std::to_string(WEXITSTATUS(status));
}

std::chrono::microseconds processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) { return std::chrono::seconds(time.tv_sec) + time.tv_usec * 1us; };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// What a program has when it forks.
struct program {
  explicit program(std::shared_ptr<host::bootstrap> ranks)
      : comm(std::move(ranks), {.watchdog = true}), memory(comm.allocate(4096)) {
    device = comm.create_device_comm(comm.requirements());
    part = comm.split(0, comm.rank());
    comm.barrier();
  }

  host::communicator comm;
  host::symmetric_memory memory;
  std::optional<host::device_communicator> device;
  std::unique_ptr<host::communicator> part;
};

void require_untouched(program& mine) {
  mine.comm.barrier();
  const auto before = processor_time();
  std::this_thread::sleep_for(400ms);
  const auto used = processor_time() - before;
  require(used < 100ms, "no thread spins: " + std::to_string(used.count()) + " us of processor time in 400 ms");
  require(mine.comm.dead_rank() == -1 && !mine.comm.aborted(), "nobody has left");
  mine.comm.check();
  mine.part->barrier();
  static_cast<void>(mine.comm.allocate(64));
}

}  // namespace

TEST_CASE("a forked child that destroys its copies sends no shutdown notice, joins no thread and wakes nobody") {
  const auto ends = on_processes(3, [](auto bootstrap) {
    auto mine = std::make_unique<program>(std::move(bootstrap));
    if (mine->comm.rank() == 1) {
      const std::string end = in_child([&] { mine.reset(); });
      require(end == "exit 0", "the child ends: " + end);
    }
    require_untouched(*mine);
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("a forked child that an exception unwinds ends no wait of its parent's job") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    program mine(std::move(bootstrap));
    if (mine.comm.rank() == 1) {
      const std::string end = in_child([&] {
        const auto memory = std::move(mine.memory);
        const auto part = std::move(mine.part);
        const auto device = std::move(*mine.device);
        const auto comm = std::move(mine.comm);
        throw std::runtime_error("out of cheese");
      });
      require(end == "exit 3", "the exception arrives: " + end);
    }
    require_untouched(mine);
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("a forked child's collective calls and checks are refused, and its abort ends nothing") {
  const auto ends = on_processes(2, [](auto bootstrap) {
    program mine(std::move(bootstrap));
    if (mine.comm.rank() == 0) {
      const std::string end = in_child([&] {
        mine.comm.abort();
        require(!mine.comm.aborted(), "the child does not abort");
        for (const auto& call :
             {std::function<void()>([&] { mine.comm.barrier(); }),
              std::function<void()>([&] { static_cast<void>(mine.comm.allocate(64)); }),
              std::function<void()>([&] { mine.comm.check(); }), std::function<void()>([&] { mine.device->check(); }),
              std::function<void()>([&] { static_cast<void>(mine.device->failures()); })}) {
          const std::string text = text_of<host::invalid_argument>(call);
          require(text.find("(rank 0 of 2): this process is a forked child") != std::string::npos, text);
        }
      });
      require(end == "exit 0", "the child is told why: " + end);
    }
    require_untouched(mine);
  });
  CHECK(ends == all_ok(2));
}
