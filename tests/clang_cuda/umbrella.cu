// Clang's own CUDA compiler takes the device API to PTX.
#include <devcomm/devcomm.cuh>

using namespace devcomm;

__global__ void all_reduce(device_comm comm, sym_ptr<float> data, float* output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);
  reduce_copy<float>(
      any_group(block{}), comm.lsa_size, [&](int rank) { return data.lsa(rank); },  //
      1, [&](int) { return output; }, count, sum{});
  if (barrier.sync_for(milliseconds(10)) != status::success) output[0] = block::broadcast(output[1], 0);
}
