/// All-to-all over several hosts: inside a host a rank stores straight into the receivers' memory, across it puts by
/// the network. `collective::all_to_all_hybrid` is this with any grid and posts by all threads. Run it with
/// DEVCOMM_LSA_SIZE=2 and 4 ranks: two hosts of two.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

/// Block `b` moves its part of each run of `length` elements.
__global__ void all_to_all(device_comm comm, gin::context_handle contexts, sym_ptr<float> send, sym_ptr<float> receive,
                           std::uint64_t length) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x), blockIdx.x};
  barrier.sync(gin::fence_level::none);  // every receiver is done with what it received before

  const std::uint64_t slice = (length + gridDim.x - 1) / gridDim.x;
  const std::uint64_t begin = min(blockIdx.x * slice, length);
  const std::uint64_t part = min(slice, length - begin);
  const auto run = [&](sym_ptr<float> of, int rank) {
    return of + static_cast<std::int64_t>(static_cast<std::uint64_t>(rank) * length + begin);
  };
  gin::context net = barrier.context(block{});
  const team near = comm.lsa();
  for (int step = 1; step < comm.size; ++step) {  // the network first: it works while the block stores
    const int rank = (comm.rank + step) % comm.size;
    if (!near.contains(rank)) net.put(rank, run(receive, comm.rank), run(send, rank), part);
  }
  for (int member = 0; member < near.size; ++member)
    copy(block{}, run(receive, comm.rank).lsa(member), run(send, near.world_rank(member)).local(), part);

  barrier.sync_across(gin::fence_level::put);  // all have received
  net.flush();                                 // send may be written again
}

/// What `from` sends to `to` as element `i`.
float element(int from, int to, std::uint64_t i) { return example::value(from * 64 + to, i); }

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      const auto size = static_cast<std::size_t>(comm.size());
      requirements needs = comm.requirements().lsa_barriers(blocks);
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
      if (comm.rank() == 0) {
        std::printf("hybrid_all_to_all: %d cases correct on %d ranks, %d in each LSA team\n", cases, comm.size(),
                    comm.lsa().size);
      }
    });
  });
}
