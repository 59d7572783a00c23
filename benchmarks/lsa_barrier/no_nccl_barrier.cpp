#include "lsa_barrier/nccl_barrier.hpp"

#include <stdexcept>

namespace benchmark {

std::unique_ptr<nccl_barrier> make_nccl_barrier(devcomm::host::communicator&, int) {
  throw std::runtime_error("this build left NCCL out: its headers were not found");
}

}  // namespace benchmark
