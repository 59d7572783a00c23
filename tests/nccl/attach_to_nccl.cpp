// Against NCCL's own header.
#include <nccl.h>

#include <devcomm/host/nccl_bootstrap.hpp>

std::shared_ptr<devcomm::host::bootstrap> attach(ncclComm_t comm) { return devcomm::host::nccl_bootstrap(comm); }
