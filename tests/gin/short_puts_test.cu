// Puts of at most 8 bytes, whose source the posting thread reads, as on GPUs: in the simulator too.
#include <devcomm/devcomm.cuh>

#include "context_kernels.cuh"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;
using namespace gin_test;

static_assert(devcomm::arch::short_puts_are_values, "this program is about them");

namespace {

constexpr std::uint32_t places = 3;
constexpr std::uint32_t most = 12;  // bytes of a put; those above 8 are no values
constexpr std::uint32_t place_bytes = 32;
constexpr std::uint32_t rounds = 4;
constexpr char untouched = 0x5a;

/// Bytes from `from` on to the next rank, to `to`; the source is written by all threads and read again at once.
__global__ void put_few(device_comm comm, gin::context_handle contexts, sym_ptr<char> in, sym_ptr<char> out,
                        std::uint32_t* wrong) {
  gin::context net{block{}, comm, contexts, 0};
  const int next = (comm.rank + 1) % comm.size;
  const int previous = (comm.rank + comm.size - 1) % comm.size;
  std::uint32_t puts = 0;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::uint32_t bytes = 0; bytes <= most; ++bytes) {
      const std::uint32_t place = bytes % places;
      const sym_ptr<char> source = in + static_cast<std::int64_t>(bytes * place_bytes + place);
      const sym_ptr<char> destination = out + static_cast<std::int64_t>(bytes * place_bytes + places - place);
      write_bytes(source.local(), bytes, comm.rank, round);
      net.put(next, destination, source, bytes, gin::signal_add{0, 1, gin::strength::weak}, gin::counter_increment{0});
      net.wait_signal(0, ++puts);
      wrong[threadIdx.x] += wrong_bytes(destination.local(), bytes, previous, round);
      if (threadIdx.x < places - place)
        wrong[threadIdx.x] += destination.local()[-1 - static_cast<int>(threadIdx.x)] != untouched ? 1u : 0u;
      if (threadIdx.x < places) wrong[threadIdx.x] += destination.local()[bytes + threadIdx.x] != untouched ? 1u : 0u;
      net.wait_counter(0, puts);
      net.signal(previous, gin::signal_add{1});
      net.flush();
      net.wait_signal(1, puts);
    }
  }
}

}  // namespace

TEST_CASE("a put of few bytes carries these and no more, with its signal and its counter") {
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{comm.world(), 1, 2, 1});
      const auto device_comm = comm.create_device_comm(needs);
      const auto in = comm.allocate((most + 1) * place_bytes);
      const auto out = comm.allocate((most + 1) * place_bytes);
      check_cuda(cudaMemsetAsync(out.data(), untouched, out.bytes(), cudaStreamPerThread), "cudaMemsetAsync");
      test::finish("cudaMemsetAsync");
      comm.barrier();
      const test::device_array<std::uint32_t> wrong(threads);
      launch(put_few, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), wrong.get());
      test::finish("put_few");
      device_comm.check();
      require_none(wrong, "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  }
}
