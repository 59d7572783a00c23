#include "runtime/fault.hpp"

#include "base/sanitizer.hpp"
#include "base/symbol.hpp"
#include "engine/failure.hpp"
#include "engine/grid.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/memory_names.hpp"
#include "gpu/multicast.hpp"
#include "runtime/simulation.hpp"

#include <ucontext.h>

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

/// Not safe in a signal's handler in general; the fault comes from a kernel's own code, which holds no locks.
void explain(int signal, siginfo_t* about, void* context) {
  // The access is made again when this returns, and then ends the program.
  sigaction(signal, signal == SIGBUS ? &previous_bus : &previous_segv, nullptr);
  if (this_fiber == nullptr) return;
  std::string where = describe_multicast(about->si_addr);
  if (!where.empty()) where += ", which only multimem accesses may use (multimem::ptr)";
  if (where.empty()) where = describe_far_from_window(about->si_addr);
  if (where.empty()) where = describe_allocation(about->si_addr);
  if (where.empty()) where = "memory that is none of a device's";
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
