/// devcomm-shrink: finds a failing schedule of a simulated program, and takes away all switches between threads
/// that the failure does not need, by delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating
/// Failure-Inducing Input", 2002).
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;
using lines = std::vector<std::string>;

constexpr const char* usage =
    "usage: devcomm-shrink [--output FILE] [--seeds N] [--runs N] -- PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs PROGRAM, whose kernels are simulated, under the settings of the environment until it fails: with\n"
    "DEVCOMM_SIM_SEED and up to N - 1 seeds after it (100). Then repeats the failure with fewer and fewer switches\n"
    "between threads, in at most N runs (1000), and prints those that are left. A run fails as the first did when\n"
    "it ends with the same status. The schedule is kept in FILE (devcomm-schedule.txt), for DEVCOMM_SIM_REPLAY.\n";

struct options {
  std::string output = "devcomm-schedule.txt";
  unsigned seeds = 100;
  unsigned runs = 1000;
  std::vector<char*> command;  ///< ends with null
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "devcomm-shrink: %s\n", what.c_str());
  std::exit(2);
}

unsigned number(const char* name, const char* text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value == 0 || value > 1000000) {
    fail(std::string(name) + " is '" + text + "'; give a number from 1 to 1000000");
  }
  return static_cast<unsigned>(value);
}

options read_options(int argc, char** argv) {
  options o;
  int i = 1;
  for (; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const std::string name = argv[i];
    if (name == "-h" || name == "--help") {
      std::fputs(usage, stdout);
      std::exit(0);
    }
    if (i + 1 == argc || (name != "--output" && name != "--seeds" && name != "--runs")) {
      std::fputs(usage, stderr);
      std::exit(2);
    }
    const char* const value = argv[++i];
    if (name == "--output") o.output = value;
    if (name == "--seeds") o.seeds = number("--seeds", value);
    if (name == "--runs") o.runs = number("--runs", value);
  }
  for (++i; i < argc; ++i) o.command.push_back(argv[i]);
  if (o.command.empty()) {
    std::fputs(usage, stderr);
    std::exit(2);
  }
  o.command.push_back(nullptr);
  return o;
}

/// A folder of its own, with all in it gone at the end.
class scratch_folder {
 public:
  scratch_folder() {
    std::string name = (fs::temp_directory_path() / "devcomm-shrink-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail("cannot make a folder in " + fs::temp_directory_path().string());
    path_ = name;
  }
  ~scratch_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

lines read_lines(const std::string& name) {
  std::ifstream in(name);
  lines all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

void write_lines(const std::string& name, const lines& all) {
  std::ofstream out(name);
  for (const std::string& line : all) out << line << '\n';
  if (!out.flush()) fail("cannot write " + name);
}

/// Runs of the program.
class program {
 public:
  program(const options& o, const scratch_folder& folder) : command_(o.command), folder_(folder) {}

  using setting = std::pair<const char*, std::string>;
  /// Its status (128 and more: a signal); none when it took too long.
  std::optional<int> run(const std::vector<setting>& settings) {
    ++runs_;
    const auto start = clock::now();
    const pid_t child = fork();
    if (child < 0) fail("cannot start a process");
    if (child == 0) {
      for (const auto& [name, value] : settings) setenv(name, value.c_str(), 1);
      const int out = open(folder_.file("output").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
      execvp(command_[0], command_.data());
      _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (limit_ != clock::duration::zero() && clock::now() - start > limit_) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return std::nullopt;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    took_ = clock::now() - start;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// From now on a run may take some times as long as the latest.
  void limit_time() { limit_ = std::max<clock::duration>(4 * took_, std::chrono::seconds(2)); }
  [[nodiscard]] unsigned runs() const { return runs_; }
  [[nodiscard]] std::string output() const {
    std::ifstream in(folder_.file("output"));
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

 private:
  std::vector<char*> command_;
  const scratch_folder& folder_;
  clock::duration limit_{};
  clock::duration took_{};
  unsigned runs_ = 0;
};

/// Whether a line of a schedule is a switch to another thread.
bool switches(const std::string& line) {
  std::istringstream in(line);
  std::string from, point, to;
  in >> from >> point >> to;
  return from != to;
}

/// The fewest of `all` with which `fails` still holds, as far as taking away single ones and runs of them shows.
template <class Fails>
lines shrink(lines all, Fails fails) {
  if (fails(lines())) return {};
  size_t parts = 2;
  while (!all.empty()) {
    const size_t size = (all.size() + parts - 1) / parts;
    bool smaller = false;
    for (size_t begin = 0; begin < all.size() && !smaller; begin += size) {
      lines rest(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(begin));
      rest.insert(rest.end(), all.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, all.size())), all.end());
      if (!fails(rest)) continue;
      all = std::move(rest);
      smaller = true;
    }
    if (smaller) {
      parts = std::max<size_t>(parts - 1, 2);
    } else if (size == 1) {
      break;
    } else {
      parts = std::min(parts * 2, all.size());
    }
  }
  return all;
}

// --- source locations ---

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// Functions and lines in turn, innermost first.
lines look_up(const std::string& module, const std::string& offset) {
  lines found;
  const std::string command = "addr2line -C -i -f -e " + quoted(module) + " " + offset + " 2>/dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return found;
  std::array<char, 8192> text{};
  while (std::fgets(text.data(), static_cast<int>(text.size()), pipe) != nullptr) {
    text[std::strcspn(text.data(), "\n")] = '\0';
    found.emplace_back(text.data());
  }
  pclose(pipe);
  return found;
}

/// Whether the location is in the kernel's own code, and not in the simulator or a library around it.
bool of_interest(const std::string& location) {
  constexpr std::array hidden = {"/simulator/include/",
                                 "/devcomm/simulator/",
                                 "/simulator/src/",
                                 "/simulator/shim/",
                                 "/devcomm/detail/",
                                 "/cuda/",
                                 "/c++/",
                                 "??",
                                 ":?"};
  return std::none_of(hidden.begin(), hidden.end(),
                      [&](const char* part) { return location.find(part) != std::string::npos; });
}

/// Whether a function is the simulator's or a library's around a kernel.
bool is_around(const std::string& function) {
  constexpr std::array around = {"devcomm::simulator::detail", "backtrace", "??"};
  return function.rfind("std::", 0) == 0 || function.rfind("devcomm::detail::", 0) == 0 ||
         std::any_of(around.begin(), around.end(),
                     [&](const char* part) { return function.find(part) != std::string::npos; });
}

/// "kernel.cu:12 in f(int)", from frames "module+0x12", innermost first; empty without any.
std::string location_of(const std::vector<std::string>& frames) {
  std::string function_only;
  for (const std::string& frame : frames) {
    const size_t plus = frame.rfind('+');
    if (plus == std::string::npos) continue;
    const lines found = look_up(frame.substr(0, plus), frame.substr(plus + 1));
    for (size_t i = 0; i + 1 < found.size(); i += 2) {
      const std::string location = found[i + 1].substr(0, found[i + 1].find(" (discriminator"));
      // Debug information of files that were compiled together may place a function in the wrong one.
      const bool is_simulator = found[i].rfind("devcomm::simulator::", 0) == 0;
      if (!is_simulator && of_interest(location)) return location + " in " + found[i];
      if (!function_only.empty() || is_around(found[i])) continue;
      const bool known = location.find('?') == std::string::npos;
      function_only = found[i] + (known ? ", through " + location : " (compile with -g for the line)");
    }
  }
  return function_only;
}

void print_report(const lines& report) {
  unsigned number = 0;
  bool stopped = false;
  for (const std::string& line : report) {
    std::istringstream in(line);
    std::string what, who;
    std::getline(in, what, '\t');
    std::getline(in, who, '\t');
    std::vector<std::string> frames;
    for (std::string frame; std::getline(in, frame, '\t');) frames.push_back(frame);
    const std::string location = location_of(frames);
    if (what == "stops") {
      std::printf("%4u. %s stops at %s\n", ++number, who.c_str(),
                  location.empty() ? "an unknown location" : location.c_str());
      stopped = true;
    } else {
      if (stopped) {
        std::printf("      ");
      } else {
        std::printf("%4u. ", ++number);
      }
      std::printf("%s goes on from %s\n", who.c_str(),
                  !location.empty() ? location.c_str()
                  : frames.empty()  ? "its start"
                                    : "an unknown location");
      stopped = false;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const options o = read_options(argc, argv);
  const scratch_folder folder;
  program p(o, folder);
  const char* const given = std::getenv("DEVCOMM_SIM_SEED");
  const unsigned long long first = given == nullptr || *given == '\0' ? 1 : std::strtoull(given, nullptr, 0);

  std::string seed;
  int failure = 0;
  for (unsigned i = 0; i < o.seeds && failure == 0; ++i) {
    seed = std::to_string(first + i);
    failure = *p.run({{"DEVCOMM_SIM_SEED", seed}, {"DEVCOMM_SIM_RECORD", folder.file("recorded")}});
    if (failure == 127 || failure == 126) fail(std::string("cannot run ") + o.command[0]);
  }
  if (failure == 0) {
    fail("no failure under " + std::to_string(o.seeds) +
         " seeds; try another DEVCOMM_SIM_SCHEDULE, or DEVCOMM_SIM_STORE_DELAY");
  }
  std::fputs(p.output().c_str(), stdout);
  const lines recorded = read_lines(folder.file("recorded"));
  if (recorded.empty()) {
    fail("the program failed with status " + std::to_string(failure) +
         ", but none of its kernels ran in the simulator");
  }
  p.limit_time();

  const auto fails = [&](const lines& schedule) {
    if (p.runs() >= o.runs) return false;
    write_lines(folder.file("tried"), schedule);
    return p.run({{"DEVCOMM_SIM_SEED", seed}, {"DEVCOMM_SIM_REPLAY", folder.file("tried")}}) == failure;
  };
  lines needed;
  std::copy_if(recorded.begin(), recorded.end(), std::back_inserter(needed), &switches);
  const size_t switches_recorded = needed.size();
  std::printf("devcomm-shrink: seed %s fails with status %d; %zu switches\n", seed.c_str(), failure, switches_recorded);
  if (!fails(needed)) {
    needed = recorded;
    if (!fails(needed)) {
      fail("the recorded schedule does not fail again: does the program depend on time, or on the order of its hosts?");
    }
  }
  needed = shrink(std::move(needed), fails);

  write_lines(o.output, needed);
  const bool again = p.run({{"DEVCOMM_SIM_SEED", seed},
                            {"DEVCOMM_SIM_REPLAY", o.output},
                            {"DEVCOMM_SIM_REPLAY_REPORT", folder.file("report")}}) == failure;
  if (!again) fail("the smaller schedule does not fail every time; it is kept in " + o.output);
  std::printf("devcomm-shrink: %zu of them are enough, beside those of threads that have to wait (%u runs)\n",
              needed.size(), p.runs());
  print_report(read_lines(folder.file("report")));
  std::printf("devcomm-shrink: repeat it with DEVCOMM_SIM_SEED=%s DEVCOMM_SIM_REPLAY=%s\n", seed.c_str(),
              o.output.c_str());
  return 0;
}
