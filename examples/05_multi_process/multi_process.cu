/// One process for each rank, started by any of
///
///     torchrun --no-python --nproc-per-node 8 ./multi_process
///     mpirun -n 8 ./multi_process
///     srun -n 8 ./multi_process
///     for r in 0 1 2 3; do DEVCOMM_RANK=$r DEVCOMM_SIZE=4 DEVCOMM_ROOT=127.0.0.1:29600 ./multi_process & done;
///     wait
///
/// Each rank stores its number into its place on every LSA peer, and checks what it got. On several hosts, LSA peers
/// are neighbors in the order of the ranks that share a host.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/communicator.hpp>

#include "common/check.hpp"

#include <unistd.h>

using namespace devcomm;

__global__ void all_gather(device_comm comm, sym_ptr<int> numbers, int mine) {
  const team ranks = comm.lsa();
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync(memory_order::acq_rel);  // all have cleared their numbers
  for (int peer = static_cast<int>(threadIdx.x); peer < ranks.size; peer += static_cast<int>(blockDim.x)) {
    numbers.lsa(peer)[ranks.rank] = mine;
  }
  barrier.sync(memory_order::acq_rel);  // all numbers are there
}

int main() {
  return example::run([] {
    if (!host::launched_by_environment()) {
      throw std::runtime_error(
          "start one process for each rank: with torchrun, mpirun or srun, or with DEVCOMM_RANK, DEVCOMM_SIZE and "
          "DEVCOMM_ROOT set");
    }
    const host::process_environment environment = host::read_process_environment();
    host::communicator comm(host::environment_bootstrap());
    const team ranks = comm.lsa();
    const auto size = static_cast<std::size_t>(ranks.size);

    const requirements needs = comm.requirements().lsa_barriers(1).with(lsa::whole_world{});
    const host::device_communicator device_comm = comm.create_device_comm(needs);
    const host::symmetric_memory memory = comm.allocate(size * sizeof(int));

    const sym_ptr<int> numbers = memory.pointer<int>();
    const auto number_of = [](int rank) { return 100 + rank * rank; };
    for (int round = 0; round < 3; ++round) {
      example::poison(numbers.local(), size);
      launch(all_gather, {.grid = 1, .block = 64}, device_comm.get(), numbers, number_of(comm.rank()));
      check_cuda(cudaDeviceSynchronize(), "all_gather");
      device_comm.check();
      example::expect(numbers.local(), size, "numbers", [&](std::uint64_t peer) {
        return static_cast<float>(number_of(ranks.world_rank(static_cast<int>(peer))));
      });
    }

    std::printf("multi_process: rank %d of %d (process %d, started by %s, device %d): correct, %d LSA peers%s\n",
                comm.rank(), comm.size(), static_cast<int>(getpid()), environment.launcher.c_str(), comm.device(),
                ranks.size - 1, ranks.size == 1 ? "" : (" by " + memory.handle_type()).c_str());
    comm.barrier();  // nobody frees memory that a peer still uses
  });
}
