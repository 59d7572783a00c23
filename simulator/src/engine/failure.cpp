#include "engine/failure.hpp"

#include "base/symbol.hpp"
#include "engine/engine.hpp"
#include "engine/grid.hpp"

#include <devcomm/assert.hpp>
#include <devcomm/simulator/simulator.hpp>

#include <util/number_list.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace devcomm::simulator {

void fail_assertion(const char* condition, const char* message, const char* file, int line) {
  detail::fail_misuse((std::string(message) + " [" + condition + "] at " + file + ":" + std::to_string(line)).c_str());
}

void fail_assertion(const char* condition, const char* what, long long value, long long limit, const char* message,
                    const char* file, int line) {
  detail::fail_misuse((std::string(message) + " (" + what + " " + std::to_string(value) + " of " +
                       std::to_string(limit) + ") [" + condition + "] at " + file + ":" + std::to_string(line))
                          .c_str());
}

namespace detail {
namespace {

/// Of the latest misuse of a block.
__thread call_stack misused_at;

}  // namespace

int rank_of(const block& b) {
  for (const fiber& f : b.fibers) {
    if (f.label != nullptr) return f.label->rank;
  }
  if (b.world_rank >= 0) return b.world_rank;
  const auto named = b.simulation.ranks_of_device.find(b.device);
  const bool one = named != b.simulation.ranks_of_device.end() && named->second.size() == 1;
  return one ? *named->second.begin() : -1;
}

std::string describe_block(const block& b) {
  const int rank = rank_of(b);
  const std::string who = rank >= 0 ? "rank " + std::to_string(rank) : "device " + std::to_string(b.device);
  return who + ", block " + std::to_string(b.rank);
}

std::string describe_thread(const fiber& f) { return describe_block(*f.home) + ", thread " + std::to_string(f.rank); }

std::string describe_kernel(const grid& g) {
  return g.call->function() == nullptr ? std::string("a kernel") : "kernel " + function_at(g.call->function());
}

void fail_misuse(const char* message) {
  misused_at.take();
  throw misuse(message);
}

std::string describe_misuser() {
  const std::string caller = misused_at.outside();
  misused_at.depth = 0;
  return caller.empty() ? caller : "\n      called at " + caller;
}

void engine::record_failure(const std::string& text, bool consequence) {
  const std::string line = text + " (" + how_to_repeat(config) + ")";
  failure_text_ = consequence && !failure_text_.empty() ? failure_text_ + "\nthen " + line : line;
  std::fprintf(stderr, "devcomm simulator: %s\n", line.c_str());
}

void engine::record_misuse(int rank, const std::string& text, const std::string& kind) {
  if (rank >= 0 && kind == misuse_) {
    misused_alike_.insert(rank);
    failure_text_ = text + " (" + how_to_repeat(config) + ")";  // of this rank's fault
    return;
  }
  misuse_ = kind;
  record_failure(text, false);
}

void engine::tell_of_others() {
  if (misuse_.empty()) return;
  if (!misused_alike_.empty()) {
    std::fprintf(stderr, "devcomm simulator: the same on %s\n",
                 host::detail::number_list("rank", misused_alike_).c_str());
  }
  misuse_.clear();
  misused_alike_.clear();
}

void die_of_overflow(const fiber& f) {
  std::fprintf(stderr,
               "devcomm simulator: %s used more than its stack of %zu bytes (%s); set DEVCOMM_SIM_STACK to more\n",
               describe_thread(f).c_str(), f.home->stack_bytes(), how_to_repeat(f.home->simulation.config).c_str());
  std::fflush(nullptr);  // a recorded schedule, too
  std::abort();
}

void die_of_watchdog(const engine& e, const block* running, uint64_t nanoseconds) {
  const std::string who = running != nullptr ? describe_block(*running) : std::string("the runtime");
  std::fprintf(stderr,
               "devcomm simulator: %s has run for %.1f s without reaching a point where another thread could go on "
               "(%s). A loop that polls plain memory never does: poll with devcomm's waits, atomics, "
               "cuda::atomic_ref or volatile. For long computations set DEVCOMM_SIM_WATCHDOG_MS\n",
               who.c_str(), static_cast<double>(nanoseconds) * 1e-9, how_to_repeat(e.config).c_str());
  std::fflush(nullptr);  // a recorded schedule, too
  std::abort();
}

}  // namespace detail
}  // namespace devcomm::simulator
