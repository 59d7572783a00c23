/// A two-shot all-reduce that says where its time goes: its waits, and two spans of its own, become a trace for
/// Perfetto. Compiled with -DDEVCOMM_TRACE=1; without, nothing of the tracing is in the kernel.
///
///     traced_all_reduce [FILE [BYTES]]
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

#include <cstdlib>
#include <string>

using namespace devcomm;

__global__ void two_shot_all_reduce(device_comm comm, sym_ptr<float> input, buffer_handle<float> parts, float* output,
                                    std::uint64_t slice) {
  const trace_span whole(block{}, comm, "all_reduce");
  const team ranks = comm.lsa();
  const sym_ptr<float> scratch = comm.buffer(parts);
  const std::uint64_t place = blockIdx.x * slice;  // of this block's slice in each rank's part
  const auto slice_begin = [&](int rank) {
    return (static_cast<std::uint64_t>(rank) * gridDim.x + blockIdx.x) * slice;
  };

  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);
  {
    const trace_span span(block{}, comm, {"reduce", span_kind::reduction});
    reduce_copy<float>(
        block{}, ranks.size, [&](int rank) { return input.lsa(rank) + slice_begin(ranks.rank); },  //
        1, [&](int) { return scratch.local() + place; }, slice, sum{});
    __syncthreads();  // so that the span holds the work of all threads
  }
  barrier.sync(memory_order::acq_rel);
  {
    const trace_span span(block{}, comm, {"gather", span_kind::copy});
    for (int step = 0; step < ranks.size; ++step) {
      const int rank = (ranks.rank + step) % ranks.size;
      copy(block{}, output + slice_begin(rank), static_cast<const float*>(scratch.lsa(rank)) + place, slice);
    }
    __syncthreads();
  }
}

int main(int argc, char** argv) {
  return example::run([&] {
    const std::string path = argc > 1 ? argv[1] : "trace.json";
    const std::uint64_t bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1 << 16;
    host::run_ranks({}, [&](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr unsigned threads = 256;
      constexpr int launches = 3;
      // Whole packs for each block's slice of each rank's part.
      const auto slices = static_cast<std::uint64_t>(comm.size()) * blocks;
      const std::uint64_t slice = (bytes / sizeof(float) / slices + 3) / 4 * 4;
      const std::uint64_t count = slice * slices;

      devcomm::requirements needs =
          comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{}).with(tracing{blocks, 256});
      const auto parts = needs.add_buffer<float>(slice * blocks);
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory memory = comm.allocate(count * sizeof(float) + 16);
      const auto output = example::device_array(count * sizeof(float) + 16);
      const auto input = memory.pointer<float>();
      auto* results = reinterpret_cast<float*>(output.get());
      example::fill(input.local(), count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });

      const auto reduce = [&](int times) {
        example::poison(results, count);
        for (int i = 0; i < times; ++i) {
          launch(two_shot_all_reduce, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
                 device_comm.get(), input, parts, results, slice);
        }
        check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "two_shot_all_reduce");
        device_comm.check();
        example::expect(results, count, "float",
                        [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i); });
      };
      reduce(1);  // the first launch loads the code
      comm.clear_trace(device_comm);
      reduce(launches);
      comm.write_trace(device_comm, path);
      if (comm.rank() == 0) {
        std::printf("traced_all_reduce: %d launches of %llu bytes correct on %d ranks (%s), trace in %s\n", launches,
                    static_cast<unsigned long long>(count * sizeof(float)), comm.size(),
                    comm.properties().device_name.c_str(), path.c_str());
      }
    });
  });
}
