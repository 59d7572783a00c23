/// \file environment.hpp
/// The environment variables of the simulator; read nowhere else.
///
/// Plain C, as the race detector asks for its own before the C++ runtime may be used. A value that makes no sense ends
/// the program: a simulation of something else than was asked for is useless.
#pragma once

#include <cstdint>

namespace devcomm::simulator::detail {

/// The value of a variable; null when it is unset or empty.
[[nodiscard]] const char* variable(const char* name);
/// A whole number from `least` to `most`, or `otherwise` when the variable is unset.
[[nodiscard]] uint64_t number_variable(const char* name, uint64_t otherwise, uint64_t least, uint64_t most);
/// Ends the program: "NAME is 'TEXT'; give EXPECTED".
[[noreturn]] void reject_variable(const char* name, const char* text, const char* expected);

}  // namespace devcomm::simulator::detail
