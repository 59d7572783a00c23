// What a rank that timed out, never came, or does something else does to itself and to its peers.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr std::chrono::milliseconds time_limit(40);  // of every wait

__device__ void sleep_for(unsigned milliseconds) {
  const std::uint64_t start = arch::global_time();
  while (arch::global_time() - start < milliseconds * 1000000ull) __nanosleep(100000);
}

/// Two barriers, the first after `delay` milliseconds; what each thread knows after each.
__global__ void meet_twice(device_comm comm, unsigned delay, status* outcomes) {
  if (threadIdx.x == 0) sleep_for(delay);
  __syncthreads();
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync();
  outcomes[threadIdx.x] = barrier.agree();
  barrier.sync();
  outcomes[blockDim.x + threadIdx.x] = barrier.agree();
}

/// The same without a question between the barriers, as most kernels are.
__global__ void meet_twice_unasked(device_comm comm, unsigned delay) {
  if (threadIdx.x == 0) sleep_for(delay);
  __syncthreads();
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.sync();
  barrier.sync();
}

host::communicator_options impatient() {
  host::communicator_options options;
  options.kernel_timeout = time_limit;
  return options;
}

bool check_throws(const host::device_communicator& comm) {
  try {
    comm.check();
  } catch (const host::kernel_error&) {
    return true;
  }
  return false;
}

}  // namespace

namespace {

__global__ void tell_next(device_comm comm, lsa::signal_handle signals) {
  lsa::signal_session told{block{}, comm, signals, 0};
  told.add((comm.rank + 1) % comm.size, 1);
}

__global__ void tell_previous_twice(device_comm comm, lsa::signal_handle signals) {
  lsa::signal_session told{block{}, comm, signals, 0};
  sleep_for(1);
  told.add((comm.rank + comm.size - 1) % comm.size, 1);
  told.add((comm.rank + comm.size - 1) % comm.size, 1);
}

/// By deadlines, at each of which a wait looks at what the host says.
__global__ void hear_bit_by_bit(device_comm comm, lsa::signal_handle signals, status* outcomes) {
  lsa::signal_session told{block{}, comm, signals, 0};
  for (unsigned i = 0; i < 2; ++i) {
    status& last = outcomes[i * blockDim.x + threadIdx.x];
    do {
      last = told.take_for((comm.rank + 1) % comm.size, microseconds(500));
    } while (last == status::timeout);
  }
}

__global__ void hear_twice(device_comm comm, lsa::signal_handle signals, status* outcomes) {
  lsa::signal_session told{block{}, comm, signals, 0};
  for (unsigned i = 0; i < 2; ++i) {
    told.take((comm.rank + 1) % comm.size);
    outcomes[i * blockDim.x + threadIdx.x] = told.agree();
  }
}

}  // namespace

TEST_CASE("a wait for a rank that has destroyed its device communicator ends, and what that one did before is seen") {
  test::on_ranks(2, [](host::communicator& comm) {
    const launch_config one_block{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const test::device_array<status> outcomes(2 * threads, 0xff);
    std::optional<host::device_communicator> device_comm(comm.create_device_comm(needs));
    if (comm.rank() == 1) {
      launch(tell_next, one_block, device_comm->get(), signals);
      test::finish("tell_next");
      device_comm.reset();
    }
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    if (comm.rank() == 0) {
      launch(hear_twice, one_block, device_comm->get(), signals, outcomes.get());
      test::finish("hear_twice");
      test::require(std::chrono::steady_clock::now() - start < std::chrono::seconds(10), "the wait takes long");
      const auto seen = outcomes.read();
      for (unsigned i = 0; i < threads; ++i) {
        test::require(seen[i] == status::success, "the signal that came is not seen");
        test::require(seen[threads + i] == status::aborted, "the signal that never comes is waited for");
      }
      std::string text;
      try {
        device_comm->check();
      } catch (const host::remote_error& error) {
        text = error.what();
      }
      test::require(text.find("rank 1 has destroyed its device communicator, and a kernel of this rank still waited "
                              "for it") != std::string::npos &&
                        text.find("and last saw 1: that rank has left") != std::string::npos,
                    "check said: " + text);
    }
    comm.barrier();
  });
}

TEST_CASE("waits for ranks that are there outlive the end of another rank") {
  test::on_ranks(3, [](host::communicator& comm) {
    const launch_config one_block{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    auto needs = comm.requirements();
    const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
    const test::device_array<status> outcomes(2 * threads, 0xff);
    std::optional<host::device_communicator> device_comm(comm.create_device_comm(needs));
    comm.barrier();
    if (comm.rank() == 2) device_comm.reset();
    if (comm.rank() == 0) {
      launch(hear_bit_by_bit, one_block, device_comm->get(), signals, outcomes.get());
      test::finish("hear_bit_by_bit");
      for (const status one : outcomes.read()) test::require(one == status::success, "a wait has ended");
    }
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 waits
      launch(tell_previous_twice, one_block, device_comm->get(), signals);
      test::finish("tell_previous_twice");
    }
    comm.barrier();
    if (device_comm) device_comm->check();
  });
}

TEST_CASE("a rank that timed out arrives nowhere again, in this launch and in later ones") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        constexpr std::size_t launches = 3;
        const test::device_array<status> outcomes(launches * 2 * threads, 0xff);
        comm.barrier();
        for (std::size_t n = 0; n < launches; ++n) {
          const unsigned delay = comm.rank() == 1 && n == 0 ? 200 : 0;
          launch(meet_twice, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), delay,
                 outcomes.get() + n * 2 * threads);
        }
        test::finish("meet_twice");
        const auto seen = outcomes.read();
        for (std::size_t i = 0; i < seen.size(); ++i) {
          const std::size_t barrier = i / threads;
          // Rank 0 had arrived at the first barrier before it gave up, so the late rank may pass that one.
          if (comm.rank() == 1 && barrier == 0) continue;
          test::require(seen[i] != status::success, "rank " + std::to_string(comm.rank()) + ", thread " +
                                                        std::to_string(i % threads) + " passed barrier " +
                                                        std::to_string(barrier));
          test::require(seen[i] == seen[barrier * threads], "the threads of a block disagree");
        }
        test::require(check_throws(device_comm), "check does not know of the failure");
        comm.barrier();
      },
      impatient());
}

namespace {

__global__ void meet_times(device_comm comm, unsigned rounds, bool apart) {
  lsa::barrier_session barrier{block{}, comm, 0};
  for (unsigned round = 0; round < rounds; ++round) {
    if (apart) {
      barrier.arrive();
      barrier.wait();
    } else {
      barrier.sync();
    }
  }
}

}  // namespace

TEST_CASE(
    "of a group with fewer threads than peers, those whose own peers came arrive no more when another timed out") {
  constexpr int ranks = 4;
  const bool apart = GENERATE(false, true);
  test::on_ranks(
      ranks,
      [apart](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        const bool is_last = comm.rank() + 1 == ranks;
        comm.barrier();
        launch(meet_times, {.grid = 1, .block = 2, .stream = cudaStreamPerThread}, device_comm.get(), is_last ? 1u : 3u,
               apart);
        test::finish("meet_times");
        comm.barrier();
        const auto barriers = device_comm.get().lsa_barriers;
        const lsa::barrier_layout layout{barriers.count, barriers.members};
        for (std::uint32_t writer = 0; writer + 1 < ranks && !is_last; ++writer) {
          if (writer == static_cast<std::uint32_t>(comm.rank())) continue;
          std::uint32_t arrivals = 0;
          const char* const flag = device_comm.get().resources.local + barriers.offset + layout.flag(0, writer);
          check_cuda(cudaMemcpy(&arrivals, flag, sizeof arrivals, cudaMemcpyDeviceToHost), "cudaMemcpy");
          test::require(arrivals == 2, "rank " + std::to_string(writer) + " arrived " + std::to_string(arrivals) +
                                           " times, and the second time it timed out");
        }
        test::require(is_last || check_throws(device_comm), "check does not know of the failure");
        comm.barrier();
      },
      impatient());
}

namespace {

/// The first warp waits at barrier 0 in vain, then the second goes to barrier 1, which has nothing to do with that.
__global__ void give_up_then_meet_elsewhere(device_comm comm) {
  if (threadIdx.x < 32) {
    lsa::barrier_session barrier{warp{}, comm, 0};
    barrier.sync();
  }
  __syncthreads();
  if (threadIdx.x >= 32) {
    lsa::barrier_session barrier{warp{}, comm, 1};
    barrier.sync();
  }
}

__global__ void meet_at_barrier_1(device_comm comm, status* outcomes) {
  lsa::barrier_session barrier{warp{}, comm, 1};
  barrier.sync();
  outcomes[threadIdx.x] = barrier.agree();
}

}  // namespace

TEST_CASE("a later session of another group of the launch knows that its rank is dead, and does not arrive") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
        const test::device_array<status> outcomes(32, 0xff);
        comm.barrier();
        if (comm.rank() == 0) {
          launch(give_up_then_meet_elsewhere, {.grid = 1, .block = 64, .stream = cudaStreamPerThread},
                 device_comm.get());
          test::finish("give_up_then_meet_elsewhere");
        }
        comm.barrier();
        if (comm.rank() == 1) {
          launch(meet_at_barrier_1, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
                 outcomes.get());
          test::finish("meet_at_barrier_1");
          for (const status outcome : outcomes.read()) test::require(outcome == status::timeout, "a dead rank arrived");
        }
        test::require(check_throws(device_comm), "check does not know of the failure");
        comm.barrier();
      },
      impatient());
}

namespace {

/// Block 0 waits at barrier 0 in vain and says so by a relaxed flag, as it hands over nothing else; then block 1 goes
/// to barrier 1.
__global__ void say_that_it_failed(device_comm comm, bool in_vain, unsigned* flag, status* outcome) {
  using arch::load;
  if (blockIdx.x == 0) {
    if (!in_vain) return;
    lsa::barrier_session barrier{thread{}, comm, 0};
    barrier.sync();
    arch::store<memory_order::relaxed, scope::device>(flag, 1u);
  } else {
    while (load<memory_order::acquire, scope::device>(flag) == 0) {
    }
    lsa::barrier_session barrier{thread{}, comm, 1};
    barrier.sync();
    *outcome = barrier.agree();
  }
}

}  // namespace

TEST_CASE("a block that learns of a failure by a flag knows that its rank is dead, and does not arrive") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
        const test::device_array<unsigned> flag(1, comm.rank());  // set on rank 1, which comes when rank 0 is dead
        const test::device_array<status> outcome(1, 0xff);
        for (int turn = 0; turn < 2; ++turn) {
          comm.barrier();
          if (comm.rank() != turn) continue;
          launch(say_that_it_failed, {.grid = 2, .block = 1, .stream = cudaStreamPerThread}, device_comm.get(),
                 turn == 0, flag.get(), outcome.get());
          test::finish("say_that_it_failed");
          const status expected = turn == 0 ? status::aborted : status::timeout;
          test::require(outcome.read()[0] == expected,
                        [&] { return "rank " + std::to_string(turn) + " was told " + to_string(outcome.read()[0]); });
          test::require(device_comm.failures().size() == 1, "a wait that ended for another one's failure is on record");
        }
        test::require(check_throws(device_comm), "check does not know of the failure");
        comm.barrier();
      },
      impatient());
}

namespace {

/// Block 0 waits in vain, block 1 with a deadline that is far off.
__global__ void wait_in_two_blocks(device_comm comm, status* outcomes) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  if (blockIdx.x == 0) barrier.sync();
  outcomes[blockIdx.x * blockDim.x + threadIdx.x] =
      blockIdx.x == 0 ? barrier.agree() : barrier.sync_for(milliseconds(5000));
}

}  // namespace

TEST_CASE("a wait that fails ends the other waits of its rank, long before their own deadlines") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
        comm.barrier();
        if (comm.rank() == 0) {
          const test::device_array<status> outcomes(2 * threads, 0xff);
          launch(wait_in_two_blocks, {.grid = 2, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
                 outcomes.get());
          test::finish("wait_in_two_blocks");
          const auto seen = outcomes.read();
          for (std::size_t i = 0; i < seen.size(); ++i) {
            const status expected = i < threads ? status::timeout : status::aborted;
            test::require(seen[i] == expected, [&] {
              return "thread " + std::to_string(i) + " was told " + to_string(seen[i]) + ", expected " +
                     to_string(expected);
            });
          }
          test::require(device_comm.failures().size() == 1, "a wait that ended for another one's failure is on record");
          test::require(check_throws(device_comm), "check does not know of the failure");
        }
        comm.barrier();
      },
      impatient());
}

namespace {

/// Rank 1 does not send its first packet, so that one thread of rank 0 gives up, while rank 1 is not in its second
/// round.
__global__ void lose_a_packet(device_comm comm, lsa::ll_handle mailboxes, unsigned* arrived) {
  lsa::ll_session session{block{}, comm, mailboxes, 0};
  const int peer = 1 - comm.rank;
  std::uint64_t got[1][1];
  session.begin_round();
  if (comm.rank == 0 || threadIdx.x != 0) session.send(peer, threadIdx.x, 1);
  session.receive(peer, peer + 1, threadIdx.x, got);
  if (comm.rank == 1 && threadIdx.x == 0) sleep_for(100);
  session.begin_round();
  session.send(peer, threadIdx.x, 2);
  session.receive(peer, peer + 1, threadIdx.x, got);
  if (got[0][0] == 2) atomicAdd(arrived, 1u);
}

}  // namespace

TEST_CASE("a group of which one thread timed out sends no packets of the next round") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, threads});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<unsigned> arrived(1);
        comm.barrier();
        launch(lose_a_packet, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
               mailboxes, arrived.get());
        test::finish("lose_a_packet");
        test::require(arrived.read().front() == 0, "packets of a rank that timed out arrived");
        test::require(check_throws(device_comm), "check does not know of the failure");
        comm.barrier();
      },
      impatient());
}

TEST_CASE("a rank whose peers timed out waiting for another learns of it") {
  // Rank 0 gives up on rank 1 while rank 2, which came in time, goes on to a second barrier.
  test::on_ranks(
      3,
      [](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        const unsigned delays[] = {0, 50, 20};
        comm.barrier();
        launch(meet_twice_unasked, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
               delays[comm.rank()]);
        test::finish("meet_twice_unasked");
        test::require(check_throws(device_comm),
                      "rank " + std::to_string(comm.rank()) + " believes that all went well");
        comm.barrier();
      },
      impatient());
}

namespace {

struct foreign_block {
  __device__ std::uint32_t thread_rank() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
};

template <class Group>
__global__ void try_to_meet(device_comm comm, status* outcomes) {
  lsa::barrier_session barrier{Group{}, comm, 0};
  outcomes[threadIdx.x] = barrier.sync_for(milliseconds(60000));
  outcomes[blockDim.x + threadIdx.x] = barrier.sync_for(milliseconds(60000));
}

template <class Group>
void check_aborted() {
  test::on_ranks(2, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    if (comm.rank() == 0) {
      const test::device_array<status> outcomes(2 * threads, 0xff);
      comm.abort();
      launch(try_to_meet<Group>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             outcomes.get());
      test::finish("try_to_meet");
      for (const status outcome : outcomes.read())
        test::require(outcome == status::aborted, std::string("outcome is ") + to_string(outcome));
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("all threads of a group are told the same, whatever the group") {
  check_aborted<block>();
  check_aborted<foreign_block>();
}

namespace {

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;
using ll128 = lsa::ll128_session<block>;

/// What a rank calls in each of its blocks: all-reduces of ones.
struct call {
  bool two_shots;
  collective::slice packs;
  int times = 1;
};

template <class Session>
__global__ void all_reduce(device_comm comm, team members, typename Session::handle mailboxes, call what, float* output,
                           std::uint64_t count, status* outcomes) {
  Session session{block{}, comm, members, mailboxes, blockIdx.x};
  const auto ones = [](std::uint64_t) { return pack<float>{{1, 1, 1, 1}}; };
  const collective::to_memory<float> results{output + blockIdx.x * count, count};  // blocks all reduce the same packs
  for (int i = 0; i < what.times; ++i) {
    if (what.two_shots) {
      collective::all_reduce_two_shot<float>(session, what.packs, ones, results, sum{});
    } else {
      collective::all_reduce_one_shot<float>(session, what.packs, ones, results, sum{});
    }
  }
  const status outcome = session.agree();
  if (threadIdx.x == 0) outcomes[blockIdx.x] = outcome;
}

constexpr std::uint32_t max_blocks = 2;
constexpr std::uint32_t capacity = 16;  // packs in a round
constexpr std::uint64_t max_packs = 110;
constexpr std::uint32_t poison = 0xffffffffu;

/// What came of a launch on one rank.
struct result {
  std::vector<status> outcomes;  ///< of each block
  std::vector<failure_record> failures;
  std::vector<float> output;
};

/// The launch of one rank: as many blocks and threads, that all make `what` with `members`.
template <class Session>
result run(host::communicator& comm, team members, launch_config config, const call& what, std::uint64_t key = 0) {
  auto needs = comm.requirements();
  const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(members, max_blocks, capacity));
  const auto device_comm = comm.create_device_comm(needs);
  const test::device_array<status> outcomes(max_blocks, 0xff);
  constexpr std::size_t of_block = max_packs * 4;
  const test::device_array<float> output(max_blocks * of_block, 0xff);
  config.stream = cudaStreamPerThread;
  comm.barrier();
  if (config.grid.x != 0) {
    launch(all_reduce<Session>, config, device_comm.get().with_launch_key(key), members, mailboxes, what, output.get(),
           of_block, outcomes.get());
    test::finish("all_reduce");
  }
  result got{outcomes.read(), device_comm.failures(), output.read()};
  test::require(check_throws(device_comm) == !got.failures.empty(), "check and failures differ");
  comm.barrier();  // the memory of a rank stays until all have done
  return got;
}

bool is_poison(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits == poison;
}

/// One rank never comes: the others give up in time and name it, and store nothing that is no sum.
template <class Session>
void check_missing_rank(int ranks, bool two_shots) {
  INFO(ranks << " ranks, " << (two_shots ? "two shots, " : "one shot, ") << to_string(Session::what));
  const int missing = ranks / 2;
  test::on_ranks(
      ranks,
      [&](host::communicator& comm) {
        const bool comes = comm.rank() != missing;
        const auto start = std::chrono::steady_clock::now();
        const result got = run<Session>(comm, comm.lsa(), {.grid = comes ? 1u : 0u, .block = 32}, {two_shots, {0, 40}});
        if (!comes) return;
        test::require(std::chrono::steady_clock::now() - start < std::chrono::seconds(20), "the wait went on");
        bool named = false;
        for (const failure_record& record : got.failures) {
          const bool timed_out = record.outcome == status::timeout && record.what == Session::what;
          named = named || (timed_out && record.rank == comm.rank());
          // Of two shots, the second may be missed from a rank that misses the first.
          test::require(record.peer == missing || two_shots, "rank " + std::to_string(record.peer) + " is blamed");
        }
        test::require(named, "no record of a timeout");
        const status outcome = got.outcomes[0];
        test::require(outcome == status::timeout || outcome == status::aborted,
                      std::string("outcome is ") + to_string(outcome));
        // A round of two shots has shares of which the missing rank owns one; of the others nobody has its part.
        for (const float value : got.output) test::require(is_poison(value), "something was stored");
      },
      {.kernel_timeout = std::chrono::milliseconds(10)});
}

}  // namespace

TEST_CASE("ranks whose peer never comes give up in time, name it, and consume nothing", "[real_time]") {
  for (const bool two_shots : {false, true}) {
    check_missing_rank<ll>(3, two_shots);
    check_missing_rank<lamport>(5, two_shots);
    check_missing_rank<ll128>(3, two_shots);
  }
  check_missing_rank<ll>(9, false);
}

namespace {

constexpr std::uint32_t chunk_packs = 8;
constexpr std::uint32_t chunked_packs = 2 * chunk_packs;  // one round of two ranks

/// The sum of `input` over the ranks, after `delay` milliseconds.
__global__ void reduce_chunks(device_comm comm, collective::chunk_buffers buffers, unsigned delay, float input,
                              float* output) {
  if (threadIdx.x == 0) sleep_for(delay);
  __syncthreads();
  lsa::barrier_session barrier{block{}, comm, 0};
  collective::all_reduce_two_shot_chunked<float>(
      barrier, collective::chunk_scratch::of_group(comm, buffers, chunk_packs, 0), {0, chunked_packs},
      [=](std::uint64_t) {
        return pack<float>{{input, input, input, input}};
      },
      collective::to_memory<float>{output, 4 * chunked_packs}, sum{});
}

}  // namespace

TEST_CASE("a rank that timed out on chunks leaves those alone that a late peer still reads") {
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        auto needs = comm.requirements().lsa_barriers(1);
        const auto buffers = needs.add(collective::chunk_buffer_bytes{2 * 16 * 2 * chunk_packs});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<float> output(4 * chunked_packs, 0xff);
        const test::device_array<float> next(4 * chunked_packs, 0xff);
        comm.barrier();
        const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
        launch(reduce_chunks, config, device_comm.get(), buffers, comm.rank() == 1 ? 200u : 0u, 1.0f, output.get());
        launch(reduce_chunks, config, device_comm.get(), buffers, 0u, 50.0f, next.get());
        test::finish("reduce_chunks");
        test::require(check_throws(device_comm), "nobody gave up");
        // Rank 0 came in time and left its chunk, so the late rank has the sum of its share, and of no other.
        const auto got = output.read();
        for (std::size_t i = 0; i < got.size(); ++i) {
          const bool reduced = comm.rank() == 1 && i / 4 >= chunk_packs;
          test::require(reduced ? got[i] == 2 : is_poison(got[i]), [&] {
            return "rank " + std::to_string(comm.rank()) + " has " + std::to_string(got[i]) + " at " +
                   std::to_string(i);
          });
        }
        for (const float value : next.read()) test::require(is_poison(value), "a dead session reduced");
        comm.barrier();
      },
      impatient());
}

TEST_CASE("call after call in one session is right, and passes the check, also on many ranks and in teams of some") {
  const auto check = [](const result& got, int members) {
    test::require(got.failures.empty(), "a failure");
    for (std::size_t i = 0; i < got.output.size(); ++i) {
      const std::size_t p = i / 4 % max_packs;
      const bool right = p >= 3 && p < 103 ? got.output[i] == static_cast<float>(members) : is_poison(got.output[i]);
      test::require(right, "a wrong sum");
    }
  };
  const auto check_team = [&](host::communicator& comm, team members) {
    for (const bool two_shots : {false, true}) {
      check(run<ll>(comm, members, {.grid = 2, .block = 32}, {two_shots, {3, 103}, 4}), members.size);
      check(run<lamport>(comm, members, {.grid = 2, .block = 32}, {two_shots, {3, 103}, 4}), members.size);
      if (members.size > 8) continue;  // lines are slow to simulate
      check(run<ll128>(comm, members, {.grid = 2, .block = 32}, {two_shots, {3, 103}, 4}), members.size);
    }
  };
  for (const int ranks : {1, 9})
    test::on_ranks(ranks, [&](host::communicator& comm) { check_team(comm, comm.lsa()); }, {.check_launch = true});
  test::on_ranks(6,
                 [&](host::communicator& comm) {
                   check_team(comm, {comm.rank() / 2, 3, comm.rank() % 2, 2});
                 },
                 {.check_launch = true});
}

#if DEVCOMM_CHECKED

namespace {

/// How the launch of rank 1 of three differs from the others', and what is said of it.
struct other_launch {
  launch_config config{.grid = 1, .block = 32};
  call what{false, {0, 8}};
  std::uint64_t key = 0;
  std::string text;  ///< what rank 1 did
};

template <class Session>
void check_difference(const other_launch& other) {
  INFO(other.text << ", " << to_string(Session::what));
  const other_launch usual{};
  test::on_ranks(test::ranks_that_meet(3),
                 [&](host::communicator& comm) {
                   const other_launch& mine = comm.rank() == 1 ? other : usual;
                   const result got = run<Session>(comm, comm.lsa(), mine.config, mine.what, mine.key);
                   const bool told = got.outcomes[0] == status::mismatch || got.outcomes[0] == status::aborted;
                   test::require(told, std::string("outcome is ") + to_string(got.outcomes[0]));
                   bool named = false;
                   for (const failure_record& record : got.failures) {
                     const std::string text = host::describe(record);
                     test::require(record.outcome == status::mismatch && (record.rank == 1 || record.peer == 1), text);
                     test::require(text.find("rank " + std::to_string(record.peer)) != std::string::npos, text);
                     if (comm.rank() != 1) test::require(text.find("rank 1 " + other.text) != std::string::npos, text);
                     named = true;
                   }
                   test::require(named, "no record of the mismatch");
                   for (const float value : got.output)
                     test::require(is_poison(value) || value == static_cast<float>(comm.size()),
                                   "a wrong sum was stored");
                 },
                 {.kernel_timeout = std::chrono::seconds(5), .check_launch = true});
}

template <class Session>
void check_differences() {
  check_difference<Session>({.config{.grid = 2, .block = 32}, .text = "launched 2 blocks of 32 threads where"});
  check_difference<Session>({.config{.grid = 1, .block = 64}, .text = "launched 1 blocks of 64 threads where"});
  check_difference<Session>({.key = 7, .text = "launched with key 7 where"});
  check_difference<Session>(
      {.what{false, {0, 9}}, .text = "called all_reduce_one_shot of packs 0 to 9 of 4-byte elements where"});
  check_difference<Session>(
      {.what{false, {0, 7}}, .text = "called all_reduce_one_shot of packs 0 to 7 of 4-byte elements where"});
  check_difference<Session>(
      {.what{true, {0, 8}}, .text = "called all_reduce_two_shot of packs 0 to 8 of 4-byte elements where"});
}

}  // namespace

TEST_CASE("packet sessions find launches and calls that differ between ranks, and say how") {
  check_differences<ll>();
  check_differences<lamport>();
  check_differences<ll128>();
}

#endif

#if defined(DEVCOMM_SIMULATOR)  // checked mode, and the kernel's end tells which mistake it was

#  include <devcomm/simulator/simulator.hpp>

namespace {

__global__ void leave_after_arrive(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, 0};
  barrier.arrive();
}

__global__ void meet_as(device_comm comm, team members, lsa::barrier_handle barriers) {
  lsa::barrier_session barrier{block{}, comm, members, barriers, 0};
  barrier.sync();
}

__global__ void meet_in_a_warp(device_comm comm) {
  lsa::barrier_session barrier{warp{}, comm, 0};
  barrier.sync();
}

__global__ void two_sessions(device_comm comm, lsa::lamport_handle mailboxes) {
  for (int i = 0; i < 2; ++i) {
    lsa::lamport_session session{block{}, comm, team{0, 1, 0, 1}, mailboxes, 0};
    session.begin_round();
  }
}

__global__ void broadcast_from(device_comm comm, team members, lsa::lamport_handle mailboxes, int root, float* data) {
  lsa::lamport_session session{block{}, comm, members, mailboxes, 0};
  const std::uint64_t count = 4 * session.pack_capacity();
  collective::broadcast<float>(session, root, {0, session.pack_capacity()}, collective::from_memory<float>{data, count},
                               collective::to_memory<float>{data, count});
}

__global__ void exchange_with(device_comm comm, team members, lsa::lamport_handle mailboxes, collective::partners with,
                              float* data) {
  lsa::lamport_session session{block{}, comm, members, mailboxes, 0};
  const std::uint64_t count = 4 * session.pack_capacity();
  collective::exchange<float>(session, with, {0, session.pack_capacity()}, collective::from_memory<float>{data, count},
                              collective::to_memory<float>{data, count});
}

enum class vector_mistake { past_input, past_output, past_gathered, in_place };
__global__ void reduce_wrongly(device_comm comm, sym_ptr<float> small, sym_ptr<float> large, vector_mistake which) {
  lsa::barrier_session barrier{block{}, comm, 0};
  using namespace collective;
  switch (which) {
    case vector_mistake::past_input: all_reduce_one_shot_zero_copy(barrier, small, large.local(), 65, sum{}); break;
    case vector_mistake::past_output: all_reduce_two_shot_zero_copy(barrier, large, small + 1, 64, sum{}); break;
    case vector_mistake::past_gathered:
      all_gather_zero_copy(barrier, static_cast<const float*>(large.local()), small, 65);
      break;
    case vector_mistake::in_place: all_reduce_one_shot_zero_copy(barrier, large, large.local() + 3, 64, sum{}); break;
  }
}

__global__ void hold_lines(device_comm comm, lsa::ll128_handle mailboxes) {
  lsa::ll128_session session{block{}, comm, team{0, 1, 0, 1}, mailboxes, 0};
}

__global__ void halve_a_row(device_comm comm, collective::chunk_buffers chunks) {
  lsa::barrier_session barrier{block{}, comm, 0};
  const auto odd = collective::chunk_scratch::of_group(comm, chunks, 3, 0, 2);  // rows of two packs in chunks of three
  collective::all_reduce_two_shot_chunked<float>(
      barrier, odd, {0, 4}, [](std::uint64_t) { return pack<float>{}; }, [](std::uint64_t, const pack<float>&) {},
      sum{});
}

struct resources {
  lsa::barrier_handle barriers;  ///< of rank 0 alone, as are the mailboxes
  lsa::lamport_handle mailboxes;
  lsa::ll128_handle lines;
  collective::chunk_buffers chunks;
};

/// The launch fails on rank 0, and says `text`.
template <class Launch>
void check_misuse(const std::string& text, const Launch& start) {
  test::on_ranks(2, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    needs.lsa_barriers(1);
    const team alone{0, 1, 0, 1};
    const resources of_one{needs.add(lsa::barriers{alone, 1}), needs.add(lsa::lamport_mailboxes{alone, 1, 1}),
                           needs.add(lsa::ll128_mailboxes{alone, 1, 1}),
                           needs.add(collective::chunk_buffer_bytes{1 << 10})};
    const auto device_comm = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      start(device_comm.get(), of_one);
      test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the launch succeeded");
      const std::string said = simulator::last_failure();
      test::require(said.find(text) != std::string::npos, "it said: " + said);
    }
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("mistakes with a session are named") {
  const launch_config config{.grid = 1, .block = 32, .stream = cudaStreamPerThread};
  check_misuse("a session ended between arrive and wait",
               [&](const device_comm& comm, resources) { launch(leave_after_arrive, config, comm); });
  check_misuse("the caller is not the member that its team says", [&](const device_comm& comm, resources one) {
    launch(meet_as, config, comm, team{0, 1, 1, 1}, one.barriers);  // rank 0 as rank 1
  });
  check_misuse(
      "a second session of Lamport mailbox 0 of rank 0 in one launch: nothing orders the first one's stores "
      "before its packets; make one session that does several rounds, or give the second a mailbox of its own",
      [&](const device_comm& comm, resources one) { launch(two_sessions, config, comm, one.mailboxes); });
  check_misuse("the root of a broadcast is outside the session's team", [&](const device_comm& comm, resources one) {
    launch(broadcast_from, config, comm, team{0, 1, 0, 1}, one.mailboxes, 1, static_cast<float*>(nullptr));
  });
  check_misuse("an exchange is with members of the session's team or no_member, and with oneself both ways or none",
               [&](const device_comm& comm, resources one) {
                 launch(exchange_with, config, comm, team{0, 1, 0, 1}, one.mailboxes,
                        collective::partners{0, collective::no_member}, static_cast<float*>(nullptr));
               });
  check_misuse("packs that warps move together need a group of whole warps: give it a multiple of 32 threads",
               [&](const device_comm& comm, resources one) {
                 launch(hold_lines, {.grid = 1, .block = 48, .stream = cudaStreamPerThread}, comm, one.lines);
               });
  check_misuse("chunks hold a whole number of rows, one at least: give packs_for the granularity",
               [&](const device_comm& comm, resources one) { launch(halve_a_row, config, comm, one.chunks); });
  check_misuse("the block ends within the tile", [&](const device_comm& comm, resources) {
    launch(meet_in_a_warp, {.grid = 1, .block = 2, .stream = cudaStreamPerThread}, comm);
  });
}

TEST_CASE("vectors past the ends of their windows, and a one-shot all-reduce in place, are named") {
  const auto said_of = [](vector_mistake which) {
    std::string said;
    test::on_ranks(1, [&](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
      const auto small = comm.allocate(64 * sizeof(float));
      const auto large = comm.allocate(128 * sizeof(float));
      launch(reduce_wrongly, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
             small.pointer<float>(), large.pointer<float>(), which);
      test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the launch succeeded");
      said = simulator::last_failure();
    });
    return said;
  };
  for (const auto which : {vector_mistake::past_input, vector_mistake::past_output, vector_mistake::past_gathered}) {
    const std::string said = said_of(which);
    INFO(said);
    CHECK(said.find("a collective's vector reaches past the end of its window") != std::string::npos);
  }
  const std::string said = said_of(vector_mistake::in_place);
  INFO(said);
  CHECK(said.find("a one-shot all-reduce cannot be in place") != std::string::npos);
}

TEST_CASE("ranks that broadcast from different roots are told so") {
  test::on_ranks(test::ranks_that_meet(3),
                 [](host::communicator& comm) {
                   auto needs = comm.requirements();
                   const lsa::lamport_handle mailboxes = needs.add(lsa::lamport_mailboxes{comm.lsa(), 1, 8});
                   const auto device_comm = comm.create_device_comm(needs);
                   const test::device_array<float> data(32);
                   comm.barrier();
                   launch(broadcast_from, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
                          comm.lsa(), mailboxes, comm.rank() == 1 ? 1 : 0, data.get());
                   test::finish("broadcast_from");
                   std::string said;
                   try {
                     device_comm.check();
                   } catch (const std::exception& error) {
                     said = error.what();
                   }
                   const char* expected = "broadcast of packs 0 to 8 of 4-byte elements with root";
                   test::require(said.find(expected) != std::string::npos, "it said: " + said);
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::seconds(5), .check_launch = true});
}

TEST_CASE("ranks whose partners in an exchange match pass the check") {
  test::on_ranks(test::ranks_that_meet(3),
                 [](host::communicator& comm) {
                   auto needs = comm.requirements();
                   const lsa::lamport_handle mailboxes = needs.add(lsa::lamport_mailboxes{comm.lsa(), 1, 8});
                   const auto device_comm = comm.create_device_comm(needs);
                   const test::device_array<float> data(32);
                   comm.barrier();
                   launch(exchange_with, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
                          comm.lsa(), mailboxes, collective::partners::in_ring(comm.rank(), comm.size()), data.get());
                   test::finish("exchange_with");
                   device_comm.check();
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::seconds(5), .check_launch = true});
}

TEST_CASE("ranks whose partners in an exchange do not match are told so") {
  test::on_ranks(2,
                 [](host::communicator& comm) {
                   auto needs = comm.requirements();
                   const lsa::lamport_handle mailboxes = needs.add(lsa::lamport_mailboxes{comm.lsa(), 1, 8});
                   const auto device_comm = comm.create_device_comm(needs);
                   const test::device_array<float> data(32);
                   comm.barrier();
                   // Rank 0 exchanges with rank 1, which exchanges with itself.
                   launch(exchange_with, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
                          comm.lsa(), mailboxes, collective::partners{1, 1}, data.get());
                   test::finish("exchange_with");
                   std::string said;
                   try {
                     device_comm.check();
                   } catch (const std::exception& error) {
                     said = error.what();
                   }
                   const char* expected = comm.rank() == 0
                                              ? "rank 1 does not send to rank 0 in its call of exchange of packs "
                                                "0 to 8 of 4-byte elements where rank 0 receives from it"
                                              : "rank 0 sends to rank 1 in its call of exchange of packs 0 "
                                                "to 8 of 4-byte elements where rank 1 does not receive from it";
                   test::require(said.find(expected) != std::string::npos, "it said: " + said);
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::seconds(5), .check_launch = true});
}

#endif
