// The kernels of the first six examples in one file, each in a namespace of its own.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define main no_main
namespace example_01 {
#include "01_all_reduce_lsa/all_reduce_lsa.cu"
}
namespace example_02 {
#include "02_one_shot_all_reduce/one_shot_all_reduce.cu"
}
namespace example_03 {
#include "03_two_shot_all_reduce/two_shot_all_reduce.cu"
}
namespace example_04 {
#include "04_all_to_all_lsa/all_to_all_lsa.cu"
}
namespace example_05 {
#include "05_multi_process/multi_process.cu"
}
namespace example_06 {
#include "06_fused_all_reduce/fused_all_reduce.cu"
}
