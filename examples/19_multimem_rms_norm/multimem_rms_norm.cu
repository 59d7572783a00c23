/// All-reduce and RMSNorm in one kernel by multimem: each rank takes its share of the rows, the NVLink switch adds them
/// up over all ranks, the block normalizes them in registers, and one store takes the result to all. Where there is no
/// multicast, the same kernel loads from each rank and stores to each.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/expect_rms_norm.hpp"

using namespace devcomm;

constexpr unsigned threads = 64;

/// The sum of what the threads of the block pass, in the order of their ranks.
__device__ float sum_over_block(float mine) {
  __shared__ float all[threads];
  __syncthreads();
  all[threadIdx.x] = mine;
  __syncthreads();
  float total = 0;
  for (unsigned t = 0; t < blockDim.x; ++t) total += all[t];
  return total;
}

/// In place. A row is a block's, and a thread has one pack of it.
__global__ void all_reduce_rms_norm(device_comm comm, multimem::barrier_handle barriers, sym_ptr<__half> hidden,
                                    const float* weight, int rows, float epsilon) {
  multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
  const multimem::ptr<__half> all(hidden);
  barrier.sync();  // all ranks' rows are complete
  if (barrier.agree() != status::success) return;
  const int ranks = comm.lsa_size;
  const auto first = static_cast<int>(blockIdx.x) * ranks + comm.lsa_rank();
  for (int row = first; row < rows; row += static_cast<int>(gridDim.x) * ranks) {
    const std::int64_t i = (std::int64_t{row} * blockDim.x + threadIdx.x) * pack<__half>::size;
    pack<__half> x = (all + i).load_reduce<sum>();
    float squares = 0;
    for (const __half& value : x.data) squares += static_cast<float>(value) * static_cast<float>(value);
    const auto columns = static_cast<float>(blockDim.x * pack<__half>::size);
    const float scale = rsqrtf(sum_over_block(squares) / columns + epsilon);
    const float* const factors = weight + threadIdx.x * pack<__half>::size;
    for (int e = 0; e < pack<__half>::size; ++e)
      x[e] = static_cast<__half>(static_cast<float>(x[e]) * scale * factors[e]);
    (all + i).store(x);
  }
  barrier.sync();  // all rows have arrived
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 2;
      constexpr std::size_t columns = threads * pack<__half>::size;
      constexpr std::size_t max_rows = 37;
      requirements needs = comm.requirements().with(lsa::whole_world{});
      const auto barriers = needs.add(multimem::barriers{blocks});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const host::symmetric_memory memory =
          comm.allocate(max_rows * columns * sizeof(__half), "hidden", multimem::policy::or_software);
      const auto weight = example::device_array(columns * sizeof(float));
      auto* const factors = reinterpret_cast<float*>(weight.get());
      const auto factor = [](std::uint64_t c) { return 0.5f + static_cast<float>(c % 5); };
      example::fill(factors, columns, factor);

      int cases = 0;
      for (const std::size_t rows : {std::size_t{1}, std::size_t{7}, max_rows}) {
        auto* const hidden = static_cast<__half*>(memory.data());
        example::fill(hidden, rows * columns, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
        comm.barrier();
        launch(all_reduce_rms_norm, {.grid = blocks, .block = threads}, device_comm.get(), barriers,
               memory.pointer<__half>(), static_cast<const float*>(factors), static_cast<int>(rows),
               example::norm_epsilon);
        check_cuda(cudaDeviceSynchronize(), "all_reduce_rms_norm");
        device_comm.check();
        example::expect_rms_norm(
            hidden, rows, columns, [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i); }, factor);
        comm.barrier();
        ++cases;
      }
      if (comm.rank() == 0) {
        std::printf("multimem_rms_norm: %d cases correct on %d ranks; multimem: %s\n", cases, comm.size(),
                    memory.multimem().reason.c_str());
      }
    });
  });
}
