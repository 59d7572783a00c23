/// \file devcomm_mutant.hpp
/// The switch of the mutants that mutation.py plants in copies of the device headers.
#pragma once

/// Whether mutant `number` is the one that PLANTED_MUTANT names.
bool devcomm_mutant_runs(unsigned number) noexcept;

[[gnu::always_inline]] inline constexpr bool devcomm_mutant(unsigned number) {
  return __builtin_is_constant_evaluated() ? false : devcomm_mutant_runs(number);
}
