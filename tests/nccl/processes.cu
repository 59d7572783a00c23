// A program for NCCL with a process for each rank, which pass the id through a file: stores inside hosts, puts to
// others.
//
//     run.sh nccl_processes_sim 4 FOLDER
#include "nccl/programs/ranks.h"

#include <nccl_device.h>

#include <chrono>
#include <string>

constexpr int elements = 10000;

__global__ void pass_on(ncclWindow_t window, int length, ncclDevComm comm) {
  const ncclCoopCta cta;
  const ncclGin gin(comm, 0);
  ncclBarrierSession<ncclCoopCta> barrier(cta, ncclTeamTagWorld(), gin, 0);
  barrier.sync(cta, cuda::memory_order_relaxed, ncclGinFenceLevel::None);
  auto* const mine = static_cast<float*>(ncclGetLocalPointer(window, 0));
  for (int i = static_cast<int>(threadIdx.x); i < length; i += static_cast<int>(blockDim.x))
    mine[i] = static_cast<float>(comm.rank * 100000 + i);
  cta.sync();
  const int next = (comm.rank + 1) % comm.nRanks;
  const std::size_t behind = sizeof(float) * static_cast<std::size_t>(length);
  if (auto* const theirs = static_cast<float*>(ncclGetPeerPointer(window, behind, next))) {
    for (int i = static_cast<int>(threadIdx.x); i < length; i += static_cast<int>(blockDim.x)) theirs[i] = mine[i];
  } else if (threadIdx.x == 0) {
    gin.put(ncclTeamWorld(comm), next, window, behind, window, 0, behind);
  }
  barrier.sync(cta, cuda::memory_order_acq_rel);
}

/// The sum of the first elements of all ranks of the host, to the second half of each.
__global__ void sum_of_host(ncclWindow_t window, int length, ncclDevComm comm) {
  const ncclCoopCta cta;
  ncclBarrierSession<ncclCoopCta> barrier(cta, ncclTeamTagLsa(), comm, 0, true);
  barrier.sync(cta, cuda::memory_order_acquire);
  const int part = length / comm.lsaSize, first = comm.lsaRank * part;
  const ncclSymPtr<float> all(window);
  ncclMultimemReduceSumCopy<float>(cta, all + first, comm.lsaMultimem, all + (length + first), comm.lsaMultimem, part);
  barrier.sync(cta, cuda::memory_order_acq_rel);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int rank = std::atoi(std::getenv("DEVCOMM_RANK")), ranks = std::atoi(std::getenv("DEVCOMM_SIZE"));
  const std::string file = argv[1] + std::string("/id.") + std::getenv("DEVCOMM_SECRET");
  ncclUniqueId id;
  if (rank == 0) {
    CHECK_NCCL(ncclGetUniqueId(&id));
    std::FILE* const out = std::fopen((file + ".part").c_str(), "wb");
    if (out == nullptr || std::fwrite(&id, sizeof id, 1, out) != 1 || std::fclose(out) != 0) return 2;
    std::rename((file + ".part").c_str(), file.c_str());
  } else {
    std::FILE* in = nullptr;
    while ((in = std::fopen(file.c_str(), "rb")) == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (std::fread(&id, sizeof id, 1, in) != 1 || std::fclose(in) != 0) return 2;
  }
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  CHECK_CUDA(cudaSetDevice(rank % devices));
  Rank mine{rank, ranks, nullptr, nullptr};
  CHECK_NCCL(ncclCommInitRank(&mine.comm, ranks, id, rank));
  if (rank == 0) std::remove(file.c_str());  // all have read it
  CHECK_CUDA(cudaStreamCreate(&mine.stream));
  const Buffer data = mine.allocate(2 * elements);
  ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  requirements.barrierCount = 1;
  requirements.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  CHECK_NCCL(ncclCommQueryProperties(mine.comm, &properties));
  requirements.lsaMultimem = properties.multimemSupport;
  ncclDevComm comm;
  CHECK_NCCL(ncclDevCommCreate(mine.comm, &requirements, &comm));
  pass_on<<<1, 64, 0, mine.stream>>>(data.window, elements, comm);
  CHECK_CUDA(cudaGetLastError());
  mine.expect(data, 2 * elements, [&](std::size_t i) {
    const int of = i < elements ? rank : (rank + ranks - 1) % ranks;
    return static_cast<float>(of * 100000 + static_cast<int>(i) % elements);
  });
  if (properties.multimemSupport) {
    sum_of_host<<<1, 64, 0, mine.stream>>>(data.window, elements, comm);
    CHECK_CUDA(cudaGetLastError());
    mine.expect(data, 2 * elements, [&](std::size_t i) {
      const int element = static_cast<int>(i) % elements;
      if (i < elements) return static_cast<float>(rank * 100000 + element);
      float sum = 0;
      for (int r = rank - comm.lsaRank; r < rank - comm.lsaRank + comm.lsaSize; ++r)
        sum += static_cast<float>(r * 100000 + element);
      return sum;
    });
  }
  CHECK_NCCL(ncclAllReduce(data.data, data.data + elements, elements, ncclFloat, ncclMax, mine.comm, mine.stream));
  mine.expect(data, 2 * elements, [&](std::size_t i) {
    return static_cast<float>((i < elements ? rank : ranks - 1) * 100000 + static_cast<int>(i) % elements);
  });
  ncclResult_t state = ncclInternalError;
  CHECK_NCCL(ncclCommGetAsyncError(mine.comm, &state));
  CHECK_NCCL(state);
  CHECK_NCCL(ncclDevCommDestroy(mine.comm, &comm));
  mine.free(data);
  CHECK_CUDA(cudaStreamDestroy(mine.stream));
  CHECK_NCCL(ncclCommDestroy(mine.comm));
}
