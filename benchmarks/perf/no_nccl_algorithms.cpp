#include "perf/nccl_algorithms.hpp"

#include <stdexcept>

namespace perf {

algorithms make_nccl(nccl_call, const rank_context&) {
  throw std::runtime_error(
      "this program was built without NCCL's headers: have nccl.h in the CUDA toolkit's include "
      "folder or name its folder with -DDEVCOMM_NCCL_INCLUDE_DIR, and configure again");
}

}  // namespace perf
