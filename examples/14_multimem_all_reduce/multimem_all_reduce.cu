/// Two-shot all-reduce by multimem: each rank takes its share of the packs, the NVLink switch adds them up over all
/// ranks, and one store takes the sum to all. Where there is no multicast, the same kernel loads from each rank and
/// stores to each. `collective::all_reduce_two_shot_multimem` is this, for any count and alignment.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

constexpr int in_flight = 8;  // packs of 16 bytes that a thread has under way

/// In place. `packs` packs from the tensor's start on.
template <class T>
__global__ void all_reduce(device_comm comm, multimem::barrier_handle barriers, sym_ptr<T> tensor,
                           std::uint64_t packs) {
  multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
  const multimem::ptr<T> all(tensor);
  const auto at = [&](std::uint64_t p) { return all + static_cast<std::int64_t>(p * pack<T>::size); };

  barrier.sync();  // all ranks' tensors are complete
  if (barrier.agree() != status::success) return;
  // Ranks work side by side: blocks are numbered across ranks, and take rows in turn.
  const auto ranks = static_cast<std::uint64_t>(comm.lsa_size);
  const std::uint64_t self = blockIdx.x * ranks + static_cast<std::uint64_t>(comm.lsa_rank());
  const std::uint64_t row = std::uint64_t{blockDim.x} * in_flight;
  for (std::uint64_t first = self * row; first < packs; first += gridDim.x * ranks * row) {
    pack<T> sums[in_flight];
    for (int u = 0; u < in_flight; ++u) {
      const std::uint64_t p = first + static_cast<std::uint64_t>(u) * blockDim.x + threadIdx.x;
      if (p < packs) sums[u] = at(p).template load_reduce<sum>();
    }
    for (int u = 0; u < in_flight; ++u) {
      const std::uint64_t p = first + static_cast<std::uint64_t>(u) * blockDim.x + threadIdx.x;
      if (p < packs) at(p).store(sums[u]);
    }
  }
  barrier.sync();  // all sums have arrived
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned threads = 64;
      const unsigned blocks = collective::multimem_blocks(comm.size(), false);
      constexpr std::size_t capacity = 1 << 20;
      requirements needs = comm.requirements().with(lsa::whole_world{});
      const auto barriers = needs.add(multimem::barriers{blocks});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory tensor = comm.allocate(capacity, "tensor", multimem::policy::or_software);

      int cases = 0;
      for (const std::size_t count : {4u, 1024u, 100000u}) {
        auto* const data = static_cast<float*>(tensor.data());
        example::fill(data, count, [&](std::uint64_t i) { return example::value(comm.rank(), i, 0); });
        comm.barrier();
        launch(all_reduce<float>, {.grid = blocks, .block = threads}, device_comm.get(), barriers,
               tensor.pointer<float>(), packs_of<float>(count));
        check_cuda(cudaDeviceSynchronize(), "all_reduce");
        device_comm.check();
        example::expect(data, count, example::type_name<float>(),
                        [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i, 0); });
        comm.barrier();
        ++cases;
      }
      if (comm.rank() == 0) {
        std::printf("multimem_all_reduce: %d cases correct on %d ranks; multimem: %s\n", cases, comm.size(),
                    tensor.multimem().reason.c_str());
      }
    });
  });
}
