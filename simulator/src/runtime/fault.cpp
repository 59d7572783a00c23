#include "runtime/fault.hpp"

#include "base/sanitizer.hpp"
#include "base/symbol.hpp"
#include "engine/engine.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/memory_names.hpp"
#include "gpu/multicast.hpp"
#include "runtime/simulation.hpp"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>

namespace devcomm::simulator::detail {
namespace {

struct sigaction previous_segv;
struct sigaction previous_bus;

uint64_t code_of(const void* context) {
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uint64_t>(registers.gregs[REG_RIP]);
#else
  return registers.pc;
#endif
}

std::string place_in_code(uint64_t code) {
  std::string text;
  for (const source_line& line : lines_of(code)) {
    if (line.location.find(":?") != std::string::npos) continue;  // compiled without lines
    text += "\n      at " + line.location + (line.function.empty() ? "" : " in " + line.function);
  }
  return text;
}

/// Puts memory at an address that has none, so that the kernel goes on and races behind the access are found, too.
bool give_memory(uintptr_t address, bool is_reserved) {
  constexpr uintptr_t first = 1 << 20;  // below are null pointers and what they point to
  constexpr uint64_t most = 16;
  grid& g = this_block->launch;
  if (!sanitizer::exact() || g.simulation.explored_by != nullptr || address < first || g.invalid_pages == most)
    return false;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const place = reinterpret_cast<void*>(address / page * page);
  const int how = MAP_PRIVATE | MAP_ANONYMOUS | (is_reserved ? MAP_FIXED : MAP_FIXED_NOREPLACE);
  if (mmap(place, page, PROT_READ | PROT_WRITE, how, -1, 0) != place) return false;
  ++g.invalid_pages;
  return true;
}

/// Not safe in a signal's handler in general; the fault comes from a kernel's own code, which holds no locks.
void explain(int signal, siginfo_t* about, void* context) {
  std::string where;
  bool is_nobodys = false, is_between_windows = false;
  if (this_fiber != nullptr) {
    where = describe_multicast(about->si_addr);
    if (!where.empty()) where += ", which only multimem accesses may use (multimem::ptr)";
    const std::string allocation = describe_allocation(about->si_addr);
    is_nobodys = where.empty() && allocation.empty();
    if (where.empty()) where = describe_far_from_window(about->si_addr);
    is_between_windows = is_nobodys && !where.empty();
    if (where.empty()) where = allocation;
    if (where.empty()) where = "memory that is none of a device's";
  }
  // The access is made again when this returns, and then ends the program, unless there is memory now.
  if (!is_nobodys || !give_memory(reinterpret_cast<uintptr_t>(about->si_addr), is_between_windows))
    sigaction(signal, signal == SIGBUS ? &previous_bus : &previous_segv, nullptr);
  if (this_fiber == nullptr) return;
  std::fprintf(stderr, "devcomm simulator: invalid access to %p, %s, by %s, %s (%s)%s\n", about->si_addr, where.c_str(),
               describe_thread(*this_fiber).c_str(), describe_kernel(this_block->launch).c_str(),
               how_to_repeat().c_str(), place_in_code(code_of(context)).c_str());
  std::fflush(nullptr);
}

}  // namespace

void explain_faults() {
  if (sanitizer::address() || sanitizer::thread()) return;  // they do; see memory_label.cpp
  struct sigaction handler {};
  handler.sa_sigaction = &explain;
  handler.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &handler, &previous_segv);
  sigaction(SIGBUS, &handler, &previous_bus);
}

}  // namespace devcomm::simulator::detail
