// One session after another on the same barrier or mailbox: in one kernel, in launches whose shape changes, and after
// one of them has given up.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr std::uint32_t sessions = 6;

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;
using ll128 = lsa::ll128_session<block>;

__host__ __device__ std::uint32_t word(int rank, std::uint32_t thread, std::uint32_t round) {
  return static_cast<std::uint32_t>(rank) << 24 | thread << 12 | round;
}

/// A session for each round. Every thread must begin where the last one ended.
__global__ void meet_in_sessions(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t first, unsigned* wrong) {
  const team ranks = comm.lsa();
  for (std::uint32_t round = first; round < first + sessions; ++round) {
    lsa::barrier_session barrier{block{}, comm, 0};
    if (barrier.epoch() != 2 * round) atomicAdd(wrong, 1u);
    board.local()[threadIdx.x] = word(comm.rank, threadIdx.x, round);
    barrier.sync();
    const std::uint32_t other = (threadIdx.x + 1) % blockDim.x;
    for (int member = 0; member < ranks.size; ++member)
      if (board.lsa(member)[other] != word(member, other, round)) atomicAdd(wrong, 1u);
    barrier.sync();
  }
}

/// The same through packets: every thread has a packet for each member, and a session one round.
__global__ void send_in_sessions(device_comm comm, lsa::ll_handle mailboxes, std::uint32_t first, unsigned* wrong) {
  const int ranks = comm.lsa().size;
  for (std::uint32_t round = first; round < first + sessions; ++round) {
    lsa::ll_session session{block{}, comm, mailboxes, 0};
    session.begin_round();
    for (int member = 0; member < ranks; ++member)
      session.send(member, threadIdx.x, word(comm.rank, threadIdx.x, round));
    for (int member = 0; member < ranks; ++member) {
      std::uint64_t got[1][1];
      session.receive(member, member + 1, threadIdx.x, got);
      if (got[0][0] != word(member, threadIdx.x, round)) atomicAdd(wrong, 1u);
    }
  }
}

__global__ void reduce_lines_in_sessions(device_comm comm, lsa::ll128_handle mailboxes, std::uint32_t first,
                                         unsigned* wrong) {
  const int ranks = comm.lsa().size;
  for (std::uint32_t round = first; round < first + sessions; ++round) {
    lsa::ll128_session session{block{}, comm, mailboxes, 0};
    collective::all_reduce_one_shot<std::uint32_t>(
        session, {0, 60},
        [&](std::uint64_t i) {
          return pack<std::uint32_t>{{round, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(comm.rank), 1}};
        },
        [&](std::uint64_t i, const pack<std::uint32_t>& sum) {
          const auto n = static_cast<std::uint32_t>(ranks);
          const bool right = sum[0] == n * round && sum[1] == n * i && sum[2] == n * (n - 1) / 2 && sum[3] == n;
          if (!right) atomicAdd(wrong, 1u);
        },
        sum{});
  }
}

}  // namespace

TEST_CASE("each session of a kernel begins where the one before it ended, for every thread of the group") {
  for (const int ranks : {1, 2, 4}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      auto needs = comm.requirements().lsa_barriers(1);
      const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, threads});
      const auto lines = needs.add(lsa::mailboxes_for<ll128>(comm.lsa(), 1, 60));
      const auto device_comm = comm.create_device_comm(needs);
      const auto board = comm.allocate(threads * sizeof(std::uint32_t));
      const test::device_array<unsigned> wrong(3);
      const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
      comm.barrier();
      for (std::uint32_t n = 0; n < 3; ++n) {
        launch(meet_in_sessions, config, device_comm.get(), board.pointer<std::uint32_t>(), n * sessions, wrong.get());
        launch(send_in_sessions, config, device_comm.get(), mailboxes, n * sessions, wrong.get() + 1);
        launch(reduce_lines_in_sessions, config, device_comm.get(), lines, n * sessions, wrong.get() + 2);
      }
      test::finish("the launches");
      device_comm.check();
      const auto counts = wrong.read();
      for (std::size_t kind = 0; kind < counts.size(); ++kind) {
        test::require(counts[kind] == 0, [&] {
          return std::to_string(counts[kind]) + " wrong, session of kind " + std::to_string(kind) + ", rank " +
                 std::to_string(comm.rank());
        });
      }
      comm.barrier();
    });
  }
}

namespace {

__global__ void meet_once(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::relaxed);
}

}  // namespace

TEST_CASE("launches that change in shape, the same on all ranks, pass the check with no host between them") {
  test::on_ranks(test::ranks_that_meet(3),
                 [](host::communicator& comm) {
                   constexpr unsigned most = 2;
                   const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(most));
                   comm.barrier();
                   // A rank that has passed the barrier shows its next launch while a slower one still compares this
                   // one.
                   for (unsigned n = 0; n < 200; ++n) {
                     launch(meet_once, {.grid = 1 + n % most, .block = 1 + n % 3, .stream = cudaStreamPerThread},
                            device_comm.get().with_launch_key(n));
                   }
                   test::finish("meet_once");
                   device_comm.check();
                   comm.barrier();
                 },
                 {.check_launch = true});
}

namespace {

template <class Session>
__global__ void reduce_ones(device_comm comm, typename Session::handle mailboxes, float* output, status* outcome) {
  Session session{block{}, comm, mailboxes, 0};
  collective::all_reduce_one_shot<float>(
      session, {0, 8},
      [](std::uint64_t) {
        return pack<float>{{1, 1, 1, 1}};
      },
      collective::to_memory<float>{output, 32}, sum{});
  const status mine = session.agree();
  if (threadIdx.x == 0) *outcome = mine;
}

/// Rank 1 misses the first launch and makes the second, when rank 0 has given up.
template <class Session>
void check_relaunch() {
  INFO(to_string(Session::what));
  test::on_ranks(2,
                 [](host::communicator& comm) {
                   auto needs = comm.requirements();
                   const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 1, 8));
                   const auto device_comm = comm.create_device_comm(needs);
                   const test::device_array<float> output(32, 0xff);
                   const test::device_array<status> outcomes(2, 0xff);
                   const auto run = [&](std::size_t n) {
                     launch(reduce_ones<Session>, {.grid = 1, .block = 32, .stream = cudaStreamPerThread},
                            device_comm.get(), mailboxes, output.get(), outcomes.get() + n);
                     test::finish("reduce_ones");
                   };
                   comm.barrier();
                   if (comm.rank() == 0) run(0);
                   comm.barrier();
                   run(1);
                   const auto seen = outcomes.read();
                   if (comm.rank() == 0)
                     test::require(seen[0] == status::timeout, std::string("the first launch: ") + to_string(seen[0]));
                   // Rank 1 finds what rank 0 sent in its first launch, and must not find more.
                   if (comm.rank() == 0)
                     test::require(seen[1] == status::aborted, std::string("the second launch: ") + to_string(seen[1]));
                   bool timed_out = false;
                   for (const failure_record& record : device_comm.failures())
                     timed_out |= record.outcome == status::timeout;
                   test::require(timed_out == (comm.rank() == 0 || seen[1] != status::success),
                                 "records of the timeout");
                   comm.barrier();
                   if (comm.rank() == 1) {
                     run(0);
                     test::require(outcomes.read()[0] != status::success, "a dead rank sent packets");
                     test::require(!device_comm.failures().empty(), "nobody wrote down the failure");
                   }
                   comm.barrier();
                   if (comm.rank() == 0) {
                     for (const float value : output.read()) test::require(!(value == 2), "a dead session reduced");
                   }
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::milliseconds(40)});
}

}  // namespace

TEST_CASE("a packet session that follows one that timed out sends and stores nothing") {
  check_relaunch<ll>();
  check_relaunch<lamport>();
  check_relaunch<ll128>();
}

namespace {

/// Data goes between lanes of warps that meet by a wait with a deadline.
template <class Group>
__global__ void meet_in_time(device_comm comm, sym_ptr<std::uint32_t> board, std::uint32_t rounds, unsigned* wrong) {
  const Group group{};
  const team ranks = comm.lsa();
  lsa::barrier_session barrier{group, comm, 0};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    board.local()[threadIdx.x] = word(comm.rank, threadIdx.x, round);
    if (barrier.sync_for(milliseconds(60000)) != status::success) atomicAdd(wrong, 1u);
    const std::uint32_t other = (threadIdx.x + 5) % blockDim.x;
    for (int member = 0; member < ranks.size; ++member)
      if (board.lsa(member)[other] != word(member, other, round)) atomicAdd(wrong, 1u);
    barrier.arrive();
    if (barrier.wait_for(milliseconds(60000)) != status::success) atomicAdd(wrong, 1u);
  }
}

template <class Group>
void check_in_time(unsigned size) {
  test::on_ranks(test::ranks_that_meet(3), [size](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    const auto board = comm.allocate(size * sizeof(std::uint32_t));
    const test::device_array<unsigned> wrong(1);
    comm.barrier();
    launch(meet_in_time<Group>, {.grid = 1, .block = size, .stream = cudaStreamPerThread}, device_comm.get(),
           board.pointer<std::uint32_t>(), 4u, wrong.get());
    test::finish("meet_in_time");
    device_comm.check();
    test::require(wrong.read().front() == 0, "an old word, or a deadline");
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("a barrier with a deadline orders data among all threads of the group, be it a warp") {
  check_in_time<warp>(32);
  check_in_time<tile<8>>(8);
  check_in_time<block>(threads);
}

namespace {

/// Barrier 0 is waited for in vain by block 0; block 1 goes on until the host has read of it.
__global__ void fail_and_go_on(device_comm comm, const std::uint32_t* go) {
  if (blockIdx.x == 0) {
    lsa::barrier_session barrier{block{}, comm, 7};
    barrier.sync();
    return;
  }
  while (arch::load<memory_order::acquire, scope::system>(go) == 0) arch::sleep(1000);
}

}  // namespace

TEST_CASE("records of failures are whole while the kernel still runs") {
  test::on_ranks(2,
                 [](host::communicator& comm) {
                   const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(8));
                   comm.barrier();
                   if (comm.rank() == 0) {
                     std::uint32_t* go = nullptr;
                     check_cuda(cudaMallocHost(reinterpret_cast<void**>(&go), sizeof *go), "cudaMallocHost");
                     *go = 0;
                     launch(fail_and_go_on, {.grid = 2, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(),
                            static_cast<const std::uint32_t*>(go));
                     std::vector<failure_record> failures;
                     const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
                     while (failures.empty() && std::chrono::steady_clock::now() < give_up) {
                       failures = device_comm.failures();
                       if (failures.empty()) std::this_thread::sleep_for(std::chrono::microseconds(200));
                     }
                     const bool runs = cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady;
                     __atomic_store_n(go, 1u, __ATOMIC_RELEASE);
                     test::finish("fail_and_go_on");
                     check_cuda(cudaFreeHost(go), "cudaFreeHost");
                     test::require(runs, "the kernel had ended");
                     test::require(failures.size() == 1, std::to_string(failures.size()) + " failures");
                     const failure_record& record = failures.front();
                     test::require(record.outcome == status::timeout && record.what == operation::lsa_barrier &&
                                       record.index == 7 && record.rank == 0 && record.peer == 1 && record.block == 0 &&
                                       record.thread == 0 && record.expected == 1 && record.seen == 0,
                                   host::describe(record));
                   }
                   comm.barrier();
                 },
                 {.kernel_timeout = std::chrono::milliseconds(40)});
}

namespace {

/// A user's group whose `sync` all lanes of a warp must reach by one way.
struct own_block {
  __device__ static unsigned thread_rank() { return threadIdx.x; }
  __device__ static unsigned size() { return blockDim.x; }
  __device__ static void sync() { __syncthreads(); }
  __device__ static void sync_apart() { block::sync_apart(); }
};

template <class Group>
__global__ void return_from_barrier(device_comm comm, gin::context_handle, Group group, std::uint32_t* out) {
  lsa::barrier_session barrier{group, comm, blockIdx.x};
  barrier.sync();
  if (threadIdx.x % 3 != 0) return;
  out[threadIdx.x] += 1;
}

template <class Group>
__global__ void return_from_hybrid_barrier(device_comm comm, gin::context_handle contexts, Group group,
                                           std::uint32_t* out) {
  collective::barrier_session barrier{group, comm, contexts, gin::one_context(0), blockIdx.x};
  barrier.sync(gin::fence_level::none);
  if (threadIdx.x % 3 != 0) return;
  out[threadIdx.x] += 1;
}

__global__ void return_from_any_group(device_comm comm, gin::context_handle contexts, block, std::uint32_t* out) {
  collective::barrier_session barrier{any_group(block{}), comm, contexts, gin::one_context(0), blockIdx.x};
  barrier.sync(gin::fence_level::none);
  if (threadIdx.x % 3 != 0) return;
  out[threadIdx.x] += 1;
}

}  // namespace

TEST_CASE("threads of a warp may return apart while a session of their block lives") {
  constexpr unsigned blocks = 1;
  constexpr unsigned launches = 50;
  test::on_ranks(test::ranks_that_meet(2), [](host::communicator& comm) {
    auto needs = comm.requirements().lsa_barriers(blocks);
    const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .barriers = blocks});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<std::uint32_t> out(4 * threads);
    const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    comm.barrier();
    for (unsigned n = 0; n < launches; ++n) {
      launch(return_from_barrier<block>, config, device_comm.get(), contexts, block{}, out.get());
      launch(return_from_barrier<own_block>, config, device_comm.get(), contexts, own_block{}, out.get() + threads);
      launch(return_from_hybrid_barrier<own_block>, config, device_comm.get(), contexts, own_block{},
             out.get() + 2 * threads);
      launch(return_from_any_group, config, device_comm.get(), contexts, block{}, out.get() + 3 * threads);
    }
    test::finish("kernels that return early");
    device_comm.check();
    const auto counts = out.read();
    for (std::size_t i = 0; i < counts.size(); ++i)
      test::require(counts[i] == (i % threads % 3 == 0 ? launches : 0), "a thread went another way");
    comm.barrier();
  });
}
