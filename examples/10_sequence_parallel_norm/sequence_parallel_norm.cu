/// Between two layers that share out their weights, Megatron-LM's sequence parallelism shares out the rows: each rank
/// gets the sums of its rows, adds the residual, and normalizes; then all ranks get all rows. In one kernel:
///
///     residual += own rows of (sum over ranks of partial)                          reduce-scatter
///     normed = residual / sqrt(mean(residual^2) + epsilon) * weight, of all rows   all-gather
///
/// Both travel in packets, so all tensors are plain device memory, and there is no barrier.
#include "common/expect_rms_norm.hpp"

#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

using namespace devcomm;

/// A round of a mailbox after the first costs a fence, so each way has a mailbox of its own.
struct both_ways {
  lsa::lamport_handle scatter;
  lsa::lamport_handle gather;
};

template <class T>
struct tensors {
  const T* partial;  ///< all rows
  const T* weight;   ///< of one row
  T* residual;       ///< this rank's rows
  T* normed;         ///< all rows
  std::uint32_t rows;
  std::uint32_t hidden;  ///< elements of a row; fills whole packs
};

/// Each block takes rows of every rank in turn, and keeps its own in shared memory in between.
template <int Threads, class T>
__global__ void __launch_bounds__(Threads)
    sequence_parallel_norm(device_comm comm, both_ways mailboxes, tensors<T> on) {
  extern __shared__ __align__(16) unsigned char in_shared[];
  const collective::norm_rows<T> norm{in_shared, 1, on.hidden};

  const std::uint64_t rows_of_rank = collective::shard_length(on.rows, comm.lsa_size);
  const std::uint64_t count = std::uint64_t{on.rows} * on.hidden;
  const std::uint64_t length = rows_of_rank * on.hidden;
  const std::uint64_t mine = collective::shard_of_length(count, length, comm.lsa().rank).size() / on.hidden;
  const collective::from_shards<T> partials{on.partial, count, length};
  const collective::from_memory<T> weights{on.weight, on.hidden};

  lsa::lamport_session scatter{block{}, comm, mailboxes.scatter, blockIdx.x};
  lsa::lamport_session gather{block{}, comm, mailboxes.gather, blockIdx.x};
  for (std::uint64_t row = blockIdx.x; row < rows_of_rank; row += gridDim.x) {
    const collective::slice packs{row * norm.row_packs(), (row + 1) * norm.row_packs()};
    // Where rows do not come out even, the last ranks have none in the last round.
    collective::reduce_scatter<T>(scatter, packs, partials, norm.add_to(row < mine ? on.residual : nullptr, row),
                                  sum{});
    if (scatter.agree() != status::success) return;  // of a row with gaps there is no norm

    const float scale = norm.scale(0, example::norm_epsilon);
    collective::all_gather<T>(
        gather, packs,
        [&](std::uint64_t i) {
          pack<T> normed = norm.kept(0, i - packs.begin);
          const pack<T> factors = weights(i - packs.begin);
          for (int e = 0; e < pack<T>::size; ++e)
            normed[e] = static_cast<T>(static_cast<float>(normed[e]) * scale * static_cast<float>(factors[e]));
          return normed;
        },
        collective::to_shards<T>{on.normed, count, length});
  }  // what comes next writes the row after the mailbox's next round has begun, which synchronizes
}

template <class T>
void run_case(host::communicator& comm, const host::device_communicator& device_comm, both_ways mailboxes,
              std::byte* memory, std::uint32_t rows, std::uint32_t hidden) {
  constexpr unsigned blocks = 2;
  constexpr unsigned threads = 64;
  const std::size_t count = std::size_t{rows} * hidden;
  const std::uint64_t length = collective::shard_length(rows, comm.size()) * hidden;
  const collective::slice mine = collective::shard_of_length(count, length, comm.rank());
  T* const partial = reinterpret_cast<T*>(memory);
  T* const normed = partial + count;
  T* const residual = normed + count;
  T* const weight = residual + count;
  example::fill(partial, count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
  example::fill(residual, mine.size(), [&](std::uint64_t i) { return example::value(100, mine.begin + i); });
  example::fill(weight, hidden, [&](std::uint64_t i) { return example::value(200, i); });
  example::poison(normed, count);

  launch(sequence_parallel_norm<threads, T>,
         {.grid = blocks,
          .block = threads,
          .shared_bytes = collective::norm_rows<T>::bytes(1, hidden),
          .stream = cudaStreamPerThread},
         device_comm.get(), mailboxes, tensors<T>{partial, weight, residual, normed, rows, hidden});
  check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "sequence_parallel_norm");
  device_comm.check();

  const auto expected = [&](std::uint64_t i) {
    return example::sum_of_values(comm.size(), i) + example::value(100, i);
  };
  example::expect(residual, mine.size(), "residual", [&](std::uint64_t i) { return expected(mine.begin + i); });
  example::expect_rms_norm(normed, rows, hidden, expected, [](std::uint64_t e) { return example::value(200, e); });
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      requirements needs = comm.requirements().with(lsa::whole_world{});
      const lsa::lamport_handle scatter = needs.add(lsa::lamport_mailboxes{comm.lsa(), 2, 128});
      const both_ways mailboxes{scatter, needs.add(lsa::lamport_mailboxes{comm.lsa(), 2, 128})};
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const auto memory = example::device_array(1 << 20);

      int cases = 0;
      for (const auto& [rows, hidden] : {std::pair{1u, 64u}, {8u, 512u}, {11u, 1032u}}) {
        run_case<__nv_bfloat16>(comm, device_comm, mailboxes, memory.get(), rows, hidden);
        run_case<float>(comm, device_comm, mailboxes, memory.get(), rows, hidden);
        cases += 2;
      }

      if (comm.rank() == 0) {
        std::printf("sequence_parallel_norm: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
      comm.barrier();
    });
  });
}
