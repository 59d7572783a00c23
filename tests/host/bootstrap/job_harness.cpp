#include "job_harness.hpp"

#include <devcomm/host/error.hpp>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace devcomm_test {
namespace host = devcomm::host;
namespace {

using clock = std::chrono::steady_clock;

std::chrono::milliseconds since(clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start);
}

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + at, text.size() - at);
    if (wrote <= 0) ::_exit(9);
    at += static_cast<std::size_t>(wrote);
  }
}

/// What the child wrote before it ended; false when it did not end in time.
bool read_all(int fd, clock::time_point end, std::string& text) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now()).count();
    pollfd one{fd, POLLIN, 0};
    if (left <= 0 || ::poll(&one, 1, static_cast<int>(left)) == 0) return false;
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

std::string pack(const outcome& o) {
  return o.kind + '\n' + std::to_string(o.culprit) + '\n' + std::to_string(o.took.count()) + '\n' + o.text;
}

outcome unpack(const std::string& text) {
  const std::size_t first = text.find('\n');
  const std::size_t second = text.find('\n', first + 1);
  const std::size_t third = text.find('\n', second + 1);
  return {text.substr(0, first), std::stoi(text.substr(first + 1)), text.substr(third + 1),
          std::chrono::milliseconds(std::stoi(text.substr(second + 1)))};
}

}  // namespace

outcome outcome_of(const std::function<void()>& body) {
  const auto start = clock::now();
  const auto ended = [&](const char* kind, const std::string& text, int culprit = -1) {
    return outcome{kind, culprit, text, since(start)};
  };
  try {
    body();
    return ended("ok", "");
  } catch (const host::invalid_argument& e) {
    return ended("invalid_argument", e.what());
  } catch (const host::not_supported& e) {
    return ended("not_supported", e.what());
  } catch (const host::timeout_error& e) {
    return ended("timeout_error", e.what());
  } catch (const host::remote_error& e) {
    return ended("remote_error", e.what(), e.rank());
  } catch (const host::system_error& e) {
    return ended("system_error", e.what());
  } catch (const host::error& e) {
    return ended("error", e.what());
  } catch (const std::exception& e) {
    return ended("other", e.what());
  }
}

std::vector<outcome> on_threads(int ranks, const rank_body& body) {
  std::vector<outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] { body(rank); }); });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

std::vector<outcome> on_processes(int ranks, const rank_body& body) {
  const auto end = clock::now() + 30s;
  struct child {
    pid_t pid;
    int pipe;
  };
  std::vector<child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid == 0) {
      ::close(ends[0]);
      for (const child& sibling : children) ::close(sibling.pipe);
      write_all(ends[1], pack(outcome_of([&] { body(rank); })));
      ::_exit(0);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<outcome> outcomes;
  for (const child& c : children) {
    std::string text;
    const bool in_time = read_all(c.pipe, end, text);
    if (!in_time) ::kill(c.pid, SIGKILL);
    ::close(c.pipe);
    int status = 0;
    ::waitpid(c.pid, &status, 0);
    if (!in_time) {
      outcomes.push_back({"late", -1, "took longer than 30 s", 30s});
    } else if (WIFSIGNALED(status)) {
      outcomes.push_back({"signal", -1, "signal " + std::to_string(WTERMSIG(status)), 0ms});
    } else if (WEXITSTATUS(status) != 0) {
      outcomes.push_back({"other", -1, "exit " + std::to_string(WEXITSTATUS(status)), 0ms});
    } else {
      outcomes.push_back(unpack(text));
    }
  }
  return outcomes;
}

std::string to_string(way w) {
  switch (w) {
    case way::threads: return "threads";
    case way::tcp_threads: return "TCP between threads";
    case way::tcp_processes: return "TCP between processes";
  }
  return "unknown";
}

std::vector<outcome> run_job(way w, int ranks, const job_body& body, std::chrono::milliseconds limit) {
  if (w == way::threads) {
    auto bootstraps = host::thread_bootstraps(ranks);
    return on_threads(ranks, [&](int rank) { body(std::move(bootstraps[static_cast<std::size_t>(rank)])); });
  }
  const host::unique_id id = host::unique_id::create();
  const auto join = [&](int rank) { body(host::tcp_bootstrap(id, rank, ranks, limit)); };
  return w == way::tcp_threads ? on_threads(ranks, join) : on_processes(ranks, join);
}

void gather_and_check(host::bootstrap& ranks, std::size_t bytes, unsigned seed, std::chrono::milliseconds limit) {
  const auto expected = [&](std::size_t rank, std::size_t place) {
    return static_cast<std::byte>((rank * 131 + place * 7 + place / 251 + seed * 17) & 0xff);
  };
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<std::byte> mine(bytes);
  for (std::size_t i = 0; i < bytes; ++i) mine[i] = expected(static_cast<std::size_t>(ranks.rank()), i);
  std::vector<std::byte> all(bytes * size, std::byte{0xee});
  ranks.all_gather(mine, all, limit);
  for (std::size_t rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (all[rank * bytes + i] == expected(rank, i)) continue;
      throw std::runtime_error("byte " + std::to_string(i) + " of rank " + std::to_string(rank) + " is wrong");
    }
  }
}

void barrier(host::bootstrap& ranks, std::chrono::milliseconds limit) { gather_and_check(ranks, 0, 0, limit); }

std::string first_failure(const std::vector<outcome>& outcomes) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].ok()) return "rank " + std::to_string(i) + ": " + outcomes[i].kind + ": " + outcomes[i].text;
  }
  return outcomes.empty() ? "no rank ran" : "";
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.path().empty() ? 0 : 1;
  return count;
}

}  // namespace devcomm_test
