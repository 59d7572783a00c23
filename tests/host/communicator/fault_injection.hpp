/// \file fault_injection.hpp
/// Faults at the n-th system call that the libraries make; linked with `--wrap`.
#pragma once

#include <string>

namespace devcomm_test {

/// What becomes of a chosen call and, for `no_descriptors`, of all later ones.
enum class fault {
  death,           ///< the process is killed before the call
  no_descriptors,  ///< calls that make a descriptor fail with EMFILE
};

/// From here on in this process, calls are counted; those of `no_descriptors` only where they make descriptors.
void arm(fault what, int at);
/// Ends it; whether the fault happened.
bool disarm();

}  // namespace devcomm_test
