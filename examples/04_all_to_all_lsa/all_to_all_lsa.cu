/// All-to-all: rank r sends its s-th run of elements to rank s, straight into the receiver's memory.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

template <class T>
__global__ void all_to_all(device_comm comm, const T* send, sym_ptr<T> receive, std::uint64_t count_per_rank) {
  const team ranks = comm.lsa();
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);  // every receiver is done with what it received before

  const std::uint64_t slice = (count_per_rank + gridDim.x - 1) / gridDim.x;
  const std::uint64_t begin = min(blockIdx.x * slice, count_per_rank);
  const std::uint64_t length = min(slice, count_per_rank - begin);
  const std::uint64_t to = static_cast<std::uint64_t>(ranks.rank) * count_per_rank + begin;
  for (int step = 0; step < ranks.size; ++step) {
    const int peer = (ranks.rank + step) % ranks.size;  // each rank starts with another receiver
    const std::uint64_t from = static_cast<std::uint64_t>(peer) * count_per_rank + begin;
    copy(block{}, receive.lsa(peer) + to, send + from, length);
  }

  barrier.sync(memory_order::acq_rel);  // all have received
}

/// What `from` sends to `to` as element `i`.
float element(int from, int to, std::uint64_t i) { return example::value(from * 64 + to, i); }

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr unsigned threads = 64;
      const auto size = static_cast<std::size_t>(comm.size());
      const requirements needs = comm.requirements().lsa_barriers(blocks).with(lsa::whole_world{});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory memory = comm.allocate(size * 40016 * sizeof(float));
      const auto inputs = example::device_array(size * 40016 * sizeof(float));

      const int cases = example::for_each_case([&]<class T>(std::size_t count, std::size_t offset) {
        const sym_ptr<T> receive = memory.pointer<T>() + static_cast<std::int64_t>(offset);
        T* send = reinterpret_cast<T*>(inputs.get());
        example::fill(send, size * count,
                      [&](std::uint64_t i) { return element(comm.rank(), static_cast<int>(i / count), i % count); });
        example::poison(receive.local(), size * count);
        comm.barrier();  // nobody sends before all have poisoned

        launch(all_to_all<T>, {.grid = blocks, .block = threads}, device_comm.get(), send, receive, count);
        check_cuda(cudaDeviceSynchronize(), "all_to_all");
        device_comm.check();

        example::expect(receive.local(), size * count, example::type_name<T>(),
                        [&](std::uint64_t i) { return element(static_cast<int>(i / count), comm.rank(), i % count); });
      });

      if (comm.rank() == 0) {
        std::printf("all_to_all_lsa: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
    });
  });
}
