// A program with a process for each GPU, started by MPI: an all-reduce by loads from peers, and inside each host by a
// communicator of its own.
#include <mpi.h>
#include <nccl.h>
#include <nccl_device.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                   \
  do {                                                                \
    if ((call) != 0) {                                                \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #call); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                   \
    }                                                                 \
  } while (0)

constexpr int blocks = 2;
constexpr int threads = 64;
constexpr std::size_t count = 1500;

__global__ void all_reduce(ncclWindow_t window, float* out, std::size_t length, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < length; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < comm.lsaSize; ++peer)
      sum += static_cast<const float*>(ncclGetLsaPointer(window, 0, peer))[i];
    out[i] = sum;
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_release);
}

int main(int argc, char** argv) {
  CHECK(MPI_Init(&argc, &argv));
  int rank = 0, ranks = 0;
  CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  MPI_Comm host;
  CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host));
  int on_host = 0, of_host = 0;
  CHECK(MPI_Comm_rank(host, &on_host));
  CHECK(MPI_Comm_size(host, &of_host));
  CHECK(cudaSetDevice(rank));
  ncclUniqueId id;
  if (on_host == 0) CHECK(ncclGetUniqueId(&id));
  CHECK(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, host));
  ncclComm_t comm;
  CHECK(ncclCommInitRank(&comm, of_host, id, on_host));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  void* in;
  float* out;
  ncclWindow_t window;
  CHECK(ncclMemAlloc(&in, count * sizeof(float)));
  CHECK(cudaMalloc(&out, count * sizeof(float)));
  CHECK(ncclCommWindowRegister(comm, in, count * sizeof(float), &window, NCCL_WIN_COLL_SYMMETRIC));
  ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  requirements.lsaBarrierCount = blocks;
  ncclDevComm device;
  CHECK(ncclDevCommCreate(comm, &requirements, &device));
  std::vector<int> on_it(static_cast<std::size_t>(of_host));
  CHECK(MPI_Allgather(&rank, 1, MPI_INT, on_it.data(), 1, MPI_INT, host));
  int wrong = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<float> values(count, static_cast<float>(rank + round));
    CHECK(cudaMemcpyAsync(in, values.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
    all_reduce<<<blocks, threads, 0, stream>>>(window, out, count, device);
    CHECK(cudaMemcpyAsync(values.data(), out, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    float right = 0;
    for (const int each : on_it) right += static_cast<float>(each + round);
    for (const float each : values) wrong += each != right ? 1 : 0;
  }
  CHECK(MPI_Barrier(host));
  int all_wrong = 0;
  CHECK(MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  if (rank == 0) std::printf("%d ranks: %d wrong\n", ranks, all_wrong);
  CHECK(ncclDevCommDestroy(comm, &device));
  CHECK(ncclCommWindowDeregister(comm, window));
  CHECK(ncclMemFree(in));
  CHECK(cudaFree(out));
  CHECK(cudaStreamDestroy(stream));
  CHECK(ncclCommDestroy(comm));
  CHECK(MPI_Finalize());
  return all_wrong == 0 ? 0 : 1;
}
