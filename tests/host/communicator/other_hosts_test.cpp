// Ranks on other hosts that end while nobody calls anything.
#include <devcomm/host/communicator.hpp>

#include "own_host.hpp"
#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <linux/filter.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

using namespace devcomm;
using namespace devcomm_test;
using namespace std::chrono_literals;

namespace {

bool hosts_are_made() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(enter_own_host() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0;
}

/// A communicator of three ranks, each on a host of its own.
outcomes on_hosts(const std::function<void(host::communicator&)>& body) {
  return on_processes(3, [&](auto bootstrap) {
    require(enter_own_host(), "a process enters a network namespace");
    host::communicator comm(std::move(bootstrap));
    body(comm);
  });
}

/// Cannot watch where it is `blind`, and sends its shutdown notice `late`.
class altered_watch final : public host::bootstrap {
 public:
  altered_watch(std::shared_ptr<host::bootstrap> ranks, bool blind, std::chrono::milliseconds late)
      : ranks_(std::move(ranks)), blind_(blind), late_(late) {}
  [[nodiscard]] int rank() const noexcept override { return ranks_->rank(); }
  [[nodiscard]] int size() const noexcept override { return ranks_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::chrono::milliseconds limit) override {
    ranks_->all_gather(mine, all, limit);
  }
  void interrupt(int culprit, const std::string& why) override { ranks_->interrupt(culprit, why); }
  void watch(const loss_handler& lost) override {
    if (blind_) throw host::system_error("no more epoll instances");
    ranks_->watch(lost);
  }
  void leave(int culprit, const std::string& why) noexcept override {
    std::this_thread::sleep_for(late_);
    ranks_->leave(culprit, why);
  }

 private:
  std::shared_ptr<host::bootstrap> ranks_;
  bool blind_;
  std::chrono::milliseconds late_;
};

/// Counts in all processes that are forked from here on.
class shared_counter {
 public:
  shared_counter() {
    void* const page =
        ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::runtime_error("mmap failed");
    count_ = new (page) std::atomic<int>(0);
  }
  ~shared_counter() { ::munmap(count_, sizeof *count_); }
  shared_counter(const shared_counter&) = delete;
  shared_counter& operator=(const shared_counter&) = delete;

  [[nodiscard]] std::atomic<int>* operator->() const { return count_; }

 private:
  std::atomic<int>* count_;
};

void require_loss(const host::communicator& comm, int culprit, std::chrono::seconds limit) {
  const auto start = std::chrono::steady_clock::now();
  while (comm.dead_rank() < 0) {
    require(std::chrono::steady_clock::now() - start < limit, "a loss on another host is noticed in time");
    std::this_thread::sleep_for(1ms);
  }
  require(comm.dead_rank() == culprit, "rank " + std::to_string(comm.dead_rank()) + " is named, not the culprit");
  require(comm.aborted(), "a loss ends the waits of kernels");
}

/// From here on this process hears nothing on its connections and answers nothing, as a host that lost its power.
void go_silent() {
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop};
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));  // others: no sockets
  }
}

}  // namespace

TEST_CASE("the death of a rank on another host ends waits while no rank calls anything") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const int culprit = GENERATE(0, 2);
  CAPTURE(culprit);
  const auto ends = on_hosts([&](host::communicator& comm) {
    if (comm.rank() == culprit) ::raise(SIGKILL);
    require_loss(comm, culprit, 10s);
    require(
        text_of<host::remote_error>([&] { comm.check(); }).find("rank " + std::to_string(culprit)) != std::string::npos,
        "check names the rank");
    require(text_of<host::remote_error>([&] { comm.barrier(); }).find("rank " + std::to_string(culprit)) !=
                std::string::npos,
            "a call names the rank");
  });
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(ends[static_cast<std::size_t>(rank)] == (rank == culprit ? "signal 9" : "ok"));
  }
}

TEST_CASE("a rank on another host that leaves by an exception is a loss at once") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const int culprit = GENERATE(0, 1);
  CAPTURE(culprit);
  const auto ends = on_hosts([&](host::communicator& comm) {
    comm.barrier();
    if (comm.rank() == culprit) throw std::runtime_error("out of cheese");
    require_loss(comm, culprit, 10s);
    const std::string told = text_of<host::remote_error>([&] { comm.check(); });
    require(told.find("left because of an exception") != std::string::npos, "the reason is known: " + told);
  });
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(ends[static_cast<std::size_t>(rank)] == (rank == culprit ? "error: out of cheese" : "ok"));
  }
}

TEST_CASE("other hosts are told who left and why, also where a rank that heard of it speaks first") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const bool waits = GENERATE(false, true);  // for the rank that leaves, or is in no call
  CAPTURE(waits);
  const auto ends = on_processes(4, [&](auto bootstrap) {
    const bool leaves = bootstrap->rank() == 1;
    const bool neighbor = bootstrap->rank() == 2;
    if (!leaves && !neighbor) require(enter_own_host(), "a process enters a network namespace");
    const auto ranks = std::make_shared<altered_watch>(std::move(bootstrap), false, leaves ? 2s : 0s);
    {
      host::communicator comm(ranks);
      comm.barrier();
      if (leaves) throw std::runtime_error("out of cheese");
      if (neighbor && waits) {
        const std::string told = text_of<host::remote_error>([&] { comm.barrier(); });
        require(told.find("rank 1 left because of an exception") != std::string::npos, "a neighbor knows: " + told);
        std::this_thread::sleep_for(1s);
      } else {
        require_loss(comm, 1, 1s);
      }
      const std::string told = text_of<host::remote_error>([&] { comm.check(); });
      require(told.find(": rank 1 left because of an exception") != std::string::npos, "all know the reason: " + told);
    }
    std::this_thread::sleep_for(2s);
  });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(ends[static_cast<std::size_t>(rank)] == (rank == 1 ? "error: out of cheese" : "ok"));
  }
}

TEST_CASE("a rank on another host that aborts and leaves is a loss, of which kernels that wait are told") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const int culprit = GENERATE(0, 1);
  CAPTURE(culprit);
  const auto ends = on_hosts([&](host::communicator& comm) {
    const auto device = comm.create_device_comm(comm.requirements());
    comm.barrier();
    if (comm.rank() == culprit) return comm.abort();
    require_loss(comm, culprit, 10s);
    require(std::atomic_ref(device.get().failures->abort).load() == abort_by_host, "kernels poll this word");
    const std::string told = text_of<host::remote_error>([&] { comm.check(); });
    require(told.find("aborted its communicator and left") != std::string::npos, "the reason is known: " + told);
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("an abort on another host ends the waits of kernels, also of a rank that stays or waits itself") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const int culprit = GENERATE(0, 1);
  enum class who { nobody, aborter, others };
  const who waits = GENERATE(who::nobody, who::aborter, who::others);  // in a collective call
  CAPTURE(culprit, static_cast<int>(waits));
  const shared_counter told;
  const auto ends = on_hosts([&](host::communicator& comm) {
    const auto device = comm.create_device_comm(comm.requirements());
    comm.barrier();
    const bool aborts = comm.rank() == culprit;
    std::jthread beside([&] {
      if (aborts) {
        std::this_thread::sleep_for(200ms);
        comm.abort();
      }
      // Until the others are told, the aborter neither leaves nor calls anything that it has not called before.
      const auto end = std::chrono::steady_clock::now() + 10s;
      bool ended = aborts;
      while (told->load() < 2 && std::chrono::steady_clock::now() < end) {
        if (!ended && std::atomic_ref(device.get().failures->abort).load() == abort_by_host) {
          ended = true;
          told->fetch_add(1);
        }
        std::this_thread::sleep_for(1ms);
      }
    });
    const bool in_call = waits == (aborts ? who::aborter : who::others);
    if (in_call) comm.barrier();
    beside.join();
    require(told->load() == 2, "kernels poll this word");
    if (!in_call && waits != who::nobody) comm.barrier();
    comm.barrier();  // steps of the host go on
    require(comm.aborted() && comm.dead_rank() == -1, "nobody is lost");
    const std::string expected =
        aborts ? "abort() was called;" : "rank " + std::to_string(culprit) + " aborted its communicator;";
    const std::string text = aborts ? text_of<host::kernel_error>([&] { comm.check(); })
                                    : text_of<host::remote_error>([&] { comm.check(); });
    require(text.find("): " + expected) != std::string::npos, "the reason is known: " + text);
    comm.barrier();
    if (comm.rank() == (culprit + 1) % 3) return;
    std::this_thread::sleep_for(300ms);
    require(comm.dead_rank() == -1, "a rank that was told of an abort leaves in order");
    if (aborts) std::this_thread::sleep_for(1s);
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("a rank that lets another one's abort end it names that one, on each host") {
  const bool hosts = GENERATE(false, true);
  if (hosts && !hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const int aborter = GENERATE(0, 2);
  CAPTURE(hosts, aborter);
  const shared_counter told_of_abort;
  const auto ends = on_processes(3, [&](auto bootstrap) {
    if (hosts) require(enter_own_host(), "a process enters a network namespace");
    host::communicator comm(std::move(bootstrap));
    comm.barrier();
    if (comm.rank() == aborter) {
      comm.abort();
      comm.abort();  // which tells nobody again
    }
    const std::string cause = "rank " + std::to_string(aborter) + " aborted its communicator";
    while (!comm.aborted()) std::this_thread::sleep_for(1ms);
    told_of_abort->fetch_add(1);
    while (told_of_abort->load() < 3) std::this_thread::sleep_for(1ms);
    if (comm.rank() == 1) comm.check();
    const std::string told = text_of<host::remote_error>([&] { comm.barrier(); });
    require(told.find("rank 1 left because " + cause) != std::string::npos,
            "calls end, and the cause is known: " + told);
    require_loss(comm, 1, 10s);
    const std::string text = text_of<host::remote_error>([&] { comm.check(); });
    const std::string expected = comm.rank() == aborter ? "rank 1 left because " + cause + ";" : cause + ";";
    require(text.find("): " + expected) != std::string::npos, "the abort comes before what follows it: " + text);
    std::this_thread::sleep_for(500ms);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string& end = ends[static_cast<std::size_t>(rank)];
    CAPTURE(rank, end);
    CHECK((rank == 1 ? end.find("aborted its communicator;") != std::string::npos : end == "ok"));
  }
}

TEST_CASE("the thread that watches other hosts leaves signals to the program's threads") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const auto ends = on_processes(2, [](auto bootstrap) {
    require(enter_own_host(), "a process enters a network namespace");  // so that the bootstrap is watched, too
    host::communicator comm(std::move(bootstrap));
    comm.barrier();
    int threads = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      if (entry.path().filename() == std::to_string(::getpid())) continue;
      ++threads;
      std::ifstream status(entry.path() / "status");
      for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("SigBlk:")) continue;
        const auto blocked = std::stoull(line.substr(7), nullptr, 16);
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
          require((blocked >> (signal - 1) & 1) == 1, "a thread takes signal " + std::to_string(signal));
        }
      }
    }
    require(threads >= 1, "there is such a thread");
    comm.barrier();
  });
  CHECK(ends == all_ok(2));
}

TEST_CASE("a host that falls silent is taken for gone after the limit") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  ::setenv("DEVCOMM_PEER_TIMEOUT", "2", 1);
  const auto ends = on_hosts([&](host::communicator& comm) {
    if (comm.rank() == 1) {
      go_silent();
      require_loss(comm, 0, 20s);  // all that it sees of the others
      return;
    }
    require_loss(comm, 1, 20s);
  });
  ::unsetenv("DEVCOMM_PEER_TIMEOUT");
  CHECK(ends == all_ok(3));
}

TEST_CASE("a rank on another host that ends in order is no loss") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const int leaver = GENERATE(0, 2);
  CAPTURE(leaver);
  const auto ends = on_hosts([&](host::communicator& comm) {
    comm.barrier();
    if (comm.rank() == leaver) return;
    std::this_thread::sleep_for(500ms);
    require(comm.dead_rank() < 0, "who ends in order is not lost");
    comm.check();
  });
  CHECK(ends == all_ok(3));
}

TEST_CASE("a rank that cannot watch other hosts fails the start of all with its own error") {
  if (!hosts_are_made()) SKIP("this system does not let a process enter a network namespace");
  const auto ends = on_processes(3, [](auto bootstrap) {
    require(enter_own_host(), "a process enters a network namespace");
    const bool blind = bootstrap->rank() == 1;
    const auto ranks = std::make_shared<altered_watch>(std::move(bootstrap), blind, 0ms);
    std::string text;
    if (blind) {
      text = text_of<host::system_error>([&] { host::communicator comm(ranks); });
    } else {
      text = text_of<host::remote_error>([&] { host::communicator comm(ranks); });
      require(text.find("rank 1 failed: ") != std::string::npos, "the rank is named: " + text);
    }
    require(text.find("no more epoll instances") != std::string::npos, "the reason is known: " + text);
  });
  CHECK(ends == all_ok(3));
}
