// A temporary owner ends with the line: what a kernel is given must come from one that lives on.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/communicator.hpp>

void start(devcomm::host::communicator& comm) {
  const auto owner = comm.create_device_comm(comm.requirements());
#if defined(CORRECTED)
  const auto argument = owner.get();
#else
  const auto argument = comm.create_device_comm(comm.requirements()).get();
#endif
  static_cast<void>(argument);
}
