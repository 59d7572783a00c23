/// An engine's own tensors in captured graphs, as vLLM's custom all-reduce takes them: nothing is registered before or
/// during the capture. Each call adds its tensors; when the capture has ended all ranks register them at once, and the
/// kernels read the peers' addresses from a table on the device. No tensor is copied.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/captured_buffers.hpp>
#include <devcomm/host/run_ranks.hpp>

#include "common/captured_graph.hpp"
#include "common/check.hpp"

using namespace devcomm;

namespace {

constexpr unsigned blocks = 2;
constexpr unsigned threads = 64;

__global__ void reduce_one_shot(device_comm comm, sym_ptr<float> input, float* output, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  collective::all_reduce_one_shot_zero_copy<float>(barrier, input, output, count, sum{});
}

__global__ void reduce_two_shot(device_comm comm, sym_ptr<float> tensor, std::uint64_t count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  collective::all_reduce_two_shot_zero_copy<float>(barrier, tensor, tensor, count, sum{});
}

/// A layer's work between the all-reduces: the next input.
__global__ void scale(const float* from, float* to, float factor, std::uint64_t count) {
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = from[i] * factor;
}

/// What an engine captures for a batch of `count` elements: small tensors by one shot, large ones by two.
void layers(const device_comm& comm, host::captured_buffers& buffers, float* hidden, float* output, std::uint64_t count,
            cudaStream_t stream) {
  const launch_config shape{.grid = blocks, .block = threads, .stream = stream};
  for (int layer = 0; layer < 3; ++layer) {
    launch(reduce_one_shot, shape, comm, buffers.add(hidden, count), output, count);
    launch(scale, shape, static_cast<const float*>(output), hidden, 0.5f, count);
    launch(reduce_two_shot, shape, comm, buffers.add(hidden, count), count);
  }
}

}  // namespace

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      // The engine's allocator: addresses differ from rank to rank.
      constexpr std::uint64_t counts[] = {100, 1000, 4096};
      constexpr std::uint64_t most = 4096;
      const std::uint64_t lead = 4 * static_cast<std::uint64_t>(comm.rank() + 1);
      const auto memory = example::device_array((2 * most + lead) * sizeof(float));
      float* const hidden = reinterpret_cast<float*>(memory.get()) + lead;
      float* const output = hidden + most;

      const host::device_communicator device_comm =
          comm.create_device_comm(comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{}));
      host::captured_buffers buffers = comm.collect_buffers(64);

      cudaStream_t stream = nullptr;
      check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
      std::vector<example::captured_graph> graphs;
      for (const std::uint64_t count : counts)
        graphs.emplace_back(stream,
                            [&](cudaStream_t to) { layers(device_comm.get(), buffers, hidden, output, count, to); });
      comm.register_buffers(buffers);

      constexpr int rounds = 6;
      const auto ranks = static_cast<float>(comm.size());
      for (int round = 0; round < rounds; ++round) {
        const std::size_t which = static_cast<std::size_t>(round) % std::size(counts);
        example::fill(hidden, most, [&](std::uint64_t i) { return example::value(comm.rank(), i, round); });
        comm.barrier();
        buffers.check();  // nobody has freed a tensor since
        graphs[which].replay();
        check_cuda(cudaStreamSynchronize(stream), "the replay");
        device_comm.check();
        comm.barrier();
        // The first reduction makes the sum on all ranks; each later one multiplies by the ranks, each layer halves.
        float factor = 0.5f * ranks;
        for (int layer = 1; layer < 3; ++layer) factor *= ranks * 0.5f * ranks;
        example::expect(hidden, counts[which], "round " + std::to_string(round),
                        [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i, round) * factor; });
      }
      graphs.clear();
      check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
      if (comm.rank() == 0) {
        std::printf("captured_buffers: %d replays correct on %d ranks (%s), %zu buffers registered after the capture\n",
                    rounds, comm.size(), comm.properties().device_name.c_str(), buffers.registered());
      }
      comm.barrier();
    });
  });
}
