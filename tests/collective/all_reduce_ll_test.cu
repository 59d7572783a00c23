#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstring>
#include <string>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;

/// Each block reduces its slice of whole packs on a channel of its own.
template <class T, class Operator>
__global__ void all_reduce(device_comm comm, ll_handle channels, const T* input, T* output, std::uint64_t count) {
  const collective::slice packs = collective::slice_of_block(collective::packs_of<T>(count));
  const collective::from_memory<T> source{input, count};
  const collective::to_memory<T> destination{output, count};
  lsa::ll_session channel{block{}, comm, channels, blockIdx.x};
  collective::all_reduce_ll<T>(
      channel, packs.size(), [&](std::uint64_t i) { return source(packs.begin + i); },
      [&](std::uint64_t i, const pack<T>& value) { destination(packs.begin + i, value); }, Operator{});
}

/// Whole numbers that are small enough for exact sums in every type.
template <class T>
T element(int rank, std::uint64_t i, int round = 0) {
  const auto mix =
      (i * 2654435761u) ^ (static_cast<std::uint64_t>(rank + 1) * 40503u) ^ (static_cast<std::uint64_t>(round) * 977u);
  return static_cast<T>(static_cast<float>(mix % 15) - 7.0f);
}

constexpr unsigned most_blocks = 3;

/// Device memory for all cases of a rank. Freeing would wait for all kernels of the device, also for those of
/// a rank that shares it and waits for this one.
struct buffers {
  test::device_array<std::byte> input{1 << 16};
  test::device_array<std::byte> output{1 << 16};

  template <class T>
  T* write_input(const std::vector<T>& values) {
    return write(input, values);
  }
  template <class T>
  T* write_output(const std::vector<T>& values) {
    return write(output, values);
  }
  template <class T>
  std::vector<T> read_output(std::size_t count) const {
    const auto bytes = output.read();
    std::vector<T> values(count);
    std::memcpy(static_cast<void*>(values.data()), bytes.data(), count * sizeof(T));
    return values;
  }

 private:
  template <class T>
  static T* write(test::device_array<std::byte>& to, const std::vector<T>& values) {
    std::vector<std::byte> bytes(to.size());
    test::require(values.size() * sizeof(T) <= bytes.size(), "the test's buffers are too small");
    std::memcpy(bytes.data(), static_cast<const void*>(values.data()), values.size() * sizeof(T));
    to.write(bytes);
    return reinterpret_cast<T*>(to.get());
  }
};

/// Reduces `count` elements with input and output so many elements past a 16-byte boundary, and checks
/// every element and the ones around the output.
template <class T>
void check_sum(host::communicator& comm, const host::device_communicator& device_comm, ll_handle channels,
               buffers& memory, unsigned blocks, std::size_t count, std::size_t input_skew, std::size_t output_skew,
               int round) {
  constexpr std::size_t guard = 16;
  std::vector<T> input(count + input_skew);
  for (std::size_t i = 0; i < count; ++i) input[input_skew + i] = element<T>(comm.rank(), i, round);
  std::vector<T> expected(2 * guard + count + output_skew);
  std::memset(static_cast<void*>(expected.data()), 0x5a, expected.size() * sizeof(T));
  const T* from = memory.write_input(input);
  T* to = memory.write_output(expected);
  launch(all_reduce<T, sum>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
         channels, from + input_skew, to + guard + output_skew, count);
  test::finish("all_reduce");
  device_comm.check();
  for (std::size_t i = 0; i < count; ++i) {
    float total = 0;
    for (int rank = 0; rank < comm.size(); ++rank) total += static_cast<float>(element<T>(rank, i, round));
    expected[guard + output_skew + i] = static_cast<T>(total);
  }
  const auto got = memory.read_output<T>(expected.size());
  test::require(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(T)) == 0,
                "rank " + std::to_string(comm.rank()) + ": wrong result for " + std::to_string(count) +
                    " elements of " + std::to_string(sizeof(T)) + " bytes on " + std::to_string(blocks) + " blocks");
  comm.barrier();
}

template <class T>
void check_sizes(host::communicator& comm, const host::device_communicator& device_comm, ll_handle channels,
                 buffers& memory) {
  int round = 0;
  for (const std::size_t count : {1u, 7u, 64u, 1000u, 4099u}) {
    const auto blocks = 1 + static_cast<unsigned>(round) % most_blocks;
    check_sum<T>(comm, device_comm, channels, memory, blocks, count, 0, 0, round++);
    check_sum<T>(comm, device_comm, channels, memory, blocks, count, 1, 3, round++);
  }
}

}  // namespace

TEST_CASE("all_reduce_ll sums vectors of any size, alignment and type, in one round and in many") {
  for (const int ranks : test::rank_counts) {
    // Several rounds a launch everywhere, a single one where that is cheap to try.
    for (const std::uint32_t packs :
         ranks == 3 ? std::vector<std::uint32_t>{16, 1024} : std::vector<std::uint32_t>{100}) {
      INFO(ranks << " ranks, " << packs << " packs a round");
      test::on_ranks(ranks, [packs](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto channels = needs.add_ll_channels(comm.lsa(), most_blocks, collective::all_reduce_ll_packets(packs));
        const auto device_comm = comm.create_device_comm(needs);
        buffers memory;
        check_sizes<float>(comm, device_comm, channels, memory);
        check_sizes<__half>(comm, device_comm, channels, memory);
        check_sizes<__nv_bfloat16>(comm, device_comm, channels, memory);
        check_sizes<int>(comm, device_comm, channels, memory);
        check_sizes<signed char>(comm, device_comm, channels, memory);
        check_sizes<double>(comm, device_comm, channels, memory);
      });
    }
  }
}

TEST_CASE("launches of changing sizes follow one another without the host") {
  test::on_ranks(4, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto channels = needs.add_ll_channels(comm.lsa(), 2, collective::all_reduce_ll_packets(32));
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::size_t most = 700;
    constexpr int launches = 30;
    std::vector<float> input(most);
    for (std::size_t i = 0; i < most; ++i) input[i] = element<float>(comm.rank(), i);
    const test::device_array<float> from(input);
    const test::device_array<float> to(most * launches, 0xff);
    const auto count_of = [](int n) { return static_cast<std::size_t>(n * 97 % 700 + 1); };
    for (int n = 0; n < launches; ++n) {
      launch(all_reduce<float, sum>,
             {.grid = 1 + static_cast<unsigned>(n) % 2, .block = threads, .stream = cudaStreamPerThread},
             device_comm.get(), channels, from.get(), to.get() + static_cast<std::size_t>(n) * most, count_of(n));
    }
    test::finish("all_reduce");
    device_comm.check();
    const auto got = to.read();
    for (int n = 0; n < launches; ++n) {
      for (std::size_t i = 0; i < count_of(n); ++i) {
        float total = 0;
        for (int rank = 0; rank < comm.size(); ++rank) total += element<float>(rank, i);
        test::require(got[static_cast<std::size_t>(n) * most + i] == total,
                      "launch " + std::to_string(n) + ", element " + std::to_string(i));
      }
    }
    comm.barrier();
  });
}

TEST_CASE("a captured all_reduce_ll works at every replay") {
  test::on_ranks(3, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto channels = needs.add_ll_channels(comm.lsa(), 2, collective::all_reduce_ll_packets(64));
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::size_t count = 333;
    test::device_array<float> data(count);
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    launch(all_reduce<float, sum>, {.grid = 2, .block = threads, .stream = stream}, device_comm.get(), channels,
           static_cast<const float*>(data.get()), data.get(), count);  // in place
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    for (int round = 0; round < 5; ++round) {
      std::vector<float> input(count);
      for (std::size_t i = 0; i < count; ++i) input[i] = element<float>(comm.rank(), i, round);
      data.write(input);
      check_cuda(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
      check_cuda(cudaStreamSynchronize(stream), "all_reduce");
      device_comm.check();
      const auto got = data.read();
      for (std::size_t i = 0; i < count; ++i) {
        float total = 0;
        for (int rank = 0; rank < comm.size(); ++rank) total += element<float>(rank, i, round);
        test::require(got[i] == total, "replay " + std::to_string(round) + ", element " + std::to_string(i));
      }
    }
    check_cuda(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    comm.barrier();
  });
}

namespace {

std::vector<std::vector<float>> results;  // one a rank; written by each at its own place

}  // namespace

TEST_CASE("all ranks get the same bits, rounded in the order of the ranks") {
  results.assign(8, {});
  test::on_ranks(5, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto channels = needs.add_ll_channels(comm.lsa(), 1, collective::all_reduce_ll_packets(64));
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::size_t count = 500;
    const auto value = [](int rank, std::size_t i) {
      return std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(rank)) *
             std::pow(10.0f, static_cast<float>((i + static_cast<std::size_t>(rank) * 3) % 9) - 4.0f);
    };
    std::vector<float> input(count);
    for (std::size_t i = 0; i < count; ++i) input[i] = value(comm.rank(), i);
    const test::device_array<float> from(input);
    const test::device_array<float> to(count, 0xff);
    launch(all_reduce<float, sum>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           channels, static_cast<const float*>(from.get()), to.get(), count);
    test::finish("all_reduce");
    device_comm.check();
    results[static_cast<std::size_t>(comm.rank())] = to.read();
    comm.barrier();
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = value(0, i);
      for (int rank = 1; rank < comm.size(); ++rank) expected[i] += value(rank, i);
    }
    test::require(std::memcmp(expected.data(), results[0].data(), count * sizeof(float)) == 0, "order of the sum");
    test::require(std::memcmp(results[0].data(), results[static_cast<std::size_t>(comm.rank())].data(),
                              count * sizeof(float)) == 0,
                  "bits of rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}
