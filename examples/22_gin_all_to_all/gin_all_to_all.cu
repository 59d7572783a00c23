/// All-to-all by the network alone: each rank puts a run of elements to each, wherever it is. Example 17 stores inside
/// a host; this is what is left where no rank reaches another by load and store: DEVCOMM_LSA_SIZE=1 makes a host of
/// each.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

/// Block `b` moves its part of each run of `length` elements, in a context of its own.
__global__ void all_to_all(device_comm comm, gin::context_handle contexts, sym_ptr<float> send, sym_ptr<float> receive,
                           std::uint64_t length) {
  gin::barrier_session barrier{block{}, comm, comm.world(), contexts, gin::one_context(blockIdx.x), blockIdx.x};
  barrier.sync(gin::fence_level::none);  // every receiver is done with what it received before

  const std::uint64_t slice = (length + gridDim.x - 1) / gridDim.x;
  const std::uint64_t begin = min(blockIdx.x * slice, length);
  const std::uint64_t part = min(slice, length - begin);
  const auto run = [&](sym_ptr<float> of, int rank) {
    return of + static_cast<std::int64_t>(static_cast<std::uint64_t>(rank) * length + begin);
  };
  {
    gin::context net{thread{}, comm, contexts, blockIdx.x};  // threads post side by side
    for (int step = static_cast<int>(threadIdx.x); step < comm.size; step += static_cast<int>(blockDim.x)) {
      const int rank = (comm.rank + step) % comm.size;  // not all to the same one at once
      net.put(rank, run(receive, comm.rank), run(send, rank), part);
    }
  }
  barrier.sync(gin::fence_level::put_and_get);  // all have received, and send may be written again
}

/// What `from` sends to `to` as element `i`.
float element(int from, int to, std::uint64_t i) { return example::value(from * 64 + to, i); }

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 2;
      const auto size = static_cast<std::size_t>(comm.size());
      requirements needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = blocks, .barriers = blocks});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory send = comm.allocate(size * 10000 * sizeof(float));
      const host::symmetric_memory receive = comm.allocate(size * 10000 * sizeof(float));
      int cases = 0;
      for (const std::uint64_t length : {1u, 333u, 10000u}) {
        example::fill(send.pointer<float>().local(), size * length,
                      [&](std::uint64_t i) { return element(comm.rank(), static_cast<int>(i / length), i % length); });
        example::poison(receive.pointer<float>().local(), size * length);
        comm.barrier();  // nobody sends before all have poisoned
        launch(all_to_all, {.grid = blocks, .block = 64, .stream = cudaStreamPerThread}, device_comm.get(), contexts,
               send.pointer<float>(), receive.pointer<float>(), length);
        check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "all_to_all");
        device_comm.check();
        example::expect(receive.pointer<float>().local(), size * length, "float", [&](std::uint64_t i) {
          return element(static_cast<int>(i / length), comm.rank(), i % length);
        });
        ++cases;
      }
      comm.barrier();
      if (comm.rank() == 0) std::printf("gin_all_to_all: %d cases correct on %d ranks\n", cases, comm.size());
    });
  });
}
