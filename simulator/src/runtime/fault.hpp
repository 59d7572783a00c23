/// \file fault.hpp
/// What is said of a kernel's access that faults.
#pragma once

namespace devcomm::simulator::detail {

/// From now on, a fault in a kernel names the thread, the kernel and the memory before it ends the program.
void explain_faults();

}  // namespace devcomm::simulator::detail
