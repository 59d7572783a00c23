/// \file scenario.hpp
/// Programs that are explored one after the other, a row of a table for each.
#pragma once

#include "exhaustive/bench.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace exhaustive {

struct scenario {
  const char* name;
  int ranks;
  const char* bound;
  bool check_launch;
  std::function<void(requirements&)> needs;
  std::function<void(const bench&)> body;
  /// Nothing in it depends on which rank is faster: all executions but one are redundant.
  bool is_confluent = false;
};

/// Explores those whose name has the first argument in it, or all; the second is the most executions of each. The
/// status of the program: whether there are any, all are complete and none fails.
inline int explore_all(const std::vector<scenario>& all, int argc, char** argv) {
  int failed = 0;
  int explored = 0;
  std::printf(
      "| protocol | ranks | bound | executions | of them redundant | steps | seconds | |\n|---|---|---|---|---|---|---|---|\n");
  for (const scenario& s : all) {
    if (argc > 1 && std::string(s.name).find(argv[1]) == std::string::npos) continue;
    ++explored;
    const auto start = std::chrono::steady_clock::now();
    const auto result = explore(s.ranks, {.executions = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000000},
                                s.check_launch, s.needs, s.body);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const bool depends_on_speed = s.is_confluent && result.complete && result.executions - result.redundant != 1;
    std::printf("| %s | %d | %s | %llu | %llu | %llu | %.1f | %s |\n", s.name, s.ranks, s.bound,
                static_cast<unsigned long long>(result.executions), static_cast<unsigned long long>(result.redundant),
                static_cast<unsigned long long>(result.longest), took.count(),
                depends_on_speed  ? "what is received depends on which rank is faster"
                : result.complete ? "complete"
                                  : result.failure.c_str());
    std::fflush(stdout);
    if (!result.complete || depends_on_speed) ++failed;
  }
  if (explored == 0) std::printf("No test cases matched '%s'\n", argc > 1 ? argv[1] : "");
  return failed == 0 && explored != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace exhaustive
