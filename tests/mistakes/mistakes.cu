/// Runs one mistake, or the same program without it:
///
///     mistakes NAME [right]
#include "mistakes/barrier_programs.cuh"
#include "mistakes/gemm_kernels.cuh"
#include "mistakes/gin_kernels.cuh"
#include "mistakes/host_programs.cuh"
#include "mistakes/memory_kernels.cuh"
#include "mistakes/memory_programs.cuh"
#include "mistakes/moe_kernels.cuh"
#include "mistakes/multimem_kernels.cuh"
#include "mistakes/nccl_kernels.cuh"
#include "mistakes/order_kernels.cuh"
#include "mistakes/packet_programs.cuh"
#include "mistakes/wait_kernels.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace mistakes {
namespace {

// Here, as headers cannot launch by <<<>>> in the simulator.
void unseen_launch_error(communicator& comm, bool wrong) {
  const auto numbers = comm.allocate(32 * sizeof(int), "numbers");
  if (wrong) {
    write_numbers<<<1, 2048>>>(numbers.pointer<int>().local());
  } else {
    write_numbers<<<1, 32>>>(numbers.pointer<int>().local());
    check_cuda(cudaGetLastError(), "write_numbers");
  }
  check_cuda(cudaDeviceSynchronize(), "write_numbers");
}

std::vector<mistake> all_mistakes() {
  std::vector<mistake> all{{"unseen_launch_error", unseen_launch_error}};
  for (const auto& more :
       {barrier_programs(), memory_programs(), packet_programs(), host_programs(), order_kernels(), wait_kernels(),
        memory_kernels(), multimem_kernels(), gin_kernels(), gemm_kernels(), moe_kernels(), nccl_kernels()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace
}  // namespace mistakes

int main(int argc, char** argv) {
  const bool wrong = !(argc == 3 && std::strcmp(argv[2], "right") == 0);
  const auto all = mistakes::all_mistakes();
  for (const mistakes::mistake& one : all) {
    if (argc < 2 || argc > (wrong ? 2 : 3) || std::strcmp(argv[1], one.name) != 0) continue;
    if (wrong && one.variable != nullptr) setenv(one.variable, one.value, 1);
    devcomm::host::run_options options;
    options.ranks = one.ranks;
    options.communicator.lsa_size = one.lsa_size;
    try {
      devcomm::host::run_ranks(options, [&](devcomm::host::communicator& comm) { one.run(comm, wrong); });
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "error: %s\n", error.what());
      return 1;
    }
  }
  for (const mistakes::mistake& one : all) std::puts(one.name);
  return argc == 1 ? 0 : 2;
}
