/// An all-reduce fused with what comes after it: `hidden = sum over ranks of partial, plus residual`, in one
/// kernel. Packets carry their own flags, so there is no barrier, and only this rank touches its tensors:
/// they are plain device memory, of any alignment.
#include <devcomm/devcomm.cuh>
#include <devcomm/host/run_ranks.hpp>

#include "common/check.hpp"

using namespace devcomm;

template <class T>
__global__ void add_all_reduced(device_comm comm, lsa::lamport_handle mailboxes, const T* partial, const T* residual,
                                T* hidden, std::uint64_t count) {
  const collective::from_memory<T> partials{partial, count};
  const collective::from_memory<T> residuals{residual, count};
  const collective::to_memory<T> results{hidden, count};

  // Each block takes a slice of whole packs, on a mailbox of its own.
  const collective::slice packs = collective::slice_of_block(collective::packs_of<T>(count));
  lsa::lamport_session session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_reduce_one_shot<T>(
      session, packs, partials,
      [&](std::uint64_t i, pack<T> sums) {
        const pack<T> added = residuals(i);
        for (int e = 0; e < pack<T>::size; ++e)
          sums[e] = static_cast<T>(static_cast<float>(sums[e]) + static_cast<float>(added[e]));
        results(i, sums);
      },
      sum{});
}

int main() {
  return example::run([] {
    host::run_ranks({}, [](host::communicator& comm) {
      constexpr unsigned blocks = 4;
      constexpr unsigned threads = 64;
      requirements needs = comm.requirements().with(lsa::whole_world{});
      const lsa::lamport_handle mailboxes =
          needs.add(lsa::lamport_mailboxes{comm.lsa(), blocks, collective::one_shot_capacity(512)});
      const host::device_communicator device_comm = comm.create_device_comm(needs);
      const auto partial = example::device_array(1 << 18);
      const auto residual = example::device_array(1 << 18);
      const auto hidden = example::device_array(1 << 18);

      const int cases = example::for_each_case(
          [&]<class T>(std::size_t count, std::size_t offset) {
            T* in = reinterpret_cast<T*>(partial.get()) + offset;
            T* added = reinterpret_cast<T*>(residual.get());
            T* out = reinterpret_cast<T*>(hidden.get()) + offset;
            example::fill(in, count, [&](std::uint64_t i) { return example::value(comm.rank(), i); });
            example::fill(added, count, [&](std::uint64_t i) { return example::value(100, i); });
            example::poison(out, count + 1);

            launch(add_all_reduced<T>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
                   device_comm.get(), mailboxes, static_cast<const T*>(in), static_cast<const T*>(added), out, count);
            check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "add_all_reduced");
            device_comm.check();

            example::expect(out, count, example::type_name<T>(), [&](std::uint64_t i) {
              return example::sum_of_values(comm.size(), i) + example::value(100, i);
            });
          },
          9001);

      if (comm.rank() == 0) {
        std::printf("fused_all_reduce: %d cases correct on %d ranks (%s)\n", cases, comm.size(),
                    comm.properties().device_name.c_str());
      }
      comm.barrier();
    });
  });
}
