/// devcomm-perf: times of collective operations, checked, beside those of peers. `devcomm-perf --help` says how.
#include "perf/algorithm.hpp"
#include "perf/limits.hpp"
#include "perf/options.hpp"
#include "perf/session.hpp"

#include <devcomm/host/run_ranks.hpp>

#include <cstdio>
#include <iostream>

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const std::string& argument : arguments) {
    if (argument != "--help" && argument != "-h") continue;
    std::vector<perf::help_line> operations;
    for (const auto& known : perf::operations()) operations.push_back({known->name(), known->about()});
    std::cout << perf::help(operations);
    return 0;
  }
  try {
    const perf::options settings = perf::parse_options(arguments);
    if (settings.ranks != 0 && devcomm::host::launched_by_environment())
      throw perf::usage_error("-n is for one process that holds all ranks; the launcher says how many there are");
    devcomm::host::run_options run;
    run.ranks = settings.ranks;
    bool correct = true;
    devcomm::host::run_ranks(run, [&](devcomm::host::communicator& comm) {
      if (settings.operation == "limits") return perf::measure_limits(comm);
      const bool mine = perf::session(comm, settings).run();
      if (comm.rank() == 0) correct = mine;
    });
    return correct ? 0 : 1;
  } catch (const perf::usage_error& error) {
    std::fprintf(stderr, "devcomm-perf: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "devcomm-perf: %s\n", error.what());
    return 1;
  }
}
