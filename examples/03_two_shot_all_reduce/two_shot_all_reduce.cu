/// Two-shot all-reduce, out of place: each rank reduces one part (reduce-scatter), then collects the
/// other parts from its peers (all-gather). Each byte crosses the links twice however many ranks there
/// are, so the best for large messages. Captured in a CUDA graph and replayed.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

using namespace devcomm;

/// Elements of the slice that one block works on in each rank's part: whole packs.
template <class T>
__host__ __device__ std::uint64_t slice_elements(std::uint64_t count, unsigned blocks, int ranks) {
  constexpr std::uint64_t unit = pack<T>::size;
  const std::uint64_t slices = std::uint64_t{blocks} * static_cast<std::uint64_t>(ranks);
  return ((count + slices - 1) / slices + unit - 1) / unit * unit;
}

template <class T>
__global__ void two_shot_all_reduce(device_comm comm, sym_ptr<T> input, buffer_handle<T> parts, T* output,
                                    std::uint64_t count) {
  const team ranks = comm.lsa();
  const sym_ptr<T> scratch = comm.buffer(parts);
  const std::uint64_t slice = slice_elements<T>(count, gridDim.x, ranks.size);

  // Block b of every rank works on slice b of every part, so it synchronizes only with block b of the others.
  const auto slice_begin = [&](int rank) {
    return min((static_cast<std::uint64_t>(rank) * gridDim.x + blockIdx.x) * slice, count);
  };
  const auto slice_length = [&](int rank) { return min(slice, count - slice_begin(rank)); };
  const std::uint64_t place = blockIdx.x * slice;  // of this block's slice in each scratch

  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);

  // Scratch is as misaligned as the input, so that packs stay packs.
  const std::uint64_t skew = input.offset % 16 / sizeof(T);
  reduce_copy<T>(
      block{}, ranks.size, [&](int rank) { return input.lsa(rank) + slice_begin(ranks.rank); },  //
      1, [&](int) { return scratch.local() + skew + place; }, slice_length(ranks.rank), sum{});

  barrier.sync(memory_order::acq_rel);

  for (int step = 0; step < ranks.size; ++step) {
    const int rank = (ranks.rank + step) % ranks.size;  // peers are read by one rank at a time
    copy(block{}, output + slice_begin(rank), static_cast<const T*>(scratch.lsa(rank)) + skew + place,
         slice_length(rank));
  }
  // The next launch writes scratch only after its first barrier, which all ranks enter after this one.
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr unsigned threads = 64;
      constexpr int rounds = 3;
      constexpr std::size_t bytes = 1 << 20;
      devcomm::requirements needs = comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{});
      const auto scratch = needs.add_buffer<char>(bytes);
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory memory = comm.allocate(bytes);
      const auto results = example::device_array(1 << 20);
      cudaStream_t stream = nullptr;
      check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");

      const int cases = example::for_each_case([&]<class T>(std::size_t count, std::size_t offset) {
        const sym_ptr<T> input = memory.pointer<T>() + static_cast<std::int64_t>(offset);
        const buffer_handle<T> parts{scratch.offset, bytes / sizeof(T)};
        T* output = reinterpret_cast<T*>(results.get());

        const example::captured_graph graph(stream, [&](cudaStream_t to) {
          launch(two_shot_all_reduce<T>, {.grid = blocks, .block = threads, .stream = to}, device_comm.get(), input,
                 parts, output, count);
        });

        for (int round = 0; round < rounds; ++round) {
          // The second barrier of the last replay says that all ranks have read this rank's input.
          example::fill(input.local(), count, [&](std::uint64_t i) { return example::value(comm.rank(), i, round); });
          example::poison(output, count + 1);
          graph.replay();
          check_cuda(cudaStreamSynchronize(stream), "two_shot_all_reduce");
          device_comm.check();
          example::expect(output, count, example::type_name<T>(),
                          [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i, round); });
        }
      });
      check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");

      if (comm.rank() == 0) {
        std::printf("two_shot_all_reduce: %d cases of %d replays correct on %d ranks (%s)\n", cases, rounds,
                    comm.size(), comm.properties().device_name.c_str());
      }
    });
  });
}
