/// \file two_processes.hpp
/// The command line and `main` of programs that measure two processes of this host against each other.
#pragma once

#include "common/side_channel.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

namespace benchmark {

struct two_process_options {
  std::string provider = "tcp;ofi_rxm";
  int rounds = 2000;  ///< of a ping-pong; fewer for large messages
  std::size_t end;    ///< bytes of the largest message
};

/// `about` says what the program times, for `--help`.
inline two_process_options parse_two_process_options(int argc, char** argv, const char* program, const char* about,
                                                     std::size_t largest) {
  two_process_options result;
  result.end = largest;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--help") {
      std::printf(
          "%s [--provider NAME] [--rounds N] [--end BYTES]\n"
          "  times of %s; tcp;ofi_rxm unless given\n",
          program, about);
      std::exit(0);
    }
    if (i + 1 == argc) throw std::invalid_argument(std::string(name) + ": give a value, see --help");
    const char* const value = argv[++i];
    if (name == "--provider") {
      result.provider = value;
    } else if (name == "--rounds" && std::atoi(value) > 0) {
      result.rounds = std::atoi(value);
    } else if (name == "--end" && std::atoll(value) >= 8 && std::atoll(value) <= static_cast<long long>(largest)) {
      result.end = static_cast<std::size_t>(std::atoll(value));
    } else {
      throw std::invalid_argument(std::string(name) + " " + value + ": see --help");
    }
  }
  return result;
}

/// Calls `run(options, beside, is_first)` in both processes; the exit status.
template <class Run>
int measure_two_processes(int argc, char** argv, const char* program, const char* about, std::size_t largest,
                          const Run& run) {
  try {
    const two_process_options with = parse_two_process_options(argc, argv, program, about, largest);
    return run_two_processes([&](const side_channel& beside, bool first) { run(with, beside, first); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

}  // namespace benchmark
