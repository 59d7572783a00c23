/// Which mutant runs: PLANTED_MUTANT in the environment, none where it is 0 or not set. Compiled without the race
/// detector's hooks, and known to no schedule.
#include "devcomm_mutant.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

unsigned from_environment() {
  const char* const text = std::getenv("PLANTED_MUTANT");
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 0;
}

const unsigned active = from_environment();
std::atomic<bool> was_reached{false};

/// Says at the end of the program that the tests do not get there.
struct witness {
  ~witness() {
    if (active != 0 && !was_reached.load()) std::fprintf(stderr, "devcomm mutant: not reached\n");
  }
} const at_end;

}  // namespace

bool devcomm_mutant_runs(unsigned number) noexcept {
  if (number != active) return false;
  was_reached.store(true, std::memory_order_relaxed);
  return true;
}
