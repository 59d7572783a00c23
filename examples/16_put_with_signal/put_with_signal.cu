/// Put with signal: each rank puts its vector to the next one, which waits for the signal and adds it to its own. Ranks
/// need not reach each other by load and store: DEVCOMM_LSA_SIZE=1 makes a host of each.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

/// Each block moves a part, in a context of its own, so that its signals speak of its own puts.
__global__ void add_previous(device_comm comm, gin::context_handle contexts, sym_ptr<float> mine, sym_ptr<float> theirs,
                             std::uint64_t count) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  const int next = (comm.rank + 1) % comm.size;
  const std::uint64_t slice = (count + gridDim.x - 1) / gridDim.x;
  const std::uint64_t begin = min(blockIdx.x * slice, count);
  const std::uint64_t length = min(slice, count - begin);
  const auto first = static_cast<std::int64_t>(begin);

  net.put(next, theirs + first, mine + first, length, gin::signal_add{0, 1, gin::strength::weak});
  net.wait_signal(0, 1);  // what the previous rank has put is here, and all threads see it
  net.flush();            // mine has been read, and may be written
  for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) mine.local()[begin + i] += theirs.local()[begin + i];
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      const host::symmetric_memory mine = comm.allocate(40000 * sizeof(float));
      const host::symmetric_memory theirs = comm.allocate(40000 * sizeof(float));
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      int cases = 0;
      for (const std::uint64_t count : {1u, 1000u, 40000u}) {
        requirements needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = blocks, .signals = 1});
        const host::device_communicator device_comm = comm.create_device_comm(needs);  // its signals start at 0
        example::fill(mine.pointer<float>().local(), count,
                      [&](std::uint64_t i) { return example::value(comm.rank(), i); });
        comm.barrier();
        launch(add_previous, {.grid = blocks, .block = 128, .stream = cudaStreamPerThread}, device_comm.get(), contexts,
               mine.pointer<float>(), theirs.pointer<float>(), count);
        check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "add_previous");
        device_comm.check();
        example::expect(mine.pointer<float>().local(), count, "float",
                        [&](std::uint64_t i) { return example::value(comm.rank(), i) + example::value(previous, i); });
        comm.barrier();  // all that was put has arrived before anything is freed
        ++cases;
      }
      if (comm.rank() == 0) std::printf("put_with_signal: %d cases correct on %d ranks\n", cases, comm.size());
    });
  });
}
