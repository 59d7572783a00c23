/// What the simulator says of kernels that misuse sessions or wait for each other in a cycle.
#include <devcomm/devcomm.cuh>
#include <devcomm/simulator/simulator.hpp>

#include "support/ranks.hpp"

#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;
constexpr int ranks = 2;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Waits for the calling rank's kernel, whose failure is meant: what the simulator says of it.
std::string wait_and_look() {
  static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
  return simulator::last_failure();
}

/// Launches `kernel` with `blocks` blocks on both ranks; what the simulator then says, if anything.
template <class Kernel>
std::string fate_of(Kernel kernel, unsigned blocks = 1) {
  simulator::clear_failure();
  test::on_ranks(ranks, [&](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
    comm.barrier();
    launch(kernel, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get());
    static_cast<void>(wait_and_look());
    comm.barrier();
  });
  return simulator::last_failure();
}

using block_session = lsa::barrier_session<block>;

__global__ void one_thread_two_sessions(device_comm comm) {
  block_session first{block{}, comm, 1};
  block_session second{block{}, comm, 1};
  second.sync();
}
__global__ void blocks_share_an_index(device_comm comm) {
  block_session barrier{block{}, comm, 0};
  barrier.sync();
}
__global__ void warps_share_an_index(device_comm comm) {
  lsa::barrier_session barrier{warp{}, comm, 1};
  barrier.sync();
}
__global__ void half_waits_half_syncs(device_comm comm) {
  block_session barrier{block{}, comm, 1};
  if (threadIdx.x < threads / 2) {
    barrier.sync();
  } else {
    barrier.arrive();
    barrier.wait();
  }
}
__global__ void half_goes_home(device_comm comm) {
  block_session barrier{block{}, comm, 1};
  if (threadIdx.x < threads / 2) barrier.sync();
}
__global__ void half_takes_part(device_comm comm) {
  if (threadIdx.x >= threads / 2) return;
  block_session barrier{block{}, comm, 1};
}
__global__ void arrives_without_wait(device_comm comm) {
  block_session barrier{block{}, comm, 1};
  barrier.arrive();
}
__global__ void waits_without_arrive(device_comm comm) {
  block_session barrier{block{}, comm, 1};
  barrier.wait();
}

}  // namespace

TEST_CASE("misuse of a session is named, with its barrier") {
  std::string said = fate_of(one_thread_two_sessions);
  INFO(said);
  CHECK(contains(said, "two sessions of LSA barrier 1 of rank"));
  CHECK(contains(said, "one of the same thread"));

  said = fate_of(blocks_share_an_index, 2);
  INFO(said);
  CHECK(contains(said, "two sessions of LSA barrier 0 of rank"));
  CHECK(contains(said, "are live at once, this one and one of block"));

  said = fate_of(warps_share_an_index);
  INFO(said);
  CHECK(contains(said, "two sessions of LSA barrier 1 of rank"));
  CHECK(contains(said, "are live at once, this one and one of block 0, thread"));

  said = fate_of(half_waits_half_syncs);
  INFO(said);
  CHECK(contains(said, "the group of the session of LSA barrier 1 of rank"));
  CHECK(
      (contains(said, "this thread is at sync, and thread") || contains(said, "this thread is at arrive, and thread")));

  said = fate_of(half_goes_home);
  INFO(said);
  CHECK(contains(said, "diverged: this thread is at"));
  CHECK(contains(said, "the session's end"));

  said = fate_of(half_takes_part);
  INFO(said);
  CHECK(contains(said, "has 64 threads, and only 32 took part"));

  said = fate_of(arrives_without_wait);
  INFO(said);
  CHECK(contains(said, ", in a session of LSA barrier 1: a session ended between arrive and wait"));

  said = fate_of(waits_without_arrive);
  INFO(said);
  CHECK(contains(said, ", in a session of LSA barrier 1: wait called without an arrive before it"));
}

namespace {

/// Sessions that follow one another on one index, in one group and from block to block, and some at once.
__global__ void right_use(device_comm comm, unsigned* turn) {
  for (unsigned before = 0; before < blockIdx.x; ++before) {
    if (threadIdx.x == 0) {
      while (arch::load<memory_order::acquire, scope::device>(turn) < blockIdx.x) {
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 3; ++i) {
    block_session barrier{block{}, comm, 0};
    block_session other{block{}, comm, 1};
    barrier.sync();
    other.arrive();
    other.wait();
  }
  if (threadIdx.x == 0) arch::store<memory_order::release, scope::device>(turn, blockIdx.x + 1);
}

}  // namespace

namespace {

constexpr int line_of_misuse = __LINE__ + 3;
template <memory_order Order>
__global__ void takes_a_barrier_past_the_end(device_comm comm, lsa::ll_handle) {
  lsa::barrier_session barrier{block{}, comm, 5};
  barrier.sync(Order);
}

__global__ void joins_a_wrong_named_barrier(device_comm) { arch::sync_named(1, 48); }

}  // namespace

TEST_CASE("misuse is told with its kernel as it is written, the caller's line, the numbers and what mends it") {
  simulator::clear_failure();
  test::on_ranks(1, [&](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
    launch(takes_a_barrier_past_the_end<memory_order::acq_rel>, {.stream = cudaStreamPerThread}, device_comm.get(),
           lsa::ll_handle{});
    static_cast<void>(wait_and_look());
  });
  std::string said = simulator::last_failure();
  INFO(said);
  CHECK(contains(said, "rank 0, block 0, thread 0, kernel "));
  CHECK(contains(said,
                 "takes_a_barrier_past_the_end<devcomm::memory_order::acq_rel>(devcomm::device_comm, "
                 "devcomm::lsa::ll_handle)"));
  CHECK(contains(said, "ask for more: needs.lsa_barriers(count) (barrier 5 of 2) [index < barriers.count]"));
  CHECK(contains(said, "\n      called at "));
  CHECK(contains(said, "diagnosis_test.cu:" + std::to_string(line_of_misuse) + " in "));

  said = fate_of(joins_a_wrong_named_barrier);
  INFO(said);
  CHECK(
      contains(said, "kernel (anonymous namespace)::joins_a_wrong_named_barrier(devcomm::device_comm): the number of"));
  CHECK(contains(said, "diagnosis_test.cu:" + std::to_string(line_of_misuse + 4) + " in "));
}

TEST_CASE("a failed kernel fails its rank, though the rank has thrown away what calls returned") {
  const auto failed = [](bool by_check, bool seen) -> std::string {
    try {
      test::on_ranks(2, [&](host::communicator& comm) {
        const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
        launch(joins_a_wrong_named_barrier, {.stream = cudaStreamPerThread}, device_comm.get());
        static_cast<void>(cudaDeviceSynchronize());
        comm.barrier();
        if (seen) simulator::clear_failure();
        if (by_check) device_comm.check();
        comm.barrier();
      });
    } catch (const host::kernel_error& error) {
      return error.what();
    }
    return "";
  };
  for (const bool by_check : {false, true}) {
    const std::string said = failed(by_check, false);
    INFO(said);
    CHECK(contains(said, by_check ? "): a kernel failed: cudaErrorAssert: rank "
                                  : "): the function returned, and a kernel has failed: cudaErrorAssert: rank "));
    // Each rank tells of its own kernel.
    const bool first = contains(said, by_check ? "check (rank 0 of 2)" : "run_ranks (rank 0 of 2)");
    CHECK(contains(said, first ? "cudaErrorAssert: rank 0, block 0, thread 0, kernel"
                               : "cudaErrorAssert: rank 1, block 0, thread 0, kernel"));
    CHECK(contains(said, "joins_a_wrong_named_barrier"));
    simulator::clear_failure();
    CHECK(failed(by_check, true).empty());
  }
}

TEST_CASE("right use of sessions is let be") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    simulator::set_seed(seed);
    simulator::clear_failure();
    test::on_ranks(ranks, [](host::communicator& comm) {
      const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
      const test::device_array<unsigned> turn(1, 0);
      launch(right_use, {.grid = 3, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), turn.get());
      test::finish("right_use");
      device_comm.check();
      comm.barrier();
    });
    CHECK(simulator::last_failure().empty());
  }
}

namespace {

/// Each rank waits first at the barrier that the other one comes to last.
__global__ void opposite_order(device_comm comm) {
  const auto first = static_cast<std::uint32_t>(comm.rank);
  {
    block_session barrier{block{}, comm, first};
    barrier.sync();
  }
  block_session barrier{block{}, comm, 1 - first};
  barrier.sync();
}

__global__ void meet(device_comm comm) {
  block_session barrier{block{}, comm, 0};
  barrier.sync();
}

template <class Channel>
__device__ void receive_from(int member, Channel& channel) {
  channel.begin_round();
  std::uint64_t got[1][1];
  channel.receive(member, member + 1, threadIdx.x, got);
}

/// Each block of the rank waits for what the other has not sent.
__global__ void receive_only(device_comm comm, lsa::ll_handle channels, int first) {
  const int part = first + static_cast<int>(blockIdx.x);
  lsa::ll_session channel{block{}, comm, lsa::local_team{part, 2, 0}, channels};
  receive_from(1 - part, channel);
}

/// The same in a channel that has the number of another one, which the group holds, too.
__global__ void receive_beside_another(device_comm comm, lsa::ll_handle channels, lsa::ll_handle of_ranks) {
  const auto part = static_cast<int>(blockIdx.x);
  lsa::ll_session channel{block{}, comm, lsa::local_team{part, 2, 0}, channels};
  lsa::ll_session other{block{}, comm, of_ranks, blockIdx.x};
  receive_from(1 - part, channel);
}

/// Both blocks wait for a third.
__global__ void receive_from_last(device_comm comm, lsa::ll_handle channels, int) {
  lsa::ll_session channel{block{}, comm, lsa::local_team{static_cast<int>(blockIdx.x), 3, 0}, channels};
  receive_from(2, channel);
}

/// The block waits for what it has not sent to itself.
__global__ void receive_own(device_comm comm, lsa::ll_handle channels, int part) {
  lsa::ll_session channel{block{}, comm, lsa::local_team{part, 2, 0}, channels};
  receive_from(part, channel);
}

/// The second half of the block waits for the first, which has gone on to a sync with it.
__global__ void half_is_elsewhere(device_comm comm, lsa::ll_handle channels, int part) {
  if (threadIdx.x >= threads / 2) {
    lsa::ll_session channel{warp_span{1, 1, 1}, comm, lsa::local_team{part, 2, 0}, channels};
    receive_from(1 - part, channel);
  }
  __syncthreads();
}

/// The two blocks of `kernel` or, from `first` on, the second, among `parts` groups of a rank.
std::string fate_of_groups(int first, void (*kernel)(device_comm, lsa::ll_handle, int) = receive_only,
                           unsigned parts = 2) {
  simulator::clear_failure();
  test::on_ranks(1, [&](host::communicator& comm) {
    devcomm::requirements needs = comm.requirements();
    const lsa::ll_handle channels = needs.add(lsa::local_ll_mailboxes{parts, parts, threads});
    const auto device_comm = comm.create_device_comm(needs);
    launch(kernel, {.grid = 2u - static_cast<unsigned>(first), .block = threads, .stream = cudaStreamPerThread},
           device_comm.get(), channels, first);
    static_cast<void>(wait_and_look());
  });
  return simulator::last_failure();
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a deadlock names the cycle of those that wait for each other, and draws it") {
  const std::string path = "/tmp/devcomm_deadlock_" + std::to_string(getpid());
  for (const std::string kind : {".svg", ".dot"}) {
    simulator::set_deadlock_picture(path + kind);
    const std::string said = fate_of(opposite_order);
    simulator::set_deadlock_picture("");
    INFO(said);
    CHECK(contains(said, "rank 0, block 0, thread 0: LSA barrier 0: waits for rank 1 to reach epoch 1, saw 0"));
    CHECK(contains(said, "the waits form a cycle:"));
    CHECK(contains(said, "rank 0, block 0, thread 0 at LSA barrier 0 waits for\n"));
    CHECK(contains(said, "rank 1, block 0, thread 0 at LSA barrier 1 waits for\n"));
    CHECK(contains(said, "picture: " + path + kind));

    const std::string picture = read_file(path + kind);
    std::remove((path + kind).c_str());
    INFO(picture);
    CHECK(picture.rfind(kind == ".svg" ? "<svg" : "digraph", 0) == 0);
    CHECK(contains(picture, "rank 1, block 0, threads 1-63"));
    const std::string edge = kind == ".svg" ? "<path class=\"red\"" : "[color=red, penwidth=2]";
    std::size_t edges = 0;
    for (std::size_t at = picture.find(edge); at != std::string::npos; at = picture.find(edge, at + 1)) ++edges;
    CHECK(edges == 2);
  }
  CHECK_THROWS_AS(simulator::set_deadlock_picture("deadlock.png"), std::invalid_argument);
}

TEST_CASE("a picture that cannot be written is no obstacle to the report") {
  simulator::set_deadlock_picture("/no such folder/x.svg");
  const std::string said = fate_of(opposite_order);
  simulator::set_deadlock_picture("");
  CHECK(contains(said, "the waits form a cycle:"));
  CHECK(contains(said, "no picture: /no such folder/x.svg cannot be written: No such file or directory"));
}

TEST_CASE("a deadlock among blocks of one rank names the block, or the channel where none is") {
  std::string said = fate_of_groups(0);
  INFO(said);
  CHECK(contains(said,
                 "rank 0, block 0, threads 0-63: LL mailbox 0: waits for block 1 at LL mailbox 1 to reach epoch 1"));
  CHECK(contains(said,
                 "rank 0, block 1, threads 0-63: LL mailbox 1: waits for block 0 at LL mailbox 0 to reach epoch 1"));
  CHECK(contains(said, "the waits form a cycle:"));
  said = fate_of_groups(1);
  INFO(said);
  CHECK(contains(said, "LL mailbox 1: waits for a group at LL mailbox 0, where none is, to reach epoch 1"));
  CHECK(contains(said, "\n  rank 0: no group is at LL mailbox 0"));
  CHECK_FALSE(contains(said, "cycle"));
  said = fate_of_groups(1, receive_own);
  INFO(said);
  CHECK(contains(said, "LL mailbox 1: waits for block 0 at LL mailbox 1 to reach epoch 1"));
}

TEST_CASE("blocks that wait for the same missing group are not told to wait for each other") {
  const std::string said = fate_of_groups(0, receive_from_last, 3);
  INFO(said);
  CHECK(contains(said, "block 1, threads 0-63: LL mailbox 1: waits for a group at LL mailbox 2, where none is, to"));
  CHECK(contains(said, "\n  rank 0: no group is at LL mailbox 2"));
  CHECK_FALSE(contains(said, "cycle"));
}

TEST_CASE("a deadlock report tells channels of two handles apart") {
  simulator::clear_failure();
  test::on_ranks(1, [](host::communicator& comm) {
    devcomm::requirements needs = comm.requirements();
    const lsa::ll_handle channels = needs.add(lsa::local_ll_mailboxes{2, 2, threads});
    const lsa::ll_handle of_ranks = needs.add(lsa::ll_mailboxes{comm.lsa(), 2, threads});
    const auto device_comm = comm.create_device_comm(needs);
    launch(receive_beside_another, {.grid = 2, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
           channels, of_ranks);
    static_cast<void>(wait_and_look());
  });
  const std::string said = simulator::last_failure();
  INFO(said);
  CHECK(contains(said, "rank 0, block 0, threads 0-63: LL mailbox 0: waits for block 1 at LL mailbox 1 to reach"));
  CHECK(contains(said, "rank 0, block 1, threads 0-63: LL mailbox 1: waits for block 0 at LL mailbox 0 to reach"));
}

TEST_CASE("a group that a deadlock lacks is looked for among the other threads of its block too") {
  const std::string said = fate_of_groups(1, half_is_elsewhere);
  INFO(said);
  CHECK(contains(said, "threads 32-63: LL mailbox 1: waits for a group at LL mailbox 0, where none is, to reach"));
  CHECK(contains(said, "the waits form a cycle:"));
  CHECK(contains(said, "rank 0, block 0, threads 0-31 at __syncthreads waits for\n"));
  CHECK_FALSE(contains(said, "no group is at"));
}

TEST_CASE("a deadlock says whose kernel is not there") {
  simulator::clear_failure();
  test::on_ranks(ranks, [](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    if (comm.rank() == 0) {
      launch(meet, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get());
      test::require(!wait_and_look().empty(), "the launch succeeded");
    }
    comm.barrier();
  });
  const std::string said = simulator::last_failure();
  INFO(said);
  CHECK(contains(said, "\n  rank 1: runs no kernel that could arrive"));
  CHECK_FALSE(contains(said, "cycle"));
}

TEST_CASE("a rank that frees memory while a kernel on the GPU that it shares waits for it is a deadlock") {
  const auto fate_on = [](int device) {
    simulator::clear_failure();
    host::communicator_options options;
    options.device = device;
    test::on_ranks(
        ranks,
        [&](host::communicator& comm) {
          const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2));
          void* memory = nullptr;
          check_cuda(cudaMalloc(&memory, 4096), "cudaMalloc");
          if (comm.rank() == 0) comm.barrier();
          check_cuda(cudaFree(comm.rank() == 0 ? memory : nullptr), "cudaFree");
          launch(blocks_share_an_index, {.block = threads, .stream = cudaStreamPerThread}, device_comm.get());
          if (comm.rank() == 1) comm.barrier();
          comm.barrier();  // once a rank is told of the failure, calls of both return it
          static_cast<void>(wait_and_look());
          comm.barrier();
          if (comm.rank() == 1) check_cuda(cudaFree(memory), "cudaFree");
        },
        options);
    return simulator::last_failure();
  };
  const std::string said = fate_on(0);
  CHECK(contains(said, "rank 1, block 0, thread 0: LSA barrier 0: waits for rank 0 to reach epoch 1, saw 0"));
  CHECK(contains(said, "rank 0: runs no kernel that could arrive"));
  CHECK(fate_on(-1).empty());  // each has one of its own
}

TEST_CASE("a rank that loops once more than the others, who are at a host barrier, is a deadlock at once") {
  simulator::clear_failure();
  const int many = GENERATE(2, 4);
  test::on_ranks(many, [&](host::communicator& comm) {
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1));
    const auto begin = std::chrono::steady_clock::now();
    const int rounds = comm.rank() == 1 ? 4 : 3;
    cudaError_t end = cudaSuccess;
    for (int round = 0; round < rounds; ++round) {
      launch(meet, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get());
      end = cudaStreamSynchronize(cudaStreamPerThread);
    }
    if (end != cudaSuccess) static_cast<void>(simulator::last_failure());
    test::require((end == cudaSuccess) == (comm.rank() != 1), "the launch without peers fails, the others do not");
    comm.barrier();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    test::require(took.count() < 3, "the deadlock was found only after " + std::to_string(took.count()) + " s");
  });
  const std::string said = simulator::last_failure();
  INFO(said);
  CHECK(contains(said, "rank 1, block 0, thread 0: LSA barrier 0: waits for rank 0 to reach epoch 4, saw 3"));
  CHECK(contains(said, "\n  rank 0: runs no kernel that could arrive"));
}

namespace {

/// Rank 1 leaves after `rounds` rounds, for which rank 0 has packets in both rows.
__global__ void stop_after(device_comm comm, lsa::ll_handle mailboxes,
                           channel::fifo_handle<channel::protocol::ll> fifos, int rounds) {
  const team members = comm.lsa();
  const auto data = pack<std::uint32_t>{{7, 7, 7, 7}};
  if (mailboxes.count != 0) {
    if (threadIdx.x != 0) return;
    lsa::ll_session session{thread{}, comm, mailboxes, 0};
    for (int round = 0; round < rounds + (members.rank == 0 ? 1 : 0); ++round) {
      session.begin_round();
      session.send_pack_to_all(0, data);
      pack<std::uint32_t> got[2];
      session.receive_packs(0, members.size, 0, got);
    }
  } else {
    const channel::endpoint none = channel::endpoint::none();
    const channel::endpoint other{1 - members.rank, 0, 0};
    channel::session link{warp{}, comm, fifos, members.rank == 0 ? other : none, members.rank == 1 ? other : none};
    for (int round = 0; round < rounds + (members.rank == 0 ? 1 : 0); ++round) {
      if (members.rank == 1) link.send<std::uint32_t>({0, 1}, [&](std::uint64_t) { return data; });
      if (members.rank == 0) link.recv<std::uint32_t>({0, 1}, [](std::uint64_t, const pack<std::uint32_t>&) {});
    }
  }
}

}  // namespace

TEST_CASE("a deadlock of packet waits shows epochs and steps, and not what packets hold") {
  const auto deadlock_of = [](bool mailbox) {
    simulator::clear_failure();
    test::on_ranks(ranks, [&](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), mailbox ? 1u : 0u, 2});
      const auto fifos = needs.add(channel::ll_fifos{comm.lsa(), 1, 1, 1});
      const auto device_comm = comm.create_device_comm(needs);
      comm.barrier();
      launch(stop_after, {.block = 32, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes, fifos, 2);
      static_cast<void>(wait_and_look());
      comm.barrier();
    });
    return simulator::last_failure();
  };
  std::string said = deadlock_of(true);
  INFO(said);
  CHECK(contains(said, "LL mailbox 0: waits for rank 1 to reach epoch 3, saw 2"));
  said = deadlock_of(false);
  INFO(said);
  CHECK(contains(said, "FIFO 0: waits for rank 1 to send step 3, saw 2"));
}

namespace {

/// Waits for operations that nobody has posted.
__global__ void flush_too_much(device_comm comm, gin::context_handle contexts) {
  gin::context net{block{}, comm, contexts, 0};
  gin::flush_ticket begun = net.begin_flush();
  begun.number += 1000;
  net.wait(begun);
}

}  // namespace

TEST_CASE("a deadlock of a flush names the proxy, which a flush waits for") {
  simulator::clear_failure();
  test::on_ranks(ranks, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1});
    const auto device_comm = comm.create_device_comm(needs);
    comm.barrier();
    launch(flush_too_much, {.block = 32, .stream = cudaStreamPerThread}, device_comm.get(), contexts);
    static_cast<void>(wait_and_look());
    comm.barrier();
  });
  const std::string said = simulator::last_failure();
  INFO(said);
  CHECK(contains(said, "GIN flush of context 0: waits for the proxy to complete operations below 1000, saw 0"));
}
