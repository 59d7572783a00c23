/// Barriers and collectives by multimem, on a simulated switch and in software, against references.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned blocks = 2;
constexpr std::size_t capacity = 1 << 18;  // bytes

#if defined(DEVCOMM_SIMULATOR)
// A simulated switch is nobody else's.
const int on_a_switch = unsetenv("NCCL_NVLS_ENABLE") + unsetenv("DEVCOMM_NVLS_ENABLE");
#else
// GPUs whose NVLink switch others use as well are left without multicast.
const int in_software_on_gpus = setenv("DEVCOMM_NVLS_ENABLE", "0", 1);
#endif

constexpr auto asked = multimem::policy::or_software;

enum class form { one_shot, two_shot, reduce_scatter, all_gather, broadcast };
constexpr form forms[] = {form::one_shot, form::two_shot, form::reduce_scatter, form::all_gather, form::broadcast};

template <class T>
struct vectors {
  sym_ptr<T> input;
  sym_ptr<T> output;
  std::uint64_t count;
  int root;
};

template <form Which, class T, class Operator, class Barrier>
__device__ void call(Barrier& barrier, const vectors<T>& v) {
  if constexpr (Which == form::one_shot) {
    collective::all_reduce_one_shot_multimem<T>(barrier, v.input, v.count,
                                                collective::to_memory<T>{v.output.local(), v.count}, Operator{});
  } else if constexpr (Which == form::two_shot) {
    collective::all_reduce_two_shot_multimem<T>(barrier, v.input, v.output, v.count, Operator{});
  } else if constexpr (Which == form::reduce_scatter) {
    collective::reduce_scatter_multimem<T>(barrier, v.input, v.output.local(), v.count, Operator{});
  } else if constexpr (Which == form::all_gather) {
    collective::all_gather_multimem<T>(barrier, v.input.local(), v.output, v.count);
  } else {
    collective::broadcast_multimem<T>(barrier, v.root, v.input.local(), v.output, v.count);
  }
}

/// Whether collectives of `T` are tried by a barrier of LSA, too. What such a barrier adds is the same for all types,
/// and nvcc takes ten seconds for each.
#if defined(DEVCOMM_SIMULATOR)
template <class T>
constexpr bool also_by_lsa = true;
#else
template <class T>
constexpr bool also_by_lsa = std::is_same_v<T, float>;
#endif

/// By a barrier of multimem, or one of LSA. A kernel for each form: ptxas takes more than twice as long for one that is
/// twice as long.
template <form Which, class T, class Operator>
__global__ void run(device_comm comm, multimem::barrier_handle barriers, bool by_lsa, vectors<T> v) {
  if constexpr (also_by_lsa<T>) {
    if (by_lsa) {
      lsa::barrier_session barrier{block{}, comm, blockIdx.x};
      call<Which, T, Operator>(barrier, v);
      return;
    }
  }
  multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
  call<Which, T, Operator>(barrier, v);
}

template <class T>
using kernel_of = void (*)(device_comm, multimem::barrier_handle, bool, vectors<T>);

template <class T, class Operator>
kernel_of<T> kernel_for(form which) {
  switch (which) {
    case form::one_shot: return run<form::one_shot, T, Operator>;
    case form::two_shot: return run<form::two_shot, T, Operator>;
    case form::reduce_scatter: return run<form::reduce_scatter, T, Operator>;
    case form::all_gather: return run<form::all_gather, T, Operator>;
    case form::broadcast: break;
  }
  return run<form::broadcast, T, Operator>;
}

/// Small whole numbers: sums have one result in any order.
template <class T>
__host__ __device__ T element(int rank, std::uint64_t i, int round) {
  return static_cast<T>(
      static_cast<float>((static_cast<std::uint64_t>(rank) * 3 + i * 5 + static_cast<std::uint64_t>(round)) % 4));
}

/// The operators as the host has them: those of the library are for kernels.
template <class Operator, class A>
A combine(A a, A b) {
  if constexpr (std::is_same_v<Operator, sum>) {
    return a + b;
  } else if constexpr (std::is_same_v<Operator, minimum>) {
    return b < a ? b : a;
  } else if constexpr (std::is_same_v<Operator, maximum>) {
    return a < b ? b : a;
  } else {
    static_assert(std::is_same_v<Operator, bitwise_xor>);
    return a ^ b;
  }
}
template <class T, class Operator>
T reduced(int ranks, std::uint64_t i, int round) {
  auto total = static_cast<accumulator_t<T>>(element<T>(0, i, round));
  for (int r = 1; r < ranks; ++r)
    total = combine<Operator>(total, static_cast<accumulator_t<T>>(element<T>(r, i, round)));
  return static_cast<T>(total);
}

void copy(void* to, const void* from) {
  check_cuda(cudaMemcpyAsync(to, from, capacity, cudaMemcpyDefault, cudaStreamPerThread), "cudaMemcpyAsync");
  test::finish("cudaMemcpyAsync");
}

template <class T, class Operator>
void check_type(host::communicator& comm) {
  const host::symmetric_memory input = comm.allocate(capacity, "input", asked);
  const host::symmetric_memory output = comm.allocate(capacity, "output", asked);
  requirements needs = comm.requirements().lsa_barriers(blocks);
  const auto barriers = needs.add(multimem::barriers{blocks, asked});
  const auto device = comm.create_device_comm(needs);
  int round = 0;
  for (const form which : forms) {
    std::vector<std::uint64_t> counts{0, 1, 37, 16384 / sizeof(T) + 5};
    // Blocks come back for more than one turn of `InFlight` packs a thread.
    if (std::is_same_v<T, float> && comm.size() <= 3)
      counts.push_back(std::uint64_t{12288} * static_cast<std::uint64_t>(comm.size()) + 5);
    for (const std::uint64_t count : counts) {
      ++round;
      // Elements off 16 bytes: none, both by as many, one.
      const std::uint64_t skew_in = which == form::one_shot ? 0 : static_cast<std::uint64_t>(round) % 3;
      const std::uint64_t skew_out = round % 4 == 3 ? 1 : skew_in;
      const int root = round % comm.size();
      const auto shard = collective::shard_of(count, comm.size(), comm.rank());
      std::vector<unsigned char> in(capacity, 0x3c);
      std::vector<unsigned char> out(capacity, 0x5a);
      const std::uint64_t given = which == form::all_gather ? shard.size() : count;
      for (std::uint64_t i = 0; i < given; ++i) {
        const T value = element<T>(comm.rank(), i, round);
        std::memcpy(&in[(16 / sizeof(T) + skew_in + i) * sizeof(T)], static_cast<const void*>(&value), sizeof value);
      }
      copy(input.data(), in.data());
      copy(output.data(), out.data());
      comm.barrier();
      const vectors<T> v{
          {input.window(), 16 + skew_in * sizeof(T)}, {output.window(), 16 + skew_out * sizeof(T)}, count, root};
      launch(kernel_for<T, Operator>(which), {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
             device.get(), barriers, round % 2 == 0, v);
      test::finish("a multimem collective");
      device.check();
      comm.barrier();
      std::vector<unsigned char> got(capacity);
      copy(got.data(), output.data());
      const auto put = [&](std::uint64_t i, T value) {
        std::memcpy(&out[(16 / sizeof(T) + skew_out + i) * sizeof(T)], static_cast<const void*>(&value), sizeof value);
      };
      for (std::uint64_t i = 0; i < count; ++i) {
        switch (which) {
          case form::one_shot:
          case form::two_shot: put(i, reduced<T, Operator>(comm.size(), i, round)); break;
          case form::reduce_scatter:
            if (i >= shard.begin && i < shard.end) put(i - shard.begin, reduced<T, Operator>(comm.size(), i, round));
            break;
          case form::all_gather: {
            const std::uint64_t length = collective::shard_length(count, comm.size());
            put(i, element<T>(static_cast<int>(i / length), i % length, round));
            break;
          }
          case form::broadcast: put(i, element<T>(root, i, round)); break;
        }
      }
      test::require(got == out, [&] {
        const auto at = std::mismatch(got.begin(), got.end(), out.begin()).first - got.begin();
        return "form " + std::to_string(static_cast<int>(which)) + ", " + std::to_string(count) + " elements of " +
               std::to_string(sizeof(T)) + " bytes, rank " + std::to_string(comm.rank()) + " of " +
               std::to_string(comm.size()) +
               (comm.properties().multicast.available ? ", by the switch" : ", in software") + ": byte " +
               std::to_string(at) + " of the output is wrong";
      });
      comm.barrier();
    }
  }
}

/// Calls of one block, which writes its input just before each and reads its output just after.
template <form Which, class Barrier>
__device__ void call_often(Barrier& barrier, const vectors<float>& v, unsigned* wrong) {
  const team ranks = barrier.members();
  const auto shard = collective::shard_of(v.count, ranks.size, ranks.rank);
  const std::uint64_t length = collective::shard_length(v.count, ranks.size);
  const std::uint64_t outputs = Which == form::reduce_scatter ? shard.size() : v.count;
  for (int round = 1; round <= 3; ++round) {
    for (std::uint64_t i = threadIdx.x; i < v.count; i += blockDim.x)
      v.input.local()[i] = element<float>(ranks.rank, i, round);
    call<Which, float, sum>(barrier, v);
    for (std::uint64_t i = threadIdx.x; i < outputs; i += blockDim.x) {
      float expected = 0;
      if constexpr (Which == form::all_gather) {
        expected = element<float>(static_cast<int>(i / length), i % length, round);
      } else if constexpr (Which == form::broadcast) {
        expected = element<float>(v.root, i, round);
      } else {
        const std::uint64_t at = Which == form::reduce_scatter ? shard.begin + i : i;
        for (int rank = 0; rank < ranks.size; ++rank) expected += element<float>(rank, at, round);
      }
      if (v.output.local()[i] != expected) atomicAdd(wrong, 1u);
    }
  }
}
template <form Which>
__global__ void run_often(device_comm comm, multimem::barrier_handle barriers, bool by_lsa, vectors<float> v,
                          unsigned* wrong) {
  if (by_lsa) {
    lsa::barrier_session barrier{block{}, comm, 0};
    call_often<Which>(barrier, v, wrong);
  } else {
    multimem::barrier_session barrier{block{}, comm, barriers, 0};
    call_often<Which>(barrier, v, wrong);
  }
}

/// How often each pack of a result was consumed.
__global__ void count_consumed(device_comm comm, multimem::barrier_handle barriers, sym_ptr<float> input,
                               std::uint64_t count, unsigned* consumed) {
  multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
  collective::all_reduce_one_shot_multimem<float>(
      barrier, input, count, [=](std::uint64_t i, const pack<float>&) { atomicAdd(consumed + i, 1u); }, sum{});
}

/// Each rank writes its number, and after the barrier reads its neighbour's; many rounds in one session.
__global__ void go_round(device_comm comm, multimem::barrier_handle barriers, sym_ptr<unsigned> words, int rounds,
                         unsigned* wrong) {
  multimem::barrier_session barrier{block{}, comm, barriers, 0};
  const int next = (comm.lsa_rank() + 1) % comm.lsa_size;
  for (int round = 1; round <= rounds; ++round) {
    words.local()[threadIdx.x] = static_cast<unsigned>(round);
    barrier.sync();
    if (words.lsa(next)[threadIdx.x] != static_cast<unsigned>(round)) wrong[threadIdx.x] += 1;
    barrier.sync();
  }
}

__global__ void wait_for_others(device_comm comm, multimem::barrier_handle barriers, bool come, unsigned* outcomes) {
  if (!come) return;
  multimem::barrier_session barrier{block{}, comm, barriers, 0};
  outcomes[threadIdx.x] = static_cast<unsigned>(barrier.sync_for(nanoseconds{20000}));
}

/// Two sessions, one after the other.
__global__ void wait_twice(device_comm comm, multimem::barrier_handle barriers, status* outcomes) {
  for (unsigned n = 0; n < 2; ++n) {
    multimem::barrier_session barrier{block{}, comm, barriers, 0};
    outcomes[n * blockDim.x + threadIdx.x] = barrier.sync_for(nanoseconds{20000});
  }
}

__global__ void meet_and_agree(device_comm comm, multimem::barrier_handle barriers, status* outcomes) {
  multimem::barrier_session barrier{block{}, comm, barriers, 0};
  barrier.sync();
  outcomes[threadIdx.x] = barrier.agree();
}

__global__ void meet_in_time(device_comm comm, multimem::barrier_handle barriers, status* outcomes) {
  multimem::barrier_session barrier{block{}, comm, barriers, 0};
  outcomes[threadIdx.x] = barrier.sync_for(milliseconds(500));
}

/// The sum of what the threads of the block pass, in the order of their ranks.
__device__ float sum_over_block(float mine) {
  __shared__ float all[256];
  __syncthreads();
  all[threadIdx.x] = mine;
  __syncthreads();
  float total = 0;
  for (unsigned t = 0; t < blockDim.x; ++t) total += all[t];
  return total;
}

/// Rows are added up over all ranks and normalised by one of them, which stores them to all. A thread has one pack.
__global__ void all_reduce_rms_norm(device_comm comm, multimem::barrier_handle barriers, sym_ptr<__half> hidden,
                                    const float* weight, int rows, float epsilon) {
  multimem::barrier_session barrier{block{}, comm, barriers, blockIdx.x};
  const multimem::ptr<__half> all(hidden);
  barrier.sync();
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
  barrier.sync();
}

}  // namespace

TEST_CASE("multimem collectives are right for every type, number of ranks, count and alignment") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      check_type<float, sum>(comm);
      check_type<__half, sum>(comm);
      if (comm.size() > 3) return;
      check_type<__nv_bfloat16, maximum>(comm);
      check_type<double, sum>(comm);
      check_type<std::int32_t, minimum>(comm);
      check_type<std::uint64_t, bitwise_xor>(comm);
#if defined(DEVCOMM_SIMULATOR)  // switches of sm_90 do not reduce them
      check_type<__nv_fp8_e5m2, maximum>(comm);
#endif
    });
  }
}

TEST_CASE("a multimem collective orders what its group writes before and reads after, call after call") {
  constexpr void (*kernels[])(device_comm, multimem::barrier_handle, bool, vectors<float>, unsigned*) = {
      run_often<form::one_shot>, run_often<form::two_shot>, run_often<form::reduce_scatter>,
      run_often<form::all_gather>, run_often<form::broadcast>};
  test::on_ranks(test::ranks_that_meet(3), [&](host::communicator& comm) {
    const host::symmetric_memory input = comm.allocate(capacity, "input", asked);
    const host::symmetric_memory output = comm.allocate(capacity, "output", asked);
    requirements needs = comm.requirements().lsa_barriers(1);
    const auto barriers = needs.add(multimem::barriers{1, asked});
    const auto device = comm.create_device_comm(needs);
    const test::device_array<unsigned> wrong(1);
    comm.barrier();
    for (const bool by_lsa : {true, false}) {
      for (const auto kernel : kernels) {
        const vectors<float> v{{input.window(), 16}, {output.window(), 32}, 1021, comm.size() - 1};
        launch(kernel, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(), barriers, by_lsa, v,
               wrong.get());
      }
    }
    test::finish("multimem collectives");
    device.check();
    test::require(wrong.read().front() == 0,
                  std::to_string(wrong.read().front()) + " elements wrong on rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

TEST_CASE("a one-shot multimem all-reduce consumes each pack once, and none past the last") {
  test::on_ranks(2, [](host::communicator& comm) {
    const host::symmetric_memory input = comm.allocate(capacity, "input", asked);
    requirements needs = comm.requirements();
    const auto barriers = needs.add(multimem::barriers{blocks, asked});
    const auto device = comm.create_device_comm(needs);
    comm.barrier();
    // Of a block: fewer packs than threads, some in a last turn, and whole turns of 8.
    for (const std::uint64_t packs : {1u, 100u, 900u, 1000u, 1023u, 1024u, 1500u, 2048u, 2500u}) {
      for (const std::uint64_t missing : {0u, 3u}) {
        const std::uint64_t room = packs + 64;
        const test::device_array<unsigned> consumed(room);
        launch(count_consumed, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device.get(),
               barriers, sym_ptr<float>{input.window(), 0}, packs * pack<float>::size - missing, consumed.get());
        test::finish("count_consumed");
        device.check();
        std::vector<unsigned> once(room);
        std::fill_n(once.begin(), packs, 1u);
        test::require(consumed.read() == once, "not every pack of " + std::to_string(packs) + " is consumed once");
      }
    }
    comm.barrier();
  });
}

TEST_CASE("two-shot gives all ranks the same bits, and in software those of sums in the ranks' order") {
  constexpr int ranks = 3;
  constexpr std::uint64_t count = 4097;
  constexpr float terms[] = {1e8f, 3.0f, -1e8f};
  std::array<std::vector<float>, ranks> got;
  test::on_ranks(ranks, [&](host::communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    const host::symmetric_memory input = comm.allocate(capacity, "input", asked);
    const host::symmetric_memory output = comm.allocate(capacity, "output", asked);
    requirements needs = comm.requirements().lsa_barriers(blocks);
    const auto barriers = needs.add(multimem::barriers{blocks, asked});
    const auto device = comm.create_device_comm(needs);
    std::vector<float> values(capacity / sizeof(float));
    for (std::uint64_t i = 0; i < count; ++i) values[i] = terms[(me + i) % std::size(terms)];
    copy(input.data(), values.data());
    comm.barrier();
    launch(run<form::two_shot, float, sum>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread},
           device.get(), barriers, false, vectors<float>{{input.window(), 0}, {output.window(), 0}, count, 0});
    test::finish("a two-shot all-reduce");
    device.check();
    copy(values.data(), output.data());
    got[me].assign(values.begin(), values.begin() + count);
    comm.barrier();
    test::require(got[me] == got[0], "ranks got different bits");
    if (comm.properties().multicast.available) return;
    for (std::uint64_t i = 0; i < count; ++i)
      test::require(got[me][i] == (terms[i % 3] + terms[(1 + i) % 3]) + terms[(2 + i) % 3],
                    "a sum is not that of the ranks' order");
  });
}

TEST_CASE("a multimem barrier orders data across ranks, round after round and launch after launch") {
  for (const int ranks : {1, 2, 3, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      const host::symmetric_memory words = comm.allocate(4096, "words");
      requirements needs = comm.requirements();
      const auto barriers = needs.add(multimem::barriers{1, asked});
      const auto device = comm.create_device_comm(needs);
      test::device_array<unsigned> wrong(threads);
      comm.barrier();
      for (int launches = 0; launches < 3; ++launches) {
        launch(go_round, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(), barriers,
               sym_ptr<unsigned>{words.window(), 0}, 3, wrong.get());
      }
      test::finish("rounds of a barrier");
      device.check();
      for (const unsigned count : wrong.read()) test::require(count == 0, "a barrier let a rank pass too early");
      comm.barrier();
    });
  }
}

TEST_CASE("a multimem barrier that a rank does not come to ends at its deadline for the whole group") {
  test::on_ranks(2, [](host::communicator& comm) {
    requirements needs = comm.requirements();
    const auto barriers = needs.add(multimem::barriers{1, asked});
    const auto device = comm.create_device_comm(needs);
    test::device_array<unsigned> outcomes(threads);
    comm.barrier();
    launch(wait_for_others, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(), barriers,
           comm.rank() == 0, outcomes.get());
    test::finish("a wait with a deadline");
    for (const unsigned outcome : outcomes.read()) {
      test::require(outcome == (comm.rank() == 0 ? static_cast<unsigned>(status::timeout) : 0u), "no timeout");
    }
    comm.barrier();
  });
}

TEST_CASE("a multimem barrier counts a rank once that timed out and comes again") {
  for (const int ranks : {2, 3}) {
    test::on_ranks(test::ranks_that_meet(ranks), [](host::communicator& comm) {
      requirements needs = comm.requirements();
      const auto barriers = needs.add(multimem::barriers{1, asked});
      const auto device = comm.create_device_comm(needs);
      const host::symmetric_memory words = comm.allocate(4096, "words");
      const test::device_array<status> outcomes(2 * threads, 0xff);
      test::device_array<unsigned> wrong(threads);
      const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
      comm.barrier();
      for (int launches = 0; launches < 2 && comm.rank() != comm.size() - 1; ++launches) {  // the last is late
        launch(wait_twice, config, device.get(), barriers, outcomes.get());
        test::finish("wait_twice");
        for (const status outcome : outcomes.read())
          test::require(outcome == status::timeout, std::string("outcome is ") + to_string(outcome));
      }
      comm.barrier();
      // The arrivals that timed out say nothing of what their ranks wrote since: the late rank passes here at once.
      launch(meet_and_agree, config, device.get(), barriers, outcomes.get());
      launch(go_round, config, device.get(), barriers, sym_ptr<unsigned>{words.window(), 0}, 4, wrong.get());
      test::finish("rounds of a barrier");
      device.check();
      for (const unsigned count : wrong.read()) test::require(count == 0, "a barrier let a rank pass too early");
      comm.barrier();
    });
  }
}

TEST_CASE("a rank that never comes to a multimem barrier is late, and its launch is no other") {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(50);
  options.check_launch = true;
  test::on_ranks(
      test::ranks_that_meet(3),
      [](host::communicator& comm) {
        requirements needs = comm.requirements();
        const auto barriers = needs.add(multimem::barriers{1, asked});
        const auto device = comm.create_device_comm(needs);
        const test::device_array<status> outcomes(threads, 0xff);
        comm.barrier();
        if (comm.rank() != comm.size() - 1) {
          launch(meet_and_agree, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(), barriers,
                 outcomes.get());
          static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
          test::require(!device.failures().empty(), "no record");
          for (const failure_record& record : device.failures())
            test::require(record.outcome != status::mismatch, "a launch that never came is said to differ");
          for (const status outcome : outcomes.read())
            test::require(outcome == status::timeout, std::string("outcome is ") + to_string(outcome));
        }
        comm.barrier();
      },
      options);
}

TEST_CASE("a multimem barrier with a deadline tells the whole group of launches that differ") {
  host::communicator_options options;
  options.check_launch = true;
  for (const bool differ : {true, false}) {
    test::on_ranks(
        test::ranks_that_meet(3),
        [differ](host::communicator& comm) {
          requirements needs = comm.requirements();
          const auto barriers = needs.add(multimem::barriers{1, asked});
          const auto device = comm.create_device_comm(needs);
          const test::device_array<status> outcomes(threads, 0xff);
          const auto key = static_cast<std::uint64_t>(differ ? comm.rank() : 5);
          comm.barrier();
          launch(meet_in_time, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
                 device.get().with_launch_key(key), barriers, outcomes.get());
          test::finish("meet_in_time");
          const status expected = differ ? status::mismatch : status::success;
          for (const status outcome : outcomes.read())
            test::require(outcome == expected, std::string("outcome is ") + to_string(outcome));
          test::require(device.failures().empty() != differ, "records of a failure");
          comm.barrier();
        },
        options);
  }
}

TEST_CASE("a multimem barrier whose communicator's timeout passes leaves a record of it") {
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(50);
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        requirements needs = comm.requirements();
        const auto barriers = needs.add(multimem::barriers{1});
        const auto device = comm.create_device_comm(needs);
        const host::symmetric_memory words = comm.allocate(4096, "words");
        test::device_array<unsigned> wrong(threads);
        comm.barrier();
        std::string text;
        if (comm.rank() == 0) {
          launch(go_round, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device.get(), barriers,
                 sym_ptr<unsigned>{words.window(), 0}, 1, wrong.get());
          static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
          try {
            device.check();
          } catch (const host::error& e) {
            text = e.what();
          }
          test::require(text.find("multimem barrier 0") != std::string::npos, "the record says: " + text);
        }
        comm.barrier();
      },
      options);
}

TEST_CASE("an all-reduce with a norm in it is right, and the same on all ranks") {
  for (const int ranks : {1, 2, 3, 8}) {
    test::on_ranks(ranks, [](host::communicator& comm) {
      constexpr int rows = 7;
      constexpr int columns = static_cast<int>(threads) * 8;
      const host::symmetric_memory hidden = comm.allocate(sizeof(__half) * rows * columns, "hidden", asked);
      requirements needs = comm.requirements();
      const auto barriers = needs.add(multimem::barriers{blocks, asked});
      const auto device = comm.create_device_comm(needs);
      std::vector<float> factors(columns);
      for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = 0.5f + static_cast<float>(i % 5);
      const test::device_array<float> weight(factors);
      std::vector<__half> mine(rows * columns);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = element<__half>(comm.rank(), i, 1);
      const auto bytes = mine.size() * sizeof(__half);
      check_cuda(cudaMemcpyAsync(hidden.data(), mine.data(), bytes, cudaMemcpyDefault, cudaStreamPerThread), "copy");
      test::finish("copy");
      comm.barrier();
      launch(all_reduce_rms_norm, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device.get(),
             barriers, sym_ptr<__half>{hidden.window(), 0}, weight.get(), rows, 0.25f);
      test::finish("all_reduce_rms_norm");
      device.check();
      comm.barrier();
      std::vector<__half> got(mine.size());
      check_cuda(cudaMemcpyAsync(got.data(), hidden.data(), bytes, cudaMemcpyDefault, cudaStreamPerThread), "copy");
      test::finish("copy");
      for (std::size_t row = 0; row < rows; ++row) {
        double squares = 0;
        std::vector<double> total(columns);
        for (std::size_t c = 0; c < columns; ++c) {
          total[c] = static_cast<float>(reduced<__half, sum>(comm.size(), row * columns + c, 1));
          squares += total[c] * total[c];
        }
        const double scale = 1 / std::sqrt(squares / columns + 0.25);
        for (std::size_t c = 0; c < columns; ++c) {
          const double exact = total[c] * scale * factors[c];
          const double off = std::fabs(static_cast<float>(got[row * columns + c]) - exact);
          test::require(off <= 1e-3 * std::fabs(exact) + 1e-6, "a normalised element is wrong");
        }
      }
      comm.barrier();
    });
  }
}
