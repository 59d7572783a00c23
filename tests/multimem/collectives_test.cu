/// Barriers and collectives by multimem, on a simulated switch and in software, against references.
#include <devcomm/devcomm.cuh>

#include "every_form.cuh"
#include "support/ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;
using namespace multimem_test;

namespace {

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

/// Each rank writes its number, and after the barrier reads its neighbor's; many rounds in one session.
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

/// As if `epoch` barriers had passed.
void set_epoch(const device_comm& comm, multimem::barrier_handle barriers, std::uint64_t epoch) {
  const multimem::barrier_layout layout{barriers.count, barriers.members};
  const auto set = [&](std::uint64_t place, auto value) {
    copy(comm.resources.local + barriers.offset + place, &value, sizeof value);
  };
  set(layout.epoch(0), epoch << 1);
  set(layout.arrivals(0, 0), static_cast<std::uint32_t>(epoch / 2 * barriers.members));
  set(layout.arrivals(0, 1), static_cast<std::uint32_t>((epoch + 1) / 2 * barriers.members));
  for (std::uint32_t member = 0; member < barriers.members; ++member)
    set(layout.flag(0, member), static_cast<std::uint32_t>(epoch));
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

/// Rounds of a barrier, launch after launch, as if `epoch` of them had passed.
void check_rounds_from(host::communicator& comm, std::uint64_t epoch) {
  requirements needs = comm.requirements();
  const auto barriers = needs.add(multimem::barriers{1, asked});
  const auto device = comm.create_device_comm(needs);
  const host::symmetric_memory words = comm.allocate(4096, "words");
  set_epoch(device.get(), barriers, epoch);
  test::device_array<unsigned> wrong(threads);
  comm.barrier();
  for (int launches = 0; launches < 2; ++launches) {
    launch(go_round, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device.get(), barriers,
           sym_ptr<unsigned>{words.window(), 0}, 4, wrong.get());
  }
  test::finish("rounds of a barrier");
  device.check();
  for (const unsigned count : wrong.read()) test::require(count == 0, "a barrier let a rank pass too early");
  comm.barrier();
}

}  // namespace

TEST_CASE("multimem collectives are right for every number of ranks, count and alignment") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    DYNAMIC_SECTION(ranks << " ranks") {
      test::on_ranks(ranks, [](host::communicator& comm) {
        std::vector<std::uint64_t> counts{0, 1, 37, 4101};
        // Blocks come back for more than one turn of `InFlight` packs a thread.
        counts.push_back(
            std::min(std::uint64_t{12288} * static_cast<std::uint64_t>(comm.size()), std::uint64_t{61440}) + 5);
        check_type<float, sum>(comm, counts);
        check_type<__half, sum>(comm, {0, 1, 37, 8197});
#if !defined(DEVCOMM_SIMULATOR)  // there types_test.cu has all of them
        if (comm.size() > 3) return;
        check_type<__nv_bfloat16, maximum>(comm, {0, 1, 37, 8197});
        check_type<double, sum>(comm, {0, 1, 37, 2053});
        check_type<std::int32_t, minimum>(comm, {0, 1, 37, 4101});
        check_type<std::uint64_t, bitwise_xor>(comm, {0, 1, 37, 2053});
#endif
      });
    }
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

TEST_CASE("multimem collectives take registered memory that members have at different places modulo 16 bytes") {
  for (const int ranks : {1, 2, 3}) {
    test::on_ranks(test::ranks_that_meet(ranks), [](host::communicator& comm) {
      constexpr std::size_t bytes = 8192;
      const test::device_array<unsigned char> input(bytes + 16);
      const test::device_array<unsigned char> output(bytes + 16);
      const std::size_t shift = comm.rank() == comm.size() - 1 ? 4 : 0;
      {
        const auto from = comm.register_memory(input.get() + shift, bytes, "input");
        const auto to = comm.register_memory(output.get() + 4 - shift, bytes, "output");
        check_forms<float, sum>(comm, from.window(), to.window(), {0, 1, 37, 1029});
        check_forms<__half, sum>(comm, from.window(), to.window(), {0, 1, 37, 2053});
        comm.barrier();
      }
      comm.barrier();
    });
  }
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

TEST_CASE("counters and flags of multimem barriers wrap around") {
  constexpr std::uint64_t past_32_bits = std::uint64_t{1} << 32;
  // Counters grow by the number of ranks every other epoch: those of 2 ranks come to 0, those of 3 step over it. Flags
  // are epochs. Of both the whole range and half of it, where differences change their sign.
  for (const std::uint64_t ranks : {2u, 3u}) {
    for (const std::uint64_t epoch :
         {2 * past_32_bits / ranks - 4, past_32_bits / ranks - 5, past_32_bits - 4, past_32_bits / 2 - 5}) {
      test::on_ranks(test::ranks_that_meet(static_cast<int>(ranks)),
                     [epoch](host::communicator& comm) { check_rounds_from(comm, epoch); });
    }
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
