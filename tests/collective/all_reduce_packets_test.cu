#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;

// Each algorithm over each protocol. Every block reduces its slice of whole packs on a mailbox of its own.

struct one_shot {
  static constexpr const char* name = "one-shot";
  static std::uint32_t capacity(std::uint64_t packs, int) { return collective::one_shot_capacity(packs); }
  template <class T, class Session, class Produce, class Consume, class Operator>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce, const Consume& consume,
                             Operator op) {
    collective::all_reduce_one_shot<T>(session, packs, produce, consume, op);
  }
};

struct two_shot {
  static constexpr const char* name = "two-shot";
  static std::uint32_t capacity(std::uint64_t packs, int ranks) { return collective::two_shot_capacity(packs, ranks); }
  template <class T, class Session, class Produce, class Consume, class Operator>
  __device__ static void run(Session& session, collective::slice packs, const Produce& produce, const Consume& consume,
                             Operator op) {
    collective::all_reduce_two_shot<T>(session, packs, produce, consume, op);
  }
};

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;
using ll128 = lsa::ll128_session<block>;

template <class Session, class Algorithm, class T, class Operator>
__global__ void all_reduce(device_comm comm, typename Session::handle mailboxes, const T* input, T* output,
                           std::uint64_t count) {
  const collective::from_memory<T> source{input, count};
  const collective::to_memory<T> destination{output, count};
  Session session{block{}, comm, mailboxes, blockIdx.x};
  const collective::slice packs = collective::slice_of_block(collective::packs_of<T>(count));
  Algorithm::template run<T>(session, packs, source, destination, Operator{});
}

/// Whole numbers that are small enough for exact sums in every type.
template <class T>
__host__ __device__ T element(int rank, std::uint64_t i, int round = 0) {
  const auto mix =
      (i * 2654435761u) ^ (static_cast<std::uint64_t>(rank + 1) * 40503u) ^ (static_cast<std::uint64_t>(round) * 977u);
  return static_cast<T>(static_cast<float>(mix % 15) - 7.0f);
}

constexpr unsigned max_blocks = 3;

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
template <class Session, class Algorithm, class T>
void check_sum(host::communicator& comm, const host::device_communicator& device_comm,
               typename Session::handle mailboxes, buffers& memory, unsigned blocks, std::size_t count,
               std::size_t input_skew, std::size_t output_skew, int round) {
  constexpr std::size_t guard = 16;
  std::vector<T> input(count + input_skew);
  for (std::size_t i = 0; i < count; ++i) input[input_skew + i] = element<T>(comm.rank(), i, round);
  std::vector<T> expected(2 * guard + count + output_skew);
  std::memset(static_cast<void*>(expected.data()), 0x5a, expected.size() * sizeof(T));
  const T* from = memory.write_input(input);
  T* to = memory.write_output(expected);
  launch(all_reduce<Session, Algorithm, T, sum>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
         device_comm.get(), mailboxes, from + input_skew, to + guard + output_skew, count);
  test::finish("all_reduce");
  device_comm.check();
  for (std::size_t i = 0; i < count; ++i) {
    float total = 0;
    for (int rank = 0; rank < comm.size(); ++rank) total += static_cast<float>(element<T>(rank, i, round));
    expected[guard + output_skew + i] = static_cast<T>(total);
  }
  const auto got = memory.read_output<T>(expected.size());
  test::require(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(T)) == 0,
                "rank " + std::to_string(comm.rank()) + ": wrong result of " + Algorithm::name + " " +
                    to_string(Session::handle::protocol) + " for " + std::to_string(count) + " elements of " +
                    std::to_string(sizeof(T)) + " bytes on " + std::to_string(blocks) + " blocks");
  comm.barrier();
}

template <class Session, class Algorithm, class T>
void check_sizes(host::communicator& comm, const host::device_communicator& device_comm,
                 typename Session::handle mailboxes, buffers& memory) {
  int round = 0;
  for (const std::size_t count : {1u, 64u, 1000u, 3001u}) {
    const auto blocks = 1 + static_cast<unsigned>(round) % max_blocks;
    const std::size_t skew = round % 2 == 0 ? 0 : 1;
    check_sum<Session, Algorithm, T>(comm, device_comm, mailboxes, memory, blocks, count, skew, 3 * skew, round++);
  }
}

template <class Session, class Algorithm>
void check_types_and_sizes() {
  for (const int ranks : test::rank_counts) {
    // Several rounds a launch everywhere, a single one where that is cheap to try.
    for (const std::uint64_t packs :
         ranks == 3 ? std::vector<std::uint64_t>{16, 1024} : std::vector<std::uint64_t>{100}) {
      INFO(ranks << " ranks, " << packs << " packs a round");
      test::on_ranks(ranks, [packs](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto mailboxes =
            needs.add(lsa::mailboxes_for<Session>(comm.lsa(), max_blocks, Algorithm::capacity(packs, comm.size())));
        const auto device_comm = comm.create_device_comm(needs);
        buffers memory;
        check_sizes<Session, Algorithm, __nv_bfloat16>(comm, device_comm, mailboxes, memory);
        // collectives_test has the other types.
        if (comm.size() == 3) check_sizes<Session, Algorithm, float>(comm, device_comm, mailboxes, memory);
      });
    }
  }
}

/// Launches whose first round on each mailbox is the one after `epoch`.
template <class Session, class Algorithm>
void check_changing_sizes(std::uint32_t epoch) {
  test::on_ranks(test::ranks_that_meet(4), [epoch](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 2, Algorithm::capacity(32, comm.size())));
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::size_t most = 700;
    constexpr int launches = 12;
    std::vector<float> input(most);
    for (std::size_t i = 0; i < most; ++i) input[i] = element<float>(comm.rank(), i);
    const test::device_array<float> from(input);
    const test::device_array<float> to(most * launches, 0xff);
    const lsa::mailbox_layout layout{mailboxes.count, mailboxes.members, mailboxes.packets};
    const auto copy_epoch = [](void* target, const void* source) {
      check_cuda(cudaMemcpyAsync(target, source, sizeof epoch, cudaMemcpyDefault, cudaStreamPerThread),
                 "cudaMemcpyAsync");
    };
    char* const local = device_comm.get().resources.local + mailboxes.offset;
    for (std::uint32_t c = 0; c < mailboxes.count; ++c) copy_epoch(local + layout.epoch(c), &epoch);
    test::finish("cudaMemcpyAsync");
    comm.barrier();
    const auto count_of = [](int n) { return static_cast<std::size_t>(n * 97 % 700 + 1); };
    for (int n = 0; n < launches; ++n) {
      launch(all_reduce<Session, Algorithm, float, sum>,
             {.grid = 1 + static_cast<unsigned>(n) % 2, .block = threads, .stream = cudaStreamPerThread},
             device_comm.get(), mailboxes, from.get(), to.get() + static_cast<std::size_t>(n) * most, count_of(n));
    }
    test::finish("all_reduce");
    device_comm.check();
    for (std::uint32_t c = 0; c < mailboxes.count && epoch != 0; ++c) {
      std::uint32_t last = epoch;
      copy_epoch(&last, local + layout.epoch(c));
      test::finish("cudaMemcpyAsync");
      test::require(last < epoch, [&] { return "mailbox " + std::to_string(c) + " did not wrap around"; });
    }
    const auto got = to.read();
    for (int n = 0; n < launches; ++n) {
      for (std::size_t i = 0; i < count_of(n); ++i) {
        float total = 0;
        for (int rank = 0; rank < comm.size(); ++rank) total += element<float>(rank, i);
        test::require(got[static_cast<std::size_t>(n) * most + i] == total,
                      [&] { return "launch " + std::to_string(n) + ", element " + std::to_string(i); });
      }
    }
    comm.barrier();
  });
}

template <class Session, class Algorithm>
void check_changing_sizes_from_the_start() {
  check_changing_sizes<Session, Algorithm>(0);
}
template <class Session, class Algorithm>
void check_wrap_around() {
  check_changing_sizes<Session, Algorithm>(~0u - 4);
  check_changing_sizes<Session, Algorithm>(~0u);  // all memory is as it was made
}

template <class Session, class Algorithm>
void check_replays() {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 2, Algorithm::capacity(64, comm.size())));
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::size_t count = 333;
    test::device_array<float> data(count);
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    launch(all_reduce<Session, Algorithm, float, sum>, {.grid = 2, .block = threads, .stream = stream},
           device_comm.get(), mailboxes, static_cast<const float*>(data.get()), data.get(), count);  // in place
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
        test::require(got[i] == total,
                      [&] { return "replay " + std::to_string(round) + ", element " + std::to_string(i); });
      }
    }
    check_cuda(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    comm.barrier();
  });
}

std::vector<std::vector<float>> results;  // one a rank; written by each at its own place

/// Values of very different size, so that each order of adding them rounds differently.
float rough_value(int rank, std::size_t i) {
  return std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(rank)) *
         std::pow(10.0f, static_cast<float>((i + static_cast<std::size_t>(rank) * 3) % 9) - 4.0f);
}

template <class Session, class Algorithm>
void check_bits() {
  results.assign(8, {});
  test::on_ranks(test::ranks_that_meet(5), [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 1, Algorithm::capacity(64, comm.size())));
    const auto device_comm = comm.create_device_comm(needs);
    constexpr std::size_t count = 500;
    std::vector<float> input(count);
    for (std::size_t i = 0; i < count; ++i) input[i] = rough_value(comm.rank(), i);
    const test::device_array<float> from(input);
    const test::device_array<float> to(count, 0xff);
    launch(all_reduce<Session, Algorithm, float, sum>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
           device_comm.get(), mailboxes, static_cast<const float*>(from.get()), to.get(), count);
    test::finish("all_reduce");
    device_comm.check();
    results[static_cast<std::size_t>(comm.rank())] = to.read();
    comm.barrier();
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = rough_value(0, i);
      for (int rank = 1; rank < comm.size(); ++rank) expected[i] += rough_value(rank, i);
    }
    test::require(std::memcmp(expected.data(), results[0].data(), count * sizeof(float)) == 0, "order of the sum");
    test::require(std::memcmp(results[0].data(), results[static_cast<std::size_t>(comm.rank())].data(),
                              count * sizeof(float)) == 0,
                  "bits of rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

/// Calls `check` with each pair of a protocol and an algorithm; of LL128, which is slow to simulate as every access is
/// a sync of a warp, with the one algorithm `over_lines`.
#define FOR_EACH_PAIR(check, over_lines) \
  check<ll, one_shot>();                 \
  check<ll, two_shot>();                 \
  check<lamport, one_shot>();            \
  check<lamport, two_shot>();            \
  check<ll128, over_lines>()

}  // namespace

TEST_CASE("all-reduce through packets sums vectors of any size, alignment and type, in one round and in many") {
  FOR_EACH_PAIR(check_types_and_sizes, one_shot);
  check_types_and_sizes<ll128, two_shot>();
}

TEST_CASE("launches of changing sizes follow one another without the host") {
  FOR_EACH_PAIR(check_changing_sizes_from_the_start, one_shot);
}

TEST_CASE("epochs may wrap around") { FOR_EACH_PAIR(check_wrap_around, two_shot); }

TEST_CASE("a captured all-reduce works at every replay") { FOR_EACH_PAIR(check_replays, one_shot); }

TEST_CASE("all ranks get the same bits, rounded in the order of the ranks") { FOR_EACH_PAIR(check_bits, two_shot); }

namespace {

__global__ void write_input(__nv_bfloat16* input, std::uint64_t count, int rank, int round) {
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) input[i] = element<__nv_bfloat16>(rank, i, round);
}

__global__ void count_wrong(const __nv_bfloat16* output, std::uint64_t count, int ranks, int round, unsigned* wrong) {
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
    float total = 0;
    for (int rank = 0; rank < ranks; ++rank) total += static_cast<float>(element<__nv_bfloat16>(rank, i, round));
    if (static_cast<float>(output[i]) != total) atomicAdd(wrong, 1u);
  }
}

}  // namespace

TEST_CASE("thousands of launches of all kinds, sizes and shapes in one stream are all right") {
  // A GPU for each rank: with two on one, launches that wait for each other fill its queue.
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  test::on_ranks(std::min(devices, 4), [](host::communicator& comm) {
    auto needs = comm.requirements();
    constexpr std::uint32_t packs = 128;
    const auto ll_mailboxes = needs.add(lsa::mailboxes_for<ll>(comm.lsa(), max_blocks, packs));
    const auto lamport_mailboxes = needs.add(lsa::mailboxes_for<lamport>(comm.lsa(), max_blocks, packs));
    const auto ll128_mailboxes = needs.add(lsa::mailboxes_for<ll128>(comm.lsa(), max_blocks, packs));
    const auto device_comm = comm.create_device_comm(needs);
    // Fewer where every instruction is watched.
    const bool slow = !comm.properties().timing.available || std::getenv("DEVCOMM_TEST_FEW") != nullptr;
    const int launches = slow ? 60 : 10000;
    constexpr std::uint64_t most = 20000;
    const test::device_array<__nv_bfloat16> from(most);
    const test::device_array<__nv_bfloat16> to(most, 0xff);
    const test::device_array<unsigned> wrong(1);
    const auto run = [&]<class Session, class Algorithm>(std::type_identity<Session>, Algorithm, auto mailboxes,
                                                         unsigned blocks, std::uint64_t count) {
      launch(all_reduce<Session, Algorithm, __nv_bfloat16, sum>,
             {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes,
             static_cast<const __nv_bfloat16*>(from.get()), to.get(), count);
    };
    for (int n = 0; n < launches; ++n) {
      const auto count = static_cast<std::uint64_t>(n) * 7919 % (n % 10 == 0 ? most : 2000) + 1;
      const unsigned blocks = 1 + static_cast<unsigned>(n) / 6 % max_blocks;
      const launch_config one_block{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
      launch(write_input, one_block, from.get(), count, comm.rank(), n);
      switch (n % 6) {
        case 0: run(std::type_identity<ll>{}, one_shot{}, ll_mailboxes, blocks, count); break;
        case 1: run(std::type_identity<lamport>{}, one_shot{}, lamport_mailboxes, blocks, count); break;
        case 2: run(std::type_identity<ll>{}, two_shot{}, ll_mailboxes, blocks, count); break;
        case 3: run(std::type_identity<lamport>{}, two_shot{}, lamport_mailboxes, blocks, count); break;
        case 4: run(std::type_identity<ll128>{}, one_shot{}, ll128_mailboxes, blocks, count); break;
        default: run(std::type_identity<ll128>{}, two_shot{}, ll128_mailboxes, blocks, count); break;
      }
      launch(count_wrong, one_block, static_cast<const __nv_bfloat16*>(to.get()), count, comm.size(), n, wrong.get());
    }
    test::finish("the launches");
    device_comm.check();
    test::require(wrong.read().front() == 0,
                  std::to_string(wrong.read().front()) + " wrong elements on rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}
