// Losses that a bootstrap reports while no rank calls anything.
#include "job_harness.hpp"

#include "bootstrap/tcp/idle_watch.hpp"
#include "util/unique_fd.hpp"

#include <devcomm/host/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>

using namespace devcomm_test;
namespace host = devcomm::host;
using host::detail::idle_watch;
using host::detail::unique_fd;

namespace {

using clock = std::chrono::steady_clock;

void require(bool holds, const std::string& law) {
  if (!holds) throw std::runtime_error(law);
}

template <class Holds>
bool comes_true(Holds holds, std::chrono::milliseconds limit = 20s) {
  for (const auto end = clock::now() + limit; clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (holds()) return true;
  }
  return holds();
}

/// What `ranks` tells of losses.
class heard {
 public:
  explicit heard(host::bootstrap& ranks) {
    ranks.watch([told = told_](int rank, const std::string& why) {
      const std::lock_guard lock(told->mutex);
      told->culprits.push_back(rank);
      told->text = why;
    });
  }
  [[nodiscard]] std::vector<int> culprits() const {
    const std::lock_guard lock(told_->mutex);
    return told_->culprits;
  }
  /// Throws unless `culprit` alone is lost in time, as `text` says.
  void expect(int culprit, const std::string& text) const {
    require(comes_true([&] { return !culprits().empty(); }), "a loss is told");
    const std::lock_guard lock(told_->mutex);
    require(told_->culprits == std::vector{culprit},
            "rank " + std::to_string(told_->culprits.front()) + " is named: " + told_->text);
    require(told_->text.find(text) != std::string::npos, "the text says more than: " + told_->text);
  }

 private:
  struct record {
    std::mutex mutex;
    std::vector<int> culprits;
    std::string text;
  };
  std::shared_ptr<record> told_ = std::make_shared<record>();
};

void give_up_waiting(host::bootstrap& ranks) {
  const outcome o = outcome_of([&] { barrier(ranks, 100ms); });
  require(o.kind == "timeout_error", "the others do not come: " + o.text);
}

void touch(const unique_fd& event) {
  const std::uint64_t one = 1;
  require(::write(event.get(), &one, sizeof one) == sizeof one, "the event is set");
}

std::chrono::microseconds processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) { return std::chrono::seconds(time.tv_sec) + time.tv_usec * 1us; };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// A forked child that lives as long as this.
class living_child {
 public:
  living_child() : process_(::fork()) {
    if (process_ != 0) return;
    ::alarm(60);
    for (;;) ::pause();
  }
  ~living_child() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  living_child(const living_child&) = delete;
  living_child& operator=(const living_child&) = delete;

 private:
  pid_t process_;
};

}  // namespace

TEST_CASE("a loss is told after a time-out too") {
  struct course {
    int gives_up;
    int dies;
  };
  const course one = GENERATE(course{0, 2}, course{1, 2}, course{2, 2}, course{1, 0});
  const int gives_up = one.gives_up;
  const int dies = one.dies;
  CAPTURE(gives_up, dies);
  const auto ends = run_job(way::tcp_processes, 3, [=](const shared_bootstrap& ranks) {
    const heard losses(*ranks);
    barrier(*ranks);
    if (ranks->rank() == gives_up) give_up_waiting(*ranks);
    if (ranks->rank() == dies) {
      std::this_thread::sleep_for(300ms);
      require(losses.culprits().empty(), "a time-out is no loss");
      ::raise(SIGKILL);
    }
    losses.expect(dies, "rank " + std::to_string(dies));
    ranks->leave(-1, {});
  });
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank, ends[static_cast<std::size_t>(rank)].text);
    CHECK(ends[static_cast<std::size_t>(rank)].kind == (rank == dies ? "signal" : "ok"));
  }
}

TEST_CASE("a rank that timed out and leaves with a culprit is heard by all") {
  const int leaver = GENERATE(0, 2);
  CAPTURE(leaver);
  const auto ends = run_job(way::tcp_processes, 3, [=](const shared_bootstrap& ranks) {
    const heard losses(*ranks);
    barrier(*ranks);
    if (ranks->rank() == leaver) {
      give_up_waiting(*ranks);
      ranks->leave(leaver, "out of cheese");
      return;
    }
    losses.expect(leaver, "out of cheese");
    ranks->leave(-1, {});
  });
  CHECK(first_failure(ends).empty());
}

TEST_CASE("ranks that hear of a loss from another rank are told who is lost and why, whether they wait or not") {
  // As on a host whose ranks hear of each other sooner than rank 0 does.
  const std::string why = "rank 1 left because of an exception: out of cheese";
  struct course {
    int teller;
    bool all_wait;  ///< else the teller alone, and the others are told by their watch
  };
  const course one = GENERATE(course{2, true}, course{0, true}, course{3, true}, course{2, false}, course{0, false});
  const way w = GENERATE(way::tcp_threads, way::tcp_processes);
  CAPTURE(one.teller, one.all_wait, to_string(w));
  const auto ends = run_job(w, 4, [&](const shared_bootstrap& ranks) {
    const heard losses(*ranks);
    barrier(*ranks);
    if (ranks->rank() == 1) {
      std::this_thread::sleep_for(1s);
    } else if (ranks->rank() == one.teller) {
      const std::jthread hears([&] {
        std::this_thread::sleep_for(200ms);
        ranks->interrupt(1, why);
      });
      barrier(*ranks, 5s);
    } else if (one.all_wait) {
      barrier(*ranks, 5s);
    } else {
      losses.expect(1, why);
      barrier(*ranks, 5s);
    }
    ranks->leave(-1, {});
  });
  for (int rank = 0; rank < 4; ++rank) {
    const outcome& end = ends[static_cast<std::size_t>(rank)];
    CAPTURE(rank, end.text);
    CHECK(end.kind == (rank == 1 ? "ok" : "remote_error"));
    CHECK(end.culprit == (rank == 1 ? -1 : 1));
    CHECK(end.says(rank == 1 ? "" : why));
  }
}

TEST_CASE("a call that has ended on one rank ends well on another that hears of a loss meanwhile") {
  // A rank ends as soon as its call has ended, and others hear of that before rank 0 has sent them the result.
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    std::array<shared_bootstrap, 4> all;
    std::atomic<int> joined{0};
    const auto ends = run_job(way::tcp_threads, 4, [&](const shared_bootstrap& ranks) {
      all[static_cast<std::size_t>(ranks->rank())] = ranks;
      ++joined;
      while (joined < 4) std::this_thread::yield();
      barrier(*ranks);
      if (ranks->rank() == 1) {
        all[2]->interrupt(1, "rank 1 died");
        all[3]->interrupt(1, "rank 1 died");
      }
      ranks->leave(-1, {});
    });
    REQUIRE(first_failure(ends).empty());
  }
}

TEST_CASE("a rank that waits is woken by an interruption, whenever it comes") {
  for (int i = 0; i < 50; ++i) {
    CAPTURE(i);
    const auto ends = run_job(way::tcp_threads, 2, [&](const shared_bootstrap& ranks) {
      if (ranks->rank() == 1) {
        std::atomic<bool> begins = false;
        const std::jthread hears([&] {
          while (!begins) std::this_thread::yield();
          const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(i * 4);
          while (std::chrono::steady_clock::now() < until) continue;
          ranks->interrupt(0, "rank 0 died");
        });
        begins = true;
        const auto start = std::chrono::steady_clock::now();
        require(outcome_of([&] { barrier(*ranks, 20s); }).culprit == 0, "it was told");
        require(std::chrono::steady_clock::now() - start < 10s, "it was told at once");
      } else {
        std::this_thread::sleep_for(2ms);
      }
      ranks->leave(-1, {});
    });
    REQUIRE(first_failure(ends).empty());
  }
}

TEST_CASE("a rank that was told of a loss and leaves in peace is not lost itself") {
  const std::string why = "rank 1 left because of an exception: out of cheese";
  const auto ends = run_job(way::tcp_processes, 4, [&](const shared_bootstrap& ranks) {
    barrier(*ranks);
    if (ranks->rank() == 2) {
      ranks->interrupt(1, why);
      require(outcome_of([&] { barrier(*ranks); }).culprit == 1, "it was told");
      ranks->leave(-1, {});
      return;
    }
    std::this_thread::sleep_for(500ms);  // all that rank 2 says waits for rank 0
    if (ranks->rank() != 1) barrier(*ranks, 5s);
    std::this_thread::sleep_for(500ms);
  });
  for (const int rank : {0, 3}) {
    const outcome& end = ends[static_cast<std::size_t>(rank)];
    CAPTURE(rank, end.text);
    CHECK(end.kind == "remote_error");
    CHECK(end.culprit == 1);
    CHECK(end.says(why));
  }
}

TEST_CASE("a rank that blames a rank that there is not is lost itself") {
  const auto ends = run_job(way::tcp_processes, 3, [](const shared_bootstrap& ranks) {
    const heard losses(*ranks);
    barrier(*ranks);
    if (ranks->rank() == 1) {
      ranks->leave(7, "rank 7 did it");
      return;
    }
    losses.expect(1, "blames a rank that there is not");
    ranks->leave(-1, {});
  });
  CHECK(first_failure(ends).empty());
}

TEST_CASE("no thread spins when a rank ends while a forked child has copies of the connections") {
  const auto ends = run_job(way::tcp_processes, 3, [](const shared_bootstrap& ranks) {
    const heard losses(*ranks);
    barrier(*ranks);
    const int leaver = ranks->rank();
    if (leaver == 2) {
      ranks->leave(-1, {});
      return;
    }
    const living_child child;
    std::this_thread::sleep_for(300ms);
    if (leaver == 0) {
      const auto before = processor_time();
      std::this_thread::sleep_for(500ms);
      const auto used = processor_time() - before;
      require(used < 150ms, "rank 0 used " + std::to_string(used.count()) + " us of processor time in 500 ms");
      ranks->leave(-1, {});
      return;
    }
    std::this_thread::sleep_for(1s);  // by now rank 0 has ended
    const auto before = processor_time();
    std::this_thread::sleep_for(500ms);
    const auto used = processor_time() - before;
    require(used < 150ms, "rank 1 used " + std::to_string(used.count()) + " us of processor time in 500 ms");
    require(losses.culprits().empty(), "who ends in order is not lost");
  });
  CHECK(first_failure(ends).empty());
}

TEST_CASE("a wrong DEVCOMM_PEER_TIMEOUT is refused before anything is waited for") {
  const int rank = GENERATE(0, 1);
  ::setenv("DEVCOMM_PEER_TIMEOUT", "soon", 1);
  const outcome o =
      outcome_of([&] { static_cast<void>(host::tcp_bootstrap(host::unique_id::create(), rank, 2, 500ms)); });
  ::unsetenv("DEVCOMM_PEER_TIMEOUT");
  CAPTURE(rank, o.text);
  CHECK(o.kind == "invalid_argument");
  CHECK(o.says("DEVCOMM_PEER_TIMEOUT is \"soon\""));
}

TEST_CASE("idle_watch reports what its look throws, and ends") {
  const unique_fd event(::eventfd(0, EFD_CLOEXEC));
  std::atomic<int> looks = 0;
  std::atomic<bool> told = false;
  std::string why;
  {
    idle_watch watch;
    watch.start(
        event.get(),
        [&]() -> idle_watch::report {
          ++looks;
          throw std::runtime_error("out of cheese");
        },
        [&](const std::string& text) -> idle_watch::report {
          why = text;
          return [&] { told = true; };
        });
    touch(event);
    CHECK(comes_true([&] { return told.load(); }));
  }
  CHECK(why == "out of cheese");
  CHECK(looks == 1);
}

TEST_CASE("a forked child that destroys its copy of an idle_watch leaves its parent's alone") {
  const unique_fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<int> looks = 0;
  auto watch = std::make_unique<idle_watch>();
  watch->start(
      event.get(),
      [&]() -> idle_watch::report {
        std::uint64_t count = 0;
        if (::read(event.get(), &count, sizeof count) > 0) ++looks;
        return {};
      },
      [](const std::string&) { return idle_watch::report(); });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    watch.reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  touch(event);
  CHECK(comes_true([&] { return looks == 1; }, 5s));
}
