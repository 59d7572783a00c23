/// \file code_module.hpp
/// Kernels and what they keep beside memory: those of the program, and those of each library that it has loaded.
///
/// `__shared__` variables are thread-local, and thread-local variables of a library lie apart from the program's. So a
/// block's shared memory is that of the module that has its kernel.
#pragma once

#include <devcomm/simulator/detail/kernel_module.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

/// A `__shared__` variable that is local to a function.
struct shared_variable {
  std::ptrdiff_t from_anchor;  ///< distance from the module's anchor, equal in every thread
  size_t bytes;
  std::string name;  ///< mangled
};

struct code_module {
  kernel_module parts;
  std::string file;
  std::vector<shared_variable> shared_variables;

  // Its `__device__` and `__constant__` variables.
  std::vector<char> initial;
  std::map<int, std::vector<char>> put_away;  ///< of GPUs whose variables are not in place
  int in_place = -1;                          ///< -1: nobody has used them yet

  [[nodiscard]] bool has_global(const void* address) const;
};

/// All modules, the program's first.
[[nodiscard]] std::vector<code_module*>& code_modules();
/// The one that has the code at `function`.
[[nodiscard]] code_module& module_of(const void* function);

/// The module of the kernel that the calling OS thread runs; null on other threads.
extern __thread code_module* this_module;

}  // namespace devcomm::simulator::detail
