#include <devcomm/devcomm.cuh>

#include "lsa/exchange.cuh"
#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

using namespace devcomm;

TEST_CASE("lamport_session brings each pack of each round to its receiver") {
  test::check_exchanges<lsa::lamport_session<block>>();
}

namespace {

constexpr unsigned threads = 64;
using lamport = lsa::lamport_session<block>;

template <class T>
__global__ void all_reduce(device_comm comm, lsa::lamport_handle mailboxes, const T* input, T* output,
                           std::uint64_t count) {
  lamport session{block{}, comm, mailboxes, blockIdx.x};
  collective::all_reduce_one_shot<T>(session, collective::slice_of_block(collective::packs_of<T>(count)),
                                     collective::from_memory<T>{input, count}, collective::to_memory<T>{output, count},
                                     sum{});
}

/// Every number, infinity and NaN comes through; `words` are the bits of elements of `T` on rank 0, the others add 0.
template <class T, class Bits>
void check_bits_come_through(const std::vector<Bits>& words, Bits minus_zero) {
  test::on_ranks(2, [&words, minus_zero](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<lamport>(comm.lsa(), 1, 64));
    const auto device_comm = comm.create_device_comm(needs);
    const std::vector<Bits> input = comm.rank() == 0 ? words : std::vector<Bits>(words.size(), minus_zero);
    const test::device_array<Bits> from(input);
    const test::device_array<Bits> to(words.size(), 0x5a);
    launch(all_reduce<T>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes,
           reinterpret_cast<const T*>(from.get()), reinterpret_cast<T*>(to.get()), words.size());
    test::finish("all_reduce");
    device_comm.check();
    const auto got = to.read();
    for (std::size_t i = 0; i < words.size(); ++i) {
      T in;
      T out;
      std::memcpy(static_cast<void*>(&in), &words[i], sizeof in);
      std::memcpy(static_cast<void*>(&out), &got[i], sizeof out);
      const auto before = static_cast<float>(in);
      const auto after = static_cast<float>(out);
      test::require(std::isnan(before) ? std::isnan(after) : words[i] == got[i],
                    [&] { return "element " + std::to_string(i) + " of the words"; });
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("a Lamport mailbox carries every floating-point number, also what it marks empty places with") {
  check_bits_come_through<float, std::uint32_t>({0, 0x80000000u, 0xffffffffu, 0xfffffffeu, 1, 0x7f800000u, 0xff800000u,
                                                 0x7fc00000u, 0x3f800000u, 0xffff0000u, 0x0000ffffu},
                                                0x80000000u);
  check_bits_come_through<__half, std::uint16_t>(
      {0, 0x8000, 0xffff, 0xffff, 0xfffe, 0xffff, 1, 0x7c00, 0xfc00, 0x7e00, 0x3c00, 0xffff, 0, 0, 0xffff}, 0x8000);
  check_bits_come_through<__nv_bfloat16, std::uint16_t>(
      {0, 0x8000, 0xffff, 0xffff, 0xfffe, 0xffff, 1, 0x7f80, 0xff80, 0x7fc0, 0x3f80, 0xffff, 0, 0, 0xffff}, 0x8000);
  check_bits_come_through<__nv_fp8_e4m3, std::uint8_t>(
      {0,    0x80, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xff,
       0xfe, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7e, 0x01, 0x81, 0x38, 0xff, 0xff, 0xff, 0x7f},
      0x80);
}
