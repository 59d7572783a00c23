/// All-reduce in place with nothing but peer pointers and a barrier: each rank reduces its share of
/// the elements from all ranks and stores the result to all ranks.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

template <class T>
__global__ void all_reduce(device_comm comm, sym_ptr<T> data, std::uint64_t count) {
  // Block b synchronizes with block b of every other rank: after this, all inputs are there.
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);

  // A grid-stride loop over all threads of all ranks.
  const team ranks = comm.lsa();
  const auto size = static_cast<std::uint64_t>(ranks.size);
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::uint64_t i = thread * size + static_cast<std::uint64_t>(ranks.rank); i < count; i += threads * size) {
    float total = 0;
    for (int peer = 0; peer < ranks.size; ++peer) total += static_cast<float>(data.lsa(peer)[i]);
    for (int peer = 0; peer < ranks.size; ++peer) data.lsa(peer)[i] = static_cast<T>(total);
  }

  // Nobody leaves before the stores of all ranks have arrived.
  barrier.sync(memory_order::acq_rel);
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr unsigned threads = 64;
      const requirements needs = comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory memory = comm.allocate(1 << 20);

      const int cases = example::for_each_case([&]<class T>(std::size_t count, std::size_t offset) {
        const sym_ptr<T> data = memory.pointer<T>() + static_cast<std::int64_t>(offset);
        example::fill(data.local(), count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });

        launch(all_reduce<T>, {.grid = blocks, .block = threads}, device_comm.get(), data, count);
        check_cuda(cudaDeviceSynchronize(), "all_reduce");
        device_comm.check();

        example::expect(data.local(), count, example::type_name<T>(),
                        [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i); });
        comm.barrier();  // no rank refills its data while another still checks its own
      });

      if (comm.rank() == 0) {
        std::printf("all_reduce_lsa: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
    });
  });
}
