/// \file operators.hpp
/// The switch of the mutants that operators.py plants: included in every source by the compiler's `-include`.
#pragma once

#include "devcomm_mutant.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>

namespace devcomm_mutants {

inline unsigned active() {
  const char* const text = std::getenv("PLANTED_MUTANT");
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 0;
}

/// A byte for each mutant, in a file that child processes share; null without PLANTED_COVERAGE.
inline unsigned char* coverage() {
  const char* const path = std::getenv("PLANTED_COVERAGE");
  if (path == nullptr) return nullptr;
  const int file = ::open(path, O_RDWR);
  struct stat facts {};
  if (file < 0 || ::fstat(file, &facts) != 0) return nullptr;
  void* const mapped = ::mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<unsigned char*>(mapped);
}

inline const unsigned which = active();
inline unsigned char* const reached = coverage();

}  // namespace devcomm_mutants

__attribute__((noinline, no_sanitize_thread, no_sanitize_address)) inline bool devcomm_mutant_runs(
    unsigned number) noexcept {
  if (devcomm_mutants::reached != nullptr) devcomm_mutants::reached[number] = 1;
  return number == devcomm_mutants::which;
}
