// The headers once more, in another unit of the same program.
#include <nccl_device.h>

__global__ void count_ranks(ncclDevComm comm, int* counted) {
  ncclLsaBarrierSession<ncclCoopWarp> barrier(ncclCoopWarp(), comm, ncclTeamTagLsa(), 0);
  barrier.sync(ncclCoopWarp(), cuda::memory_order_acq_rel);
  if (threadIdx.x == 0) *counted = ncclTeamLsa(comm).nRanks;
}
