/// All-reduce, residual and RMSNorm in one kernel, by the hooks of the all-reduce; rms_norm.cuh has the kernel.
#include "07_fused_rms_norm/rms_norm.cuh"

#include <devcomm/host/run_ranks.hpp>

#include "common/expect_rms_norm.hpp"

using namespace devcomm;

namespace {

constexpr unsigned blocks = 2;
constexpr unsigned threads = 64;

template <class Algorithm, class T>
void run_case(host::communicator& comm, const host::device_communicator& device_comm, lsa::lamport_handle mailboxes,
              std::byte* memory, const example::rms_norm_shape& shape) {
  const std::size_t count = std::size_t{shape.rows} * shape.hidden;
  T* const partial = reinterpret_cast<T*>(memory);
  T* const residual = partial + count;
  T* const normed = residual + count;
  T* const weight = normed + count;
  example::fill(partial, count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
  example::fill(residual, count, [&](std::uint64_t i) { return example::value(100, i); });
  example::fill(weight, shape.hidden, [&](std::uint64_t i) { return example::value(200, i); });
  example::poison(normed, count);

  launch(
      example::all_reduce_rms_norm<Algorithm, T, threads>,
      {.grid = blocks, .block = threads, .shared_bytes = shape.shared_bytes(sizeof(T)), .stream = cudaStreamPerThread},
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
      for (const example::rms_norm_shape& shape :
           {example::rms_norm_shape{1, 64, 1}, {7, 512, 1}, {7, 512, 2}, {5, 1032, 1}}) {
        run_case<example::one_shot, __nv_bfloat16>(comm, device_comm, mailboxes, memory.get(), shape);
        run_case<example::two_shot, __nv_bfloat16>(comm, device_comm, mailboxes, memory.get(), shape);
        run_case<example::two_shot, float>(comm, device_comm, mailboxes, memory.get(), shape);
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
