/// \file explore_main.cpp
/// The main function of a program that `devcomm-simulate --explore` runs: the user's own, whose object has it as
/// devcomm_user_main, is called in every interleaving of its kernels.
#include <devcomm/simulator/explore.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

extern "C" int devcomm_user_main(int argc, char** argv);

namespace {

/// What one execution writes to the standard output, which is shown of the last one only.
class last_output {
 public:
  last_output() : shown_(::dup(STDOUT_FILENO)), file_(std::tmpfile()) {
    if (file_ != nullptr) ::dup2(::fileno(file_), STDOUT_FILENO);
  }
  void restart() {
    std::fflush(stdout);
    if (file_ != nullptr && ::ftruncate(STDOUT_FILENO, 0) == 0) ::lseek(STDOUT_FILENO, 0, SEEK_SET);
  }
  void show() {
    std::fflush(stdout);
    ::dup2(shown_, STDOUT_FILENO);
    if (file_ == nullptr) return;
    std::rewind(file_);
    char text[4096];
    for (std::size_t got = 0; (got = std::fread(text, 1, sizeof text, file_)) != 0;) std::fwrite(text, 1, got, stdout);
  }

 private:
  int shown_;
  std::FILE* file_;
};

}  // namespace

int main(int argc, char** argv) {
  const char* const ranks = std::getenv("DEVCOMM_RANKS");
  devcomm::simulator::explore_options options;
  options.schedule_file = std::string("devcomm-schedule-ranks") + (ranks != nullptr ? ranks : "") + ".txt";
  last_output output;
  const auto result = devcomm::simulator::explore(options, [&] {
    output.restart();
    const int status = devcomm_user_main(argc, argv);
    if (status != 0) throw std::runtime_error("the program ended with status " + std::to_string(status));
  });
  output.show();
  std::printf("%llu executions%s\n%s\n", static_cast<unsigned long long>(result.executions),
              result.complete ? ", which are all" : "", result.failure.c_str());
  return result.complete || result.failure.empty() ? 0 : 1;
}
