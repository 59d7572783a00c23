/// \file kernel_module.hpp
/// How a library of simulated kernels that a program loads at run time names its parts to the simulator.
#pragma once

#include <cstddef>

namespace devcomm::simulator::detail {

/// The array of dynamic shared memory; written by the link step.
struct dynamic_shared {
  char* (*start)();  ///< of the calling OS thread
  std::size_t bytes;
};

struct kernel_module {
  const void* code;              ///< any function of the library
  char* (*anchor)();             ///< the calling OS thread's variable of the name `anchor_name`
  const char* anchor_name;       ///< as the symbol table has it
  const dynamic_shared* shared;  ///< null where there is none
  char* globals_begin;           ///< of the variables of each GPU
  char* globals_end;
};

/// Called once, before the first launch, for a library that stays loaded.
void add_kernel_module(const kernel_module& parts);

}  // namespace devcomm::simulator::detail
