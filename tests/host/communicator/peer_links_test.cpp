#include <rank/peer_links.hpp>

#include <devcomm/host/error.hpp>

#include "rank_harness.hpp"

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

using namespace devcomm::host;
using namespace devcomm::host::detail;
using namespace std::chrono_literals;
using devcomm_test::text_of;

namespace {

/// Losses that a side was told of.
class losses {
 public:
  peer_links::loss_handler handler() {
    return [this](int rank, const std::string& text) {
      const std::lock_guard lock(mutex_);
      all_.emplace_back(rank, text);
    };
  }
  std::vector<std::pair<int, std::string>> wait_for(std::size_t count) {
    for (int i = 0; i < 1000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (all_.size() >= count) return all_;
      }
      std::this_thread::sleep_for(1ms);
    }
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> all_;
};

/// Two ends in this process: a holds ranks 0 and 1, b holds rank 2.
struct pair_of_links {
  losses lost_by_a;
  losses lost_by_b;
  std::unique_ptr<peer_links> a = std::make_unique<peer_links>(lost_by_a.handler());
  std::unique_ptr<peer_links> b = std::make_unique<peer_links>(lost_by_b.handler());

  [[nodiscard]] std::vector<link_peer> peers() const { return {{a->address(), {0, 1}}, {b->address(), {2}}}; }

  void connect() {
    auto other = std::async(std::launch::async, [&] { b->connect(peers(), 1, 5s); });
    a->connect(peers(), 0, 5s);
    other.get();
  }
};

unique_fd memory_with(char content) {
  unique_fd fd(::memfd_create("devcomm-test", MFD_CLOEXEC));
  REQUIRE(::write(fd.get(), &content, 1) == 1);
  return fd;
}

char content_of(const unique_fd& fd) {
  char content = 0;
  REQUIRE(::pread(fd.get(), &content, 1, 0) == 1);
  return content;
}

/// What anybody on this host can do who has learnt the name of the socket.
unique_fd knock(const link_address& at) {
  unique_fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  std::string name = "devcomm-";
  for (const std::uint8_t byte : at.name) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  std::memcpy(where.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), bytes) == 0);
  return fd;
}

/// Descriptors of `memory_with` that this process has open.
int open_memories() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    const auto target = std::filesystem::read_symlink(entry.path(), closed);
    if (!closed && target.string().find("memfd:devcomm-test") != std::string::npos) ++count;
  }
  return count;
}

/// Lowers the limit for as long as it lives.
class open_file_limit {
 public:
  explicit open_file_limit(rlim_t most) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit lower{most, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &lower) == 0);
  }
  ~open_file_limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  open_file_limit(const open_file_limit&) = delete;
  open_file_limit& operator=(const open_file_limit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("memory arrives for the window and rank it was sent for, in any order") {
  pair_of_links ends;
  ends.connect();
  const deadline until(5s);
  ends.a->send_memory(2, 7, 0, memory_with('x').get(), until);
  ends.a->send_memory(2, 7, 1, memory_with('y').get(), until);
  ends.b->send_memory(0, 7, 2, memory_with('z').get(), until);
  CHECK(content_of(ends.b->take_memory(7, 1, until)) == 'y');
  CHECK(content_of(ends.b->take_memory(7, 0, until)) == 'x');
  CHECK(content_of(ends.a->take_memory(7, 2, until)) == 'z');
}

TEST_CASE("memory that never comes is named when the limit passes, and forgotten memory is gone") {
  pair_of_links ends;
  ends.connect();
  ends.a->send_memory(2, 3, 0, memory_with('x').get(), deadline(5s));
  ends.a->send_memory(2, 4, 0, memory_with('y').get(), deadline(5s));
  CHECK(content_of(ends.b->take_memory(4, 0, deadline(5s))) == 'y');
  ends.b->forget_memory(3);
  const std::string text =
      text_of<timeout_error>([&] { static_cast<void>(ends.b->take_memory(3, 0, deadline(20ms))); });
  CHECK(text.find("waited 20 ms for memory of rank 0") != std::string::npos);
}

TEST_CASE("memory of a window that is forgotten is dropped when it arrives later") {
  pair_of_links ends;
  ends.connect();
  ends.b->forget_memory(3);
  for (std::uint64_t i = 1; i <= 3; ++i) ends.a->send_memory(2, i, 0, memory_with('x').get(), deadline(5s));
  ends.a->send_memory(2, 4, 0, memory_with('y').get(), deadline(5s));
  CHECK(content_of(ends.b->take_memory(4, 0, deadline(5s))) == 'y');
  CHECK(open_memories() == 0);
}

TEST_CASE("a process that can open no more files says so at once when memory arrives") {
  pair_of_links ends;
  ends.connect();
  const unique_fd memory = memory_with('x');
  // A thread that reads links has closed its listening socket before it reads a second time.
  for (const std::uint64_t number : {10U, 11U}) {
    ends.a->send_memory(2, number, 0, memory.get(), deadline(5s));
    static_cast<void>(ends.b->take_memory(number, 0, deadline(5s)));
    ends.b->send_memory(0, number, 2, memory.get(), deadline(5s));
    static_cast<void>(ends.a->take_memory(number, 2, deadline(5s)));
  }
  std::vector<unique_fd> fill;  // gaps below
  while (true) {
    unique_fd next(::dup(memory.get()));
    if (next.get() > memory.get()) break;
    fill.push_back(std::move(next));
  }
  std::exception_ptr failure;
  const auto start = std::chrono::steady_clock::now();
  {
    const open_file_limit none(static_cast<rlim_t>(memory.get()) + 1);
    ends.a->send_memory(2, 1, 0, memory.get(), deadline(5s));
    try {
      static_cast<void>(ends.b->take_memory(1, 0, deadline(20s)));
    } catch (...) {
      failure = std::current_exception();  // looked at later: checks of UndefinedBehaviorSanitizer open files
    }
  }
  CHECK(std::chrono::steady_clock::now() - start < 1s);
  REQUIRE(failure);
  const std::string text = text_of<system_error>([&] { std::rethrow_exception(failure); });
  CHECK(text.find("memory of rank 0 arrived, but this process can open no more files: raise the limit on open files") !=
        std::string::npos);
}

TEST_CASE("the thread that reads links leaves signals to the program's threads") {
  pair_of_links ends;
  ends.connect();
  int others = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == std::to_string(::getpid())) continue;
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto blocked = std::stoull(line.substr(7), nullptr, 16);
      ++others;
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
        CAPTURE(signal);
        CHECK((blocked >> (signal - 1) & 1) == 1);
      }
    }
  }
  CHECK(others >= 2);
}

TEST_CASE("more descriptors than a socket holds are sent all the same") {
  pair_of_links ends;
  ends.connect();
  const unique_fd memory = memory_with('x');
  for (std::uint64_t i = 0; i < 300; ++i) ends.a->send_memory(2, i, 0, memory.get(), deadline(5s));
  for (std::uint64_t i = 0; i < 300; ++i) static_cast<void>(ends.b->take_memory(i, 0, deadline(5s)));
}

TEST_CASE("an end without leaving is a loss of every rank there, reported once") {
  pair_of_links ends;
  ends.connect();
  ends.a.reset();
  const auto lost = ends.lost_by_b.wait_for(1);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].first == 0);
  CHECK(lost[0].second == "the process (pid " + std::to_string(::getpid()) +
                              ") of ranks 0 and 1 ended without destroying its communicator");
  CHECK(text_of<remote_error>([&] {
          static_cast<void>(ends.b->take_memory(1, 1, deadline(5s)));
        }).find("the process of rank 1 ended") != std::string::npos);
  const unique_fd memory = memory_with('x');
  CHECK(text_of<remote_error>([&] {
          ends.b->send_memory(1, 1, 2, memory.get(), deadline(5s));
        }).find("the process of ranks 0 and 1 is gone") != std::string::npos);
}

TEST_CASE("a link that has closed takes no time, also while a forked child keeps its descriptors open") {
  pair_of_links ends;
  const std::vector<link_peer> peers = ends.peers();
  const pid_t other = ::fork();
  if (other == 0) {
    ends.b.reset();
    ends.a->connect(peers, 0, 5s);
    for (;;) ::pause();
  }
  ends.a.reset();
  ends.b->connect(peers, 1, 5s);
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ::kill(other, SIGKILL);
  CHECK(ends.lost_by_b.wait_for(1).size() == 1);
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto before = used();
  std::this_thread::sleep_for(200ms);
  CHECK(used() - before < 50ms);
  ::kill(child, SIGKILL);
  for (const pid_t each : {other, child}) ::waitpid(each, nullptr, 0);
}

TEST_CASE("a rank that has left is not missed, the others of its process are") {
  pair_of_links ends;
  ends.connect();
  ends.a->leave(0, -1);
  ends.a.reset();
  const auto lost = ends.lost_by_b.wait_for(1);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].first == 1);
  ends.b.reset();

  pair_of_links peaceful;
  peaceful.connect();
  peaceful.a->leave(0, -1);
  peaceful.a->leave(1, -1);
  peaceful.a.reset();
  std::this_thread::sleep_for(50ms);
  CHECK(peaceful.lost_by_b.wait_for(0).empty());
}

TEST_CASE("leaving because of a rank is a loss of that rank, unless its end will be seen here") {
  losses lost_by_a;
  losses lost_by_b;
  losses lost_by_c;
  auto a = std::make_unique<peer_links>(lost_by_a.handler());
  auto b = std::make_unique<peer_links>(lost_by_b.handler());
  auto c = std::make_unique<peer_links>(lost_by_c.handler());
  const std::vector<link_peer> peers = {{a->address(), {0}}, {b->address(), {1}}, {c->address(), {2}}};
  auto first = std::async(std::launch::async, [&] { a->connect(peers, 0, 5s); });
  auto second = std::async(std::launch::async, [&] { c->connect(peers, 2, 5s); });
  b->connect(peers, 1, 5s);
  first.get();
  second.get();

  a->leave(0, 2, "rank 0 left because rank 2 was lost");  // rank 2 has a link of its own
  a->leave(0, 7, "rank 0 left because rank 7 was lost");  // rank 7 is on another host
  REQUIRE(lost_by_b.wait_for(1).size() == 1);
  CHECK(lost_by_b.wait_for(1)[0] == std::pair<int, std::string>(7, "rank 0 left because rank 7 was lost"));
  c.reset();
  REQUIRE(lost_by_b.wait_for(2).size() == 2);
  CHECK(lost_by_b.wait_for(2)[1].first == 2);
  CHECK(lost_by_b.wait_for(2)[1].second.find("ended without destroying its communicator") != std::string::npos);
}

TEST_CASE("a connection that knows everything but the token is not let in") {
  pair_of_links ends;
  struct {
    std::uint32_t kind = 0x64636c31;  // of a greeting
    std::int32_t rank = 0;
    std::int32_t culprit = -1;
    std::uint32_t place = 1;
    std::uint64_t number = 0;
    std::array<std::uint8_t, 16> token{};
    std::array<char, 456> text{};
  } greeting;
  greeting.token = ends.a->address().token;
  greeting.token[15] ^= 1;
  const unique_fd pending_connection = knock(ends.a->address());
  REQUIRE(::send(pending_connection.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting);
  ends.connect();
  char byte = 0;
  CHECK(::recv(pending_connection.get(), &byte, 1, 0) == 0);  // closed by the other side
  ends.b->send_memory(0, 1, 2, memory_with('z').get(), deadline(5s));
  CHECK(content_of(ends.a->take_memory(1, 2, deadline(5s))) == 'z');
}

TEST_CASE("connections that are silent, wrong, short, long or gone disturb nobody") {
  pair_of_links ends;
  std::vector<unique_fd> others;
  for (int i = 0; i < 5; ++i) others.push_back(knock(ends.a->address()));
  const std::vector<char> wrong(496, 'w');  // as long as a greeting
  const std::vector<char> lengthy(4096, 'l');
  REQUIRE(::send(others[1].get(), wrong.data(), wrong.size(), MSG_NOSIGNAL) > 0);
  REQUIRE(::send(others[2].get(), wrong.data(), 1, MSG_NOSIGNAL) > 0);
  REQUIRE(::send(others[3].get(), lengthy.data(), lengthy.size(), MSG_NOSIGNAL) > 0);
  others[4].reset();
  ends.connect();
  ends.b->send_memory(0, 1, 2, memory_with('z').get(), deadline(5s));
  CHECK(content_of(ends.a->take_memory(1, 2, deadline(5s))) == 'z');
  CHECK(ends.lost_by_a.wait_for(0).empty());
  CHECK(ends.lost_by_b.wait_for(0).empty());
}

TEST_CASE("a hundred silent connections do not keep the right one out") {
  pair_of_links ends;
  std::vector<unique_fd> others;
  auto flood = std::async(std::launch::async, [&] {
    for (int i = 0; i < 100; ++i) others.push_back(knock(ends.a->address()));
  });
  flood.get();
  ends.connect();
  CHECK(ends.lost_by_a.wait_for(0).empty());
}

TEST_CASE("a process that never connects is named when the limit passes") {
  losses lost;
  peer_links a(lost.handler());
  peer_links b(lost.handler());
  const std::vector<link_peer> peers = {{a.address(), {0}}, {b.address(), {1, 2}}};
  CHECK(text_of<timeout_error>([&] {
          a.connect(peers, 0, 50ms);
        }).find("for the process of ranks 1 and 2 to connect") != std::string::npos);
}

TEST_CASE("a process that ends before it connects is named at once") {
  pair_of_links ends;
  const std::vector<link_peer> peers = ends.peers();
  ends.b.reset();
  const auto begun = std::chrono::steady_clock::now();
  CHECK(text_of<remote_error>([&] { ends.a->connect(peers, 0, 30s); }) ==
        "links between processes: the process of rank 2 ended before it connected; look for that process's own error");
  CHECK(std::chrono::steady_clock::now() - begun < 5s);
}

TEST_CASE("links leave no descriptor or thread behind") {
  const auto before = devcomm_test::count_holdings();
  for (int i = 0; i < 20; ++i) {
    pair_of_links ends;
    ends.connect();
    ends.a->send_memory(2, 1, 0, memory_with('x').get(), deadline(5s));  // never taken
  }
  const auto after = devcomm_test::count_holdings();
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.threads == before.threads);
}
