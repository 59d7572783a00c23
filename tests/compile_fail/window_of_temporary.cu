// A temporary owner ends with the line: what a kernel is given must come from one that lives on.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/communicator.hpp>

void start(devcomm::host::communicator& comm) {
  const auto owner = comm.allocate(4096);
#if defined(CORRECTED)
  const auto argument = owner.window();
#else
  const auto argument = comm.allocate(4096).window();
#endif
  static_cast<void>(argument);
}
