#include "lsa_barrier/nccl_barrier.hpp"

#include "peers/nccl_library.hpp"

#include <devcomm/launch.hpp>

namespace benchmark {

namespace {

template <bool Ordered>
__global__ void barriers(ncclDevComm comm, int iterations) {
  constexpr auto order = Ordered ? cuda::memory_order_acq_rel : cuda::memory_order_relaxed;
  ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  for (int i = 0; i < iterations; ++i) barrier.sync(ncclCoopCta(), order);
}

class loaded_nccl_barrier final : public nccl_barrier {
 public:
  loaded_nccl_barrier(devcomm::host::communicator& comm, int barriers) {
    library_.load_device_api();
    static ncclUniqueId id;  // shared by the ranks, which are threads
    if (comm.rank() == 0) library_.check(library_.get_unique_id(&id), "ncclGetUniqueId");
    comm.barrier();
    library_.check(library_.comm_init_rank(&comm_, comm.size(), id, comm.rank()), "ncclCommInitRank");
    ncclDevCommRequirements needs{};
    needs.lsaBarrierCount = barriers;
    library_.check(library_.dev_comm_create(comm_, &needs, &device_comm_), "ncclDevCommCreate");
  }
  ~loaded_nccl_barrier() override {
    library_.dev_comm_destroy(comm_, &device_comm_);
    library_.comm_destroy(comm_);
  }

  void launch(unsigned blocks, unsigned threads, int iterations, devcomm::memory_order order,
              cudaStream_t stream) override {
    const auto kernel = order == devcomm::memory_order::relaxed ? barriers<false> : barriers<true>;
    devcomm::launch(kernel, {.grid = blocks, .block = threads, .stream = stream}, device_comm_, iterations);
  }

 private:
  peers::nccl_library library_;
  ncclComm_t comm_ = nullptr;
  ncclDevComm device_comm_{};
};

}  // namespace

std::unique_ptr<nccl_barrier> make_nccl_barrier(devcomm::host::communicator& comm, int barriers) {
  return std::make_unique<loaded_nccl_barrier>(comm, barriers);
}

}  // namespace benchmark
