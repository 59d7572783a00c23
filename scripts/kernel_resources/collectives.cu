// Collectives that devcomm-perf does not measure, for scripts/kernel_resources.sh.
#include <devcomm/devcomm.cuh>

#include <cuda_bf16.h>

using namespace devcomm;
using namespace devcomm::collective;

constexpr unsigned max_threads = 512;

template <class T>
__global__ void __launch_bounds__(max_threads, 1) pull(device_comm comm, sym_ptr<T> input, T* output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  all_reduce_one_shot_zero_copy<T>(barrier, input, output, count, sum{});
}

template __global__ void pull<__nv_bfloat16>(device_comm, sym_ptr<__nv_bfloat16>, __nv_bfloat16*, std::uint64_t);
