/// All-reduce, residual and RMSNorm of a transformer's layer in one kernel, by the hooks of the all-reduce:
///
///     residual += sum over ranks of partial
///     normed = residual / sqrt(mean(residual^2) + epsilon) * weight      for each row of `hidden` elements
///
/// Both results are written on every rank. Only the partial sums travel, in packets; so all tensors are plain device
/// memory, and there is no barrier.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/expect_rms_norm.hpp"

using namespace devcomm;

/// Rows of which a block holds the results at once, in dynamic shared memory, `hidden` elements each.
struct rms_norm_shape {
  std::uint32_t rows;
  std::uint32_t hidden;  ///< elements of a row; fills whole packs
  std::uint32_t rows_at_once;

  template <class T>
  [[nodiscard]] constexpr std::size_t shared_bytes() const {
    return collective::norm_rows<T>::bytes(rows_at_once, hidden);
  }
};

struct one_shot {
  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_reduce_one_shot<T>(session, packs, produce, consume, sum{});
  }
};
struct two_shot {
  template <class T, class Session, class Produce, class Consume>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce,
                             const Consume& consume) {
    collective::all_reduce_two_shot<T>(session, packs, produce, consume, sum{});
  }
};

/// Each block of `Threads` threads takes rows in turn, `rows_at_once` of them in one round of its mailbox.
template <class Algorithm, class T, int Threads>
__global__ void __launch_bounds__(Threads)
    all_reduce_rms_norm(device_comm comm, lsa::lamport_handle mailboxes, const T* partial, const T* weight, T* residual,
                        T* normed, rms_norm_shape shape, float epsilon) {
  extern __shared__ __align__(16) unsigned char rows_in_shared[];
  allow_dependent_launch();
  wait_for_prior_launch();

  const collective::norm_rows<T> norm{rows_in_shared, shape.rows_at_once, shape.hidden};
  const collective::from_memory<T> partials{partial, std::uint64_t{shape.rows} * shape.hidden};
  const collective::to_rows<T> output{normed, shape.hidden};
  lsa::lamport_session session{block{}, comm, mailboxes, blockIdx.x};
  const std::uint32_t step = gridDim.x * shape.rows_at_once;
  for (std::uint32_t first = blockIdx.x * shape.rows_at_once; first < shape.rows; first += step) {
    const std::uint32_t rows = min(shape.rows_at_once, shape.rows - first);
    const collective::slice packs{first * norm.row_packs(), (first + rows) * norm.row_packs()};
    Algorithm::template run<T>(session, packs, partials, norm.add_to(residual, first));
    if (session.agree() != status::success) return;  // synchronizes; of rows with a gap there is no norm
    for (std::uint32_t row = 0; row < rows; ++row) norm.normalize(block{}, row, weight, epsilon, output, first + row);
  }
}

namespace {

constexpr unsigned blocks = 2;
constexpr unsigned threads = 64;

template <class Algorithm, class T>
void run_case(host::communicator& comm, const host::device_communicator& device_comm, lsa::lamport_handle mailboxes,
              std::byte* memory, const rms_norm_shape& shape) {
  const std::size_t count = std::size_t{shape.rows} * shape.hidden;
  T* const partial = reinterpret_cast<T*>(memory);
  T* const residual = partial + count;
  T* const normed = residual + count;
  T* const weight = normed + count;
  example::fill(partial, count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
  example::fill(residual, count, [&](std::uint64_t i) { return example::value(100, i); });
  example::fill(weight, shape.hidden, [&](std::uint64_t i) { return example::value(200, i); });
  example::poison(normed, count);

  launch(all_reduce_rms_norm<Algorithm, T, threads>,
         {.grid = blocks, .block = threads, .shared_bytes = shape.shared_bytes<T>(), .stream = cudaStreamPerThread},
         device_comm.get(), mailboxes, static_cast<const T*>(partial), static_cast<const T*>(weight), residual, normed,
         shape, example::norm_epsilon);
  check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "all_reduce_rms_norm");
  device_comm.check();

  example::expect(residual, count, "residual",
                  [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i) + example::value(100, i); });
  example::expect_rms_norm(
      normed, shape.rows, shape.hidden,
      [&](std::uint64_t i) { return example::sum_of_values(comm.size(), i) + example::value(100, i); },
      [](std::uint64_t e) { return example::value(200, e); });
}

}  // namespace

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      requirements needs = comm.requirements().with(lsa::whole_world{});
      const lsa::lamport_handle mailboxes = needs.add(lsa::lamport_mailboxes{comm.lsa(), blocks, 256});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const auto memory = example::device_array(1 << 20);

      int cases = 0;
      for (const rms_norm_shape& shape : {rms_norm_shape{1, 64, 1}, {7, 512, 1}, {7, 512, 2}, {5, 1032, 1}}) {
        run_case<one_shot, __nv_bfloat16>(comm, device_comm, mailboxes, memory.get(), shape);
        run_case<two_shot, __nv_bfloat16>(comm, device_comm, mailboxes, memory.get(), shape);
        run_case<two_shot, float>(comm, device_comm, mailboxes, memory.get(), shape);
        cases += 3;
      }

      if (comm.rank() == 0) {
        std::printf("fused_rms_norm: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
      comm.barrier();
    });
  });
}
