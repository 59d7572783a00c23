/// One-shot all-reduce, out of place: every rank reads all inputs and reduces all elements itself.
/// One trip over the links, so the best for small messages. Captured in a CUDA graph and replayed.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

using namespace devcomm;

template <class T>
__global__ void one_shot_all_reduce(device_comm comm, sym_ptr<T> input, T* output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);

  // Each block takes a slice; whole packs, so that slices start as aligned as the input does.
  constexpr std::uint64_t unit = pack<T>::size;
  const std::uint64_t slice = ((count + gridDim.x - 1) / gridDim.x + unit - 1) / unit * unit;
  const std::uint64_t begin = min(blockIdx.x * slice, count);
  const std::uint64_t end = min(begin + slice, count);

  // Ranks in one order everywhere: all get the same bits.
  reduce_copy<T>(
      block{}, comm.lsa_size, [&](int rank) { return input.lsa(rank) + begin; },  //
      1, [&](int) { return output + begin; }, end - begin, sum{});

  barrier.sync(memory_order::acq_rel);  // inputs may change again
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr unsigned threads = 64;
      constexpr int rounds = 3;
      const requirements needs = comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory memory = comm.allocate(1 << 20);
      const auto results = example::device_array(1 << 20);
      cudaStream_t stream = nullptr;
      check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");

      const int cases = example::for_each_case([&]<class T>(std::size_t count, std::size_t offset) {
        const sym_ptr<T> input = memory.pointer<T>() + static_cast<std::int64_t>(offset);
        T* output = reinterpret_cast<T*>(results.get());

        const example::captured_graph graph(stream, [&](cudaStream_t to) {
          launch(one_shot_all_reduce<T>, {.grid = blocks, .block = threads, .stream = to}, device_comm.get(), input,
                 output, count);
        });

        for (int round = 0; round < rounds; ++round) {
          example::fill(input.local(), count, [&](std::uint64_t i) { return example::value(comm.rank(), i, round); });
          example::poison(output, count + 1);
          graph.replay();
          check_cuda(cudaStreamSynchronize(stream), "one_shot_all_reduce");
          device_comm.check();
          example::expect(output, count, example::type_name<T>(),
                          [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i, round); });
        }
      });
      check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");

      if (comm.rank() == 0) {
        std::printf("one_shot_all_reduce: %d cases of %d replays correct on %d ranks (%s)\n", cases, rounds,
                    comm.size(), comm.properties().device_name.c_str());
      }
    });
  });
}
