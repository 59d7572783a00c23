/// A pipeline over hosts: along each rail, from host to host, a vector goes as a stream of steps, and each rank adds
/// its own to what comes and passes the sum on. Rank r of host h ends up with the sums of hosts 0 to h. While a step is
/// on the network, the ranks work on others. Run it with DEVCOMM_LSA_SIZE=2 and 6 ranks: three hosts of two. The same
/// kernel stores straight into the next rank's memory where ranks of the rail share a host.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

using fifo_handle = channel::fifo_handle<channel::protocol::network>;

__global__ void sums_along_rail(device_comm comm, fifo_handle fifos, const float* input, float* output,
                                std::uint64_t count) {
  const team rail = comm.rail();  // the ranks with this one's place on each host
  const bool is_first = rail.rank == 0;
  const bool is_last = rail.rank + 1 == rail.size;
  // FIFO b carries the slice of block b. Members of the session are those of the rail.
  const channel::endpoint from = is_first ? channel::endpoint::none() : channel::from_previous(rail, blockIdx.x);
  const channel::endpoint to = is_last ? channel::endpoint::none() : channel::to_next(rail, blockIdx.x);
  channel::session chain{block{}, comm, rail, fifos, from, to};
  const collective::from_memory<float> mine{input, count};
  const collective::to_memory<float> result{output, count};

  const slice packs = collective::slice_of_block(packs_of<float>(count));
  if (is_first && is_last) {
    for (std::uint64_t i = packs.begin + threadIdx.x; i < packs.end; i += blockDim.x) result(i, mine(i));
  } else if (is_first) {
    chain.copy_send<float>(packs, mine, result);
  } else if (is_last) {
    chain.recv_reduce_copy<float>(packs, mine, result, sum{}, 0);
  } else {
    chain.recv_reduce_copy_send<float>(packs, mine, result, sum{}, 0);
  }
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 2;
      requirements needs = comm.requirements();
      const channel::network_fifos wanted{
          .contexts = {.world = comm.world(), .count = blocks}, .count = blocks, .packs = 512};
      const auto fifos = needs.add(wanted);
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const int host = comm.rank() / comm.lsa().size;
      const auto inputs = example::device_array(50000 * sizeof(float));
      const auto results = example::device_array(50001 * sizeof(float));
      auto* const input = reinterpret_cast<float*>(inputs.get());
      auto* const output = reinterpret_cast<float*>(results.get());
      int cases = 0;
      for (const std::uint64_t count : {1u, 1000u, 50000u}) {
        example::fill(input, count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
        example::poison(output, count + 1);
        launch(sums_along_rail, {.grid = blocks, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), fifos,
               input, output, count);
        check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "sums_along_rail");
        device_comm.check();
        example::expect(output, count, "float", [&](std::uint64_t i) {
          float total = 0;
          for (int h = 0; h <= host; ++h) total += example::value(comm.rank() - (host - h) * comm.lsa().size, i);
          return total;
        });
        ++cases;
      }
      comm.barrier();  // all that was sent has been received before anything is freed
      if (comm.rank() == 0) {
        std::printf("stream_over_hosts: %d cases correct on %d ranks, %d in each LSA team\n", cases, comm.size(),
                    comm.lsa().size);
      }
    });
  });
}
