/// Ring all-reduce, written with the primitives of a channel: each rank sends to the next and receives from the
/// previous one. The vector is cut into a chunk for each rank; partial sums go round once, results a second time. Needs
/// nothing of the vectors: any memory, any alignment. `collective::all_reduce_ring` is this, and more.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

template <class T, channel::protocol Protocol>
__global__ void ring_all_reduce(device_comm comm, channel::fifo_handle<Protocol> fifos, const T* input, T* output,
                                std::uint64_t count) {
  const team ranks = comm.lsa();
  channel::session ring{block{}, comm, fifos, channel::from_previous(ranks, blockIdx.x),
                        channel::to_next(ranks, blockIdx.x)};
  const collective::from_memory<T> mine{input, count};
  const collective::to_memory<T> result{output, count};

  const slice packs = collective::slice_of_block(packs_of<T>(count));  // FIFO b carries the slice of block b
  if (ranks.size == 1) {
    for (std::uint64_t i = packs.begin + threadIdx.x; i < packs.end; i += blockDim.x) result(i, mine(i));
    return;
  }
  const int me = ranks.rank;
  const auto size = static_cast<std::uint64_t>(ranks.size);
  const std::uint64_t at_once = ring.capacity() * size;  // a slot for each chunk
  for (std::uint64_t begin = packs.begin; begin < packs.end; begin += at_once) {
    const std::uint64_t end = min(begin + at_once, packs.end);
    const std::uint64_t length = (end - begin + size - 1) / size;
    const auto chunk = [&](int rank) -> slice {
      const auto member = static_cast<std::uint64_t>((rank + ranks.size) % ranks.size);
      const std::uint64_t first = min(begin + member * length, end);
      return {first, min(first + length, end)};
    };
    ring.template send<T>(chunk(me - 1), mine);
    for (int step = 2; step < ranks.size; ++step) ring.template recv_reduce_send<T>(chunk(me - step), mine, sum{});
    ring.template recv_reduce_copy_send<T>(chunk(me), mine, result, sum{}, ranks.size);
    for (int step = 1; step < ranks.size - 1; ++step) ring.template recv_copy_send<T>(chunk(me - step), result);
    ring.template recv<T>(chunk(me + 1), result);
  }
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr unsigned threads = 64;
      constexpr channel::protocol protocol = channel::protocol::simple;
      requirements needs = comm.requirements().with(lsa::whole_world{});
      const auto fifos = needs.add(channel::fifos<protocol>{comm.lsa(), blocks, 256});  // packs of a slot
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const auto inputs = example::device_array(1 << 20);
      const auto results = example::device_array(1 << 20);

      const int cases = example::for_each_case([&]<class T>(std::size_t count, std::size_t offset) {
        T* input = reinterpret_cast<T*>(inputs.get()) + offset;
        T* output = reinterpret_cast<T*>(results.get());
        example::fill(input, count, [&](std::uint64_t i) { return example::value(comm.rank(), i, 0); });
        example::poison(output, count + 1);
        launch(ring_all_reduce<T, protocol>, {.grid = blocks, .block = threads}, device_comm.get(), fifos, input,
               output, count);
        check_cuda(cudaDeviceSynchronize(), "ring_all_reduce");
        device_comm.check();
        example::expect(output, count, example::type_name<T>(),
                        [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i, 0); });
      });
      if (comm.rank() == 0) {
        std::printf("ring_all_reduce: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
    });
  });
}
