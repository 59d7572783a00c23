#include "rank_harness.hpp"

#include <devcomm/host/error.hpp>

#include "../../support/live_threads.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace devcomm_test {
namespace host = devcomm::host;

namespace {

std::string outcome_of(const rank_body& body, std::shared_ptr<host::bootstrap> ranks) {
  try {
    body(std::move(ranks));
    return "ok";
  } catch (const host::invalid_argument& e) {
    return std::string("invalid_argument: ") + e.what();
  } catch (const host::not_supported& e) {
    return std::string("not_supported: ") + e.what();
  } catch (const host::timeout_error& e) {
    return std::string("timeout_error: ") + e.what();
  } catch (const host::remote_error& e) {
    return "remote_error(" + std::to_string(e.rank()) + "): " + e.what();
  } catch (const host::system_error& e) {
    return std::string("system_error: ") + e.what();
  } catch (const host::kernel_error& e) {
    return std::string("kernel_error: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("error: ") + e.what();
  }
}

outcomes run_threads(std::vector<std::shared_ptr<host::bootstrap>> bootstraps, const rank_body& body) {
  outcomes ends(bootstraps.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < bootstraps.size(); ++i) {
    threads.emplace_back(
        [&, i, own = std::move(bootstraps[i])]() mutable { ends[i] = outcome_of(body, std::move(own)); });
  }
  for (std::thread& t : threads) t.join();
  return ends;
}

/// Ranks `first` to `first + inside` of the job, in this process.
outcomes run_inside(const host::unique_id& id, int first, int inside, int ranks, const rank_body& body) {
  outcomes ends(static_cast<std::size_t>(inside));
  std::vector<std::thread> threads;
  const auto one = [&](int i) {
    ends[static_cast<std::size_t>(i)] =
        outcome_of([&](std::shared_ptr<host::bootstrap>) { body(host::tcp_bootstrap(id, first + i, ranks)); }, nullptr);
  };
  if (inside == 1) {
    one(0);
    return ends;
  }
  for (int i = 0; i < inside; ++i) threads.emplace_back(one, i);
  for (std::thread& t : threads) t.join();
  return ends;
}

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + at, text.size() - at);
    if (wrote <= 0) return;
    at += static_cast<std::size_t>(wrote);
  }
}

std::string read_until(int fd, std::chrono::steady_clock::time_point end, bool& late) {
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd one{fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&one, 1, static_cast<int>(left.count())) == 0) {
      late = true;
      return text;
    }
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

outcomes on_threads(int ranks, const rank_body& body) { return run_threads(host::thread_bootstraps(ranks), body); }

namespace {

struct child {
  pid_t process;
  int pipe;
};

/// A process that runs `body` and sends home its outcomes.
child start(const std::function<outcomes()>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  const pid_t process = ::fork();
  if (process == 0) {
    ::close(ends[0]);
    std::string text;
    for (const std::string& each : body()) text += each + '\0';
    write_all(ends[1], text);
    ::_exit(0);
  }
  ::close(ends[1]);
  return {process, ends[0]};
}

/// Adds the outcomes of the `inside` ranks of the process, which is killed when it is not done by `end`.
void finish(const child& c, std::chrono::steady_clock::time_point end, std::size_t inside, outcomes& all) {
  bool late = false;
  const std::string text = read_until(c.pipe, end, late);
  if (late) ::kill(c.process, SIGKILL);
  ::close(c.pipe);
  int status = 0;
  ::waitpid(c.process, &status, 0);
  const std::size_t before = all.size();
  for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) all.emplace_back(text.c_str() + at);
  const std::string end_text = late                  ? "took longer than the limit"
                               : WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                     : "exit " + std::to_string(WEXITSTATUS(status));
  all.resize(before + inside, end_text);
}

}  // namespace

outcomes on_processes(int ranks, const rank_body& body, int inside, int limit_seconds) {
  const host::unique_id id = host::unique_id::create();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(limit_seconds);
  std::vector<child> children;
  for (int first = 0; first < ranks; first += inside) {
    children.push_back(start([&] { return run_inside(id, first, inside, ranks, body); }));
  }
  outcomes all;
  for (const child& c : children) finish(c, end, static_cast<std::size_t>(inside), all);
  return all;
}

process_job::process_job(int ranks, const job_body& body, int limit_seconds)
    : end_(std::chrono::steady_clock::now() + std::chrono::seconds(limit_seconds)) {
  const host::unique_id id = host::unique_id::create();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [process, pipe] =
        start([&] { return outcomes{outcome_of([&](std::shared_ptr<host::bootstrap>) { body(id, rank); }, nullptr)}; });
    children_.push_back({process, pipe});
  }
}

outcomes process_job::finish() {
  outcomes all;
  for (const auto& [process, pipe] : children_) devcomm_test::finish({process, pipe}, end_, 1, all);
  return all;
}

std::string altered_bootstrap::altered(std::span<const std::byte> said) const {
  std::string text(reinterpret_cast<const char*>(said.data()), said.size());
  if (forged_.empty()) return text;
  for (std::size_t at = text.find(forged_); at != std::string::npos; at = text.find(forged_, at + 1)) ++text[at];
  return text;
}

void altered_bootstrap::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                   std::chrono::milliseconds limit) {
  const std::string said = altered(mine);
  received_ += all.size();
  ranks_->all_gather(std::as_bytes(std::span(said)), all, limit);
}

host::bootstrap::group_parts altered_bootstrap::exchange(std::span<const std::byte> note, std::span<std::byte> notes,
                                                         const group_name& group, std::span<const std::byte> mine,
                                                         std::chrono::milliseconds limit) {
  const std::string name = altered(group);
  group_name of{};
  std::memcpy(of.data(), name.data(), of.size());
  const std::string said = altered(note);
  const std::string part = altered(mine);
  group_parts found =
      ranks_->exchange(std::as_bytes(std::span(said)), notes, of, std::as_bytes(std::span(part)), limit);
  received_ += notes.size() + found.parts.size();
  return found;
}

outcomes all_ok(int ranks) { return outcomes(static_cast<std::size_t>(ranks), "ok"); }

holdings count_holdings() {
  holdings now{};
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++now.descriptors;
  }
  now.threads = live_threads();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // Reservations are private and inaccessible, slots are shared; stacks and the heap are neither.
    if (line.find("memfd:devcomm") != std::string::npos) ++now.mappings;
  }
  return now;
}

}  // namespace devcomm_test
