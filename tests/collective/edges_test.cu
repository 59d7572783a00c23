// Vectors that end where memory ends: what reads or writes one element past them faults.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 32;
constexpr std::uint64_t most = 40;      // elements
constexpr std::uint64_t memory = 8192;  // bytes: whole pages, so that nothing follows

template <class T>
__host__ __device__ T element(int rank, std::uint64_t i) {
  return static_cast<T>((static_cast<std::uint64_t>(rank) * 5 + i * 3) % 13);
}

/// The last `count` elements of memory that starts at `base`.
template <class T>
__device__ T* last(void* base, std::uint64_t count) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + memory) - count;
}

template <class T>
__device__ void fill(T* data, int rank, std::uint64_t count) {
  __syncthreads();
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) data[i] = element<T>(rank, i);
  __syncthreads();
}

template <class T>
__device__ void check_sums(T* data, int ranks, std::uint64_t count, unsigned* wrong) {
  __syncthreads();
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
    T sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum = static_cast<T>(sum + element<T>(rank, i));
    if (data[i] != sum) atomicAdd(wrong, 1u);
    data[i] = 0;
  }
  __syncthreads();
}

struct resources {
  device_comm comm;
  lsa::ll_handle mailboxes;
  window source;       ///< inputs that peers read
  window destination;  ///< outputs that peers write
  collective::chunk_buffers chunks;
  void* input;
  void* output;
  unsigned* wrong;
};

/// Vectors of every length up to `most`, in memory of the rank's own and in windows.
template <class T>
__global__ void reduce_to_the_end(resources at) {
  const device_comm& comm = at.comm;
  const team ranks = comm.lsa();
  lsa::ll_session session{block{}, comm, at.mailboxes, 0};
  lsa::barrier_session barrier{block{}, comm, 0};
  for (std::uint64_t count = 1; count <= most; ++count) {
    T* const input = last<T>(at.input, count);
    T* const output = last<T>(at.output, count);
    const collective::slice packs{0, collective::packs_of<T>(count)};
    fill(input, comm.rank, count);
    collective::all_reduce_one_shot<T>(session, packs, collective::from_memory<T>{input, count},
                                       collective::to_memory<T>{output, count}, sum{});
    check_sums(output, ranks.size, count, at.wrong);

    const sym_ptr<T> source{at.source, memory - count * sizeof(T)};
    const sym_ptr<T> destination{at.destination, memory - count * sizeof(T)};
    fill(source.local(), comm.rank, count);
    collective::all_reduce_one_shot_zero_copy(barrier, source, output, count, sum{});
    check_sums(output, ranks.size, count, at.wrong);
    collective::all_reduce_two_shot_zero_copy(barrier, source, destination, count, sum{});
    check_sums(destination.local(), ranks.size, count, at.wrong);
    collective::all_reduce_two_shot_chunked<T>(
        barrier, collective::chunk_scratch::of_group(comm, at.chunks, at.chunks.packs_for(1, ranks.size), 0), packs,
        collective::from_memory<T>{input, count}, collective::to_window<T>{destination, count}, sum{});
    check_sums(destination.local(), ranks.size, count, at.wrong);
    copy(block{}, output, static_cast<const T*>(input), count);
    __syncthreads();
    for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x)
      if (output[i] != input[i]) atomicAdd(at.wrong, 1u);
    barrier.sync();  // the next vectors lie elsewhere
  }
}

template <class T>
void check() {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    auto needs = comm.requirements().lsa_barriers(1);
    const auto mailboxes = needs.add(lsa::mailboxes_for<lsa::ll_session<block>>(comm.lsa(), 1, 8));
    const auto chunks = needs.add(collective::chunk_buffer_bytes{1 << 12});
    const auto device_comm = comm.create_device_comm(needs);
    const auto source = comm.allocate(memory, "source");
    const auto destination = comm.allocate(memory, "destination");
    void* input = nullptr;
    void* output = nullptr;
    check_cuda(cudaMalloc(&input, memory), "cudaMalloc");
    check_cuda(cudaMalloc(&output, memory), "cudaMalloc");
    const test::device_array<unsigned> wrong(1);
    comm.barrier();
    launch(reduce_to_the_end<T>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
           resources{device_comm.get(), mailboxes, source.window(), destination.window(), chunks, input, output,
                     wrong.get()});
    test::finish("reduce_to_the_end");
    device_comm.check();
    test::require(wrong.read().front() == 0,
                  std::to_string(wrong.read().front()) + " wrong on rank " + std::to_string(comm.rank()));
    comm.barrier();
    check_cuda(cudaFree(input), "cudaFree");
    check_cuda(cudaFree(output), "cudaFree");
  });
}

}  // namespace

TEST_CASE("nothing is read or written past vectors that end where memory ends") {
  check<std::uint8_t>();
  check<float>();
  check<double>();
}
