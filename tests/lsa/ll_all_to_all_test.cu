/// LL all-to-all sessions: values of any size reach the slots that they were sent to, epoch after epoch.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"
#include "support/watched.hpp"

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

template <int Words>
struct words_of {
  std::uint32_t data[Words];
};

template <class T>
__host__ __device__ T value_of(int from, int to, std::uint32_t epoch, std::uint32_t i) {
  T value;
  for (std::size_t w = 0; w < sizeof(T) / 4; ++w)
    value.data[w] = static_cast<std::uint32_t>((from * 32 + to) * 7919) + epoch * 104729u + i * 31u +
                    static_cast<std::uint32_t>(w) * 3u + 1u;
  return value;
}

template <class T>
__device__ bool differ(const T& a, const T& b) {
  bool result = false;
  for (std::size_t w = 0; w < sizeof(T) / 4; ++w) result = result || a.data[w] != b.data[w];
  return result;
}

constexpr std::uint32_t values = 9;  // from each member to each, in an epoch

/// Epochs of all kinds in turn: one value for each pair, several at once, a broadcast, and reductions. `kept` of a
/// block is where its session ended, or 0.
template <class T>
__global__ void exchange_values(device_comm comm, lsa::ll_slots_handle slots, std::uint32_t epochs, unsigned* kept,
                                unsigned* wrong) {
  lsa::ll_all_to_all_session session{block{}, comm, slots, blockIdx.x};
  if (threadIdx.x == 0 && kept[blockIdx.x] != 0 && kept[blockIdx.x] != session.epoch()) atomicAdd(wrong, 1u);
  const team& ranks = session.members();
  const auto size = static_cast<std::uint32_t>(ranks.size);
  const auto me = static_cast<std::uint32_t>(ranks.rank);
  for (std::uint32_t e = 0; e < epochs; ++e) {
    const std::uint32_t number = session.epoch();
    for (std::uint32_t i = threadIdx.x; i < values; i += blockDim.x) {
      if (e % 3 == 2) {
        session.broadcast(i * size + me, number + me + i);
      } else {
        for (int peer = 0; peer < ranks.size; ++peer)
          session.send(peer, i * size + me, value_of<T>(ranks.rank, peer, number, i));
      }
    }
    // Another thread receives than the one that sent.
    for (std::uint32_t n = blockDim.x - 1 - threadIdx.x; n < values; n += blockDim.x) {
      if (e % 3 == 0) {
        for (std::uint32_t from = 0; from < size; ++from)
          if (differ(session.template receive<T>(n * size + from, static_cast<int>(from)),
                     value_of<T>(static_cast<int>(from), ranks.rank, number, n)))
            atomicAdd(wrong, 1u);
      } else if (e % 3 == 1) {
        for (std::uint32_t from = 0; from < size; from += 2) {
          T two[2];
          const std::uint32_t stride = from + 1 < size ? 1 : 0;
          session.receive(n * size + from, stride, two);
          for (std::uint32_t k = 0; k < 2; ++k)
            if (differ(two[k], value_of<T>(static_cast<int>(from + k * stride), ranks.rank, number, n)))
              atomicAdd(wrong, 1u);
        }
      } else {
        const auto total = session.template receive_reduce<std::uint32_t>(n * size, size, 1, sum{});
        if (total != size * (number + n) + size * (size - 1) / 2) atomicAdd(wrong, 1u);
        if (n < size) {  // of one member, all values
          const auto of_member = session.template receive_reduce<std::uint32_t>(n, values, size, sum{});
          if (of_member != values * (number + n) + values * (values - 1) / 2) atomicAdd(wrong, 1u);
        }
      }
      atomicAdd(wrong + 1, 1u);
    }
    session.end_epoch();
  }
  if (session.agree() != status::success) atomicAdd(wrong, 1u);
  if (threadIdx.x == 0) kept[blockIdx.x] = session.epoch();
}

template <class T>
void check_values(int ranks, std::uint32_t from) {
  INFO(ranks << " ranks, values of " << sizeof(T) << " bytes, from epoch " << from);
  test::on_ranks(ranks, [=](host::communicator& comm) {
    constexpr std::uint32_t blocks = 2;
    requirements needs = comm.requirements();
    const auto slots =
        needs.add(lsa::ll_slots{comm.lsa(), blocks, values * static_cast<std::uint32_t>(comm.size()), sizeof(T)});
    const auto device_comm = comm.create_device_comm(needs);
    const lsa::ll_slots_layout layout{slots.count, slots.slots, slots.lines};
    for (std::uint32_t b = 0; b < blocks; ++b)
      check_cuda(cudaMemcpyAsync(device_comm.get().resources.local + slots.offset + layout.epoch(b), &from, sizeof from,
                                 cudaMemcpyDefault, cudaStreamPerThread),
                 "copy");
    const test::device_array<unsigned> kept(blocks);
    const test::device_array<unsigned> wrong(2);
    comm.barrier();
    for (const std::uint32_t epochs : {4u, 1u, 5u})
      launch(exchange_values<T>, {.grid = blocks, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), slots,
             epochs, kept.get(), wrong.get());
    test::finish("exchange_values");
    device_comm.check();
    test::require(wrong.read()[0] == 0 && wrong.read()[1] == 10 * blocks * values,
                  std::to_string(wrong.read()[0]) + " of " + std::to_string(wrong.read()[1]) + " wrong on rank " +
                      std::to_string(comm.rank()));
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("LL all-to-all sessions bring values of any size to their slots") {
  for (const int ranks : test::is_watched ? std::vector{1, 2, 3, 5} : test::rank_counts) {
    check_values<words_of<2>>(ranks, 0);
    check_values<words_of<1>>(ranks, 0);
    check_values<words_of<5>>(ranks, 0);
  }
}

TEST_CASE("LL all-to-all sessions go on across the wrap-around of their epochs") {
  for (const std::uint32_t from : {~0u - 3, ~0u, 0x7ffffffeu}) {
    check_values<words_of<2>>(3, from);
    check_values<words_of<3>>(2, from);
  }
}

namespace {

/// Rank 1 sends nothing to rank 0, which has a value of its own in each slot from earlier epochs.
__global__ void receive_in_vain(device_comm comm, lsa::ll_slots_handle slots, status* outcome) {
  lsa::ll_all_to_all_session session{block{}, comm, slots, 0};
  for (std::uint64_t earlier = 1; earlier <= 2; ++earlier) {
    session.send(0, threadIdx.x, earlier);
    static_cast<void>(session.template receive<std::uint64_t>(threadIdx.x, 0));
    session.end_epoch();
  }
  const auto value = session.template receive<std::uint64_t>(threadIdx.x, 1);
  session.end_epoch();
  const status agreed = session.agree();
  if (threadIdx.x != 0) return;
  outcome[0] = agreed;
  outcome[1] = value == 0 ? status::success : status::mismatch;
}

/// Rank 1 comes late. `repeats`: rank 0 receives until it has the value, as it must.
__global__ void receive_in_time(device_comm comm, lsa::ll_slots_handle slots, lsa::signal_handle signals, bool repeats,
                                status* outcome) {
  if (comm.rank == 1) {
    lsa::signal_session never{block{}, comm, signals, 0};
    static_cast<void>(never.wait_for(lsa::any_peer, lsa::at_least{1}, milliseconds(5)));
  }
  lsa::ll_all_to_all_session session{block{}, comm, slots, 0};
  const auto sent = static_cast<std::uint64_t>(comm.rank) + 7;
  session.send(1 - comm.rank, threadIdx.x, sent);
  std::uint64_t value = 5;
  const status first = session.receive_for(threadIdx.x, value, microseconds(50), 1 - comm.rank);
  const bool is_unchanged = first == status::success || value == 5;
  status last = first;
  while (repeats && last == status::timeout)
    last = session.receive_for(threadIdx.x, value, microseconds(50), 1 - comm.rank);
  session.end_epoch();
  const status agreed = session.agree();
  if (threadIdx.x != 0) return;
  outcome[0] = first;
  outcome[1] = agreed;
  outcome[2] = is_unchanged && value == 8 - static_cast<std::uint64_t>(comm.rank) ? status::success : status::mismatch;
}

}  // namespace

TEST_CASE("a slot to which nobody sends is a timeout that names the member") {
  std::string text;
  std::vector<status> said;
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(60);
  test::on_ranks(
      2,
      [&](host::communicator& comm) {
        requirements needs = comm.requirements();
        const auto slots = needs.add(lsa::ll_slots{comm.lsa(), 1, 32});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<status> outcome(2);
        comm.barrier();
        if (comm.rank() == 0) {
          launch(receive_in_vain, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), slots,
                 outcome.get());
          test::finish("receive_in_vain");
          said = outcome.read();
          const auto failures = device_comm.failures();
          if (!failures.empty()) text = host::describe(failures.front());
        }
        comm.barrier();
      },
      options);
  CHECK(said == std::vector{status::timeout, status::success});
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring(
                       "rank 0, block 0: LL mailbox 0 waited for rank 1 to reach epoch 3 and last saw 2: timeout"));
}

TEST_CASE("a receive with a deadline of its own is repeated until the value comes") {
  std::vector<std::vector<status>> said(2);
  test::on_ranks(2, [&](host::communicator& comm) {
    requirements needs = comm.requirements();
    const auto slots = needs.add(lsa::ll_slots{comm.lsa(), 1, 32});
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<status> outcome(3);
    comm.barrier();
    launch(receive_in_time, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), slots, signals,
           true, outcome.get());
    test::finish("receive_in_time");
    device_comm.check();
    said[static_cast<std::size_t>(comm.rank())] = outcome.read();
    comm.barrier();
  });
  CHECK(said[0] == std::vector{status::timeout, status::success, status::success});
  CHECK(said[1][1] == status::success);
  CHECK(said[1][2] == status::success);
}

#if defined(DEVCOMM_SIMULATOR) && DEVCOMM_CHECKED
TEST_CASE("an epoch that ends before a value that timed out is misuse") {
  std::string said;
  test::on_ranks(2, [&](host::communicator& comm) {
    requirements needs = comm.requirements();
    const auto slots = needs.add(lsa::ll_slots{comm.lsa(), 1, 32});
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<status> outcome(3);
    if (comm.rank() == 0) {
      launch(receive_in_time, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), slots,
             signals, false, outcome.get());
      static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
      said = simulator::last_failure();
    }
    comm.barrier();
  });
  CHECK_THAT(said, Catch::Matchers::ContainsSubstring("repeat receive_for until it succeeds"));
}
#endif
