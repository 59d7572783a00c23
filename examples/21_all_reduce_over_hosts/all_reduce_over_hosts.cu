/// All-reduce over several hosts: reduce-scatter inside each, the network along the rails, all-gather inside. The
/// costs of the network say whether it crosses directly or in a ring. Run it with DEVCOMM_LSA_SIZE=2 and 4 ranks: two
/// hosts of two.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

__global__ void all_reduce(device_comm comm, gin::context_handle contexts, collective::rail_memory<float> rails,
                           sym_ptr<float> input, sym_ptr<float> output, std::uint64_t count) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x), blockIdx.x};
  collective::all_reduce_hierarchical<float>(barrier, input, output, rails, count, sum{});
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr std::uint64_t most = 100000;
      const int lsa_size = comm.lsa().size;
      const int hosts = comm.size() / lsa_size;
      requirements needs = comm.requirements().lsa_barriers(blocks);
      const auto scratch =
          needs.add(gin::buffer<float>{collective::hierarchical_scratch<float>(most, comm.size(), lsa_size)});
      const auto rings = needs.add(collective::rail_rings{.groups = blocks});
      const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = blocks, .barriers = blocks});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory input = comm.allocate(most * sizeof(float));
      const host::symmetric_memory output = comm.allocate(most * sizeof(float));
      int cases = 0;
      for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{1001}, most}) {
        const collective::rail_costs network{.latency = 10000, .chunk = 5000};  // measure your own
        const auto exchange = collective::rail_exchange_for(count * sizeof(float), hosts, lsa_size, network);
        example::fill(input.pointer<float>().local(), count,
                      [&](std::uint64_t i) { return example::value(comm.rank(), i); });
        example::poison(output.pointer<float>().local(), count);
        comm.barrier();  // peers store to the output
        launch(all_reduce, {.grid = blocks, .block = 128, .stream = cudaStreamPerThread}, device_comm.get(), contexts,
               collective::rail_memory<float>{exchange, device_comm.memory_of(scratch), rings}, input.pointer<float>(),
               output.pointer<float>(), count);
        check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "all_reduce");
        device_comm.check();
        example::expect(output.pointer<float>().local(), count, "float",
                        [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i); });
        ++cases;
      }
      comm.barrier();
      if (comm.rank() == 0) {
        std::printf("all_reduce_over_hosts: %d cases correct on %d hosts of %d\n", cases, hosts, lsa_size);
      }
    });
  });
}
