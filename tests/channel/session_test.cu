/// The primitives of channel::session: what comes out is what went in, at every size, in every order of the calls,
/// across the wrap-around of the counts of steps, and with ranks that are missing or differ.
#include <devcomm/devcomm.cuh>

#include "channel/fifo_kinds.hpp"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#if defined(DEVCOMM_SIMULATOR)
#  include <devcomm/simulator/simulator.hpp>
#endif

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace devcomm;
using channel::protocol;
using collective::from_memory;
using collective::to_memory;

namespace {

constexpr unsigned threads = 64;

/// Element `i` of message `number` from `rank`.
__host__ __device__ std::uint32_t element(int rank, std::uint32_t number, std::uint64_t i) {
  return static_cast<std::uint32_t>(rank) * 0x9e3779b9u + number * 0x85ebca6bu + static_cast<std::uint32_t>(i) * 2 + 1;
}

struct message {
  int rank;
  std::uint32_t number;

  __device__ pack<std::uint32_t> operator()(std::uint64_t i) const {
    pack<std::uint32_t> value;
    for (int e = 0; e < 4; ++e) value[e] = element(rank, number, i * 4 + static_cast<unsigned>(e));
    return value;
  }
};

/// Counts what it gets in `wrong[1]`, and what differs in `wrong[0]`.
struct comparison {
  message expected;
  unsigned* wrong;

  __device__ void operator()(std::uint64_t i, const pack<std::uint32_t>& value) const {
    atomicAdd(wrong + 1, 1u);
    for (int e = 0; e < 4; ++e)
      if (value[e] != expected(i)[e]) atomicAdd(wrong, 1u);
  }
};

constexpr std::uint32_t messages = 7;

/// Packs of message `n`; each fits into the slots.
__host__ __device__ std::uint64_t size_of(std::uint32_t n) {
  constexpr std::uint64_t sizes[messages] = {1, 0, 7, 31, 64, 5, 130};
  return sizes[n];
}

/// Messages of many sizes go round a ring of all ranks: each rank sends its own and receives the previous one's.
template <protocol Protocol>
__global__ void pass_round(device_comm comm, channel::fifo_handle<Protocol> fifos, std::uint32_t first,
                           unsigned* wrong) {
  const team ranks = comm.lsa();
  channel::session ring{block{}, comm, fifos, channel::from_previous(ranks, blockIdx.x),
                        channel::to_next(ranks, blockIdx.x)};
  const int previous = ranks.rank == 0 ? ranks.size - 1 : ranks.rank - 1;
  for (std::uint32_t n = 0; n < messages; ++n) {
    const slice packs{n, n + size_of(n)};
    ring.template send<std::uint32_t>(packs, message{ranks.rank, first + n});
    ring.template recv<std::uint32_t>(packs, comparison{{previous, first + n}, wrong});
  }
  if (ring.agree() != status::success) atomicAdd(wrong, 1u);
}

/// Sets the counts of steps of every FIFO to `steps`, as if so many had gone through.
template <protocol Protocol>
void start_at(const host::device_communicator& comm, const channel::fifo_handle<Protocol>& fifos, std::uint32_t steps) {
  const channel::fifo_layout<Protocol> layout{fifos.count, fifos.slots, fifos.packs};
  char* own = comm.get().resources.local + fifos.offset;
  const auto set = [&](std::uint64_t offset, std::uint32_t value) {
    check_cuda(cudaMemcpyAsync(own + offset, &value, sizeof value, cudaMemcpyDefault, cudaStreamPerThread), "copy");
  };
  for (std::uint32_t i = 0; i < fifos.count; ++i) {
    set(layout.tail(i), steps);
    set(layout.head(i), steps);
    for (const std::uint64_t word : {0u, 4u, 8u}) set(layout.counts(i) + word, steps);
  }
  test::finish("counts");
}

template <protocol Protocol>
void check_passing(int ranks, std::uint32_t packs, std::uint32_t slots, std::uint32_t steps) {
  INFO(to_string(Protocol) << ", " << ranks << " ranks, " << packs << " packs, " << slots << " slots, from " << steps);
  test::on_ranks(ranks, [=](host::communicator& comm) {
    constexpr std::uint32_t blocks = 2;
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), blocks, packs, slots});
    const auto device_comm = comm.create_device_comm(needs);
    start_at(device_comm, fifos, steps);
    const test::device_array<unsigned> wrong(2);
    comm.barrier();  // an allocation may wait for a kernel that waits for this rank
    for (std::uint32_t n = 0; n < 3; ++n)
      launch(pass_round<Protocol>, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             fifos, n * messages, wrong.get());
    test::finish("pass_round");
    device_comm.check();
    test::require(wrong.read().front() == 0,
                  std::to_string(wrong.read().front()) + " wrong elements on rank " + std::to_string(comm.rank()));
    std::uint64_t packs_of_all = 0;
    for (std::uint32_t n = 0; n < messages; ++n) packs_of_all += 3 * blocks * size_of(n);
    test::require(wrong.read()[1] == packs_of_all, "rank " + std::to_string(comm.rank()) + " got " +
                                                       std::to_string(wrong.read()[1]) + " packs of " +
                                                       std::to_string(packs_of_all));
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("what a channel receives is what was sent, in that order") {
  test::for_each_protocol([](auto protocol) {
    for (const int ranks : test::rank_counts) check_passing<protocol()>(ranks, 60, 4, 0);
    check_passing<protocol()>(test::ranks_that_meet(3), 200, 1, 0);
    check_passing<protocol()>(test::ranks_that_meet(3), 30, 5, 0);  // eight slots
  });
}

TEST_CASE("channels go on across the wrap-around of their counts") {
  test::for_each_protocol([](auto protocol) {
    for (const std::uint32_t steps : {~0u - 5, ~0u, 0x7ffffffbu}) check_passing<protocol()>(2, 40, 4, steps);
  });
}

namespace {

/// FIFOs 2 and 3 are within a rank: from its first kernel to its second, and back.
__host__ __device__ constexpr channel::endpoint to_other_kernel(const team& ranks, std::uint32_t kernel) {
  return {ranks.rank, 2 + kernel, 2 + kernel};
}
__host__ __device__ constexpr channel::endpoint from_other_kernel(const team& ranks, std::uint32_t kernel) {
  return to_other_kernel(ranks, 1 - kernel);
}

/// Messages go round ring `kernel`. Before each, a pack goes to the rank's other kernel and one comes from it, so that
/// each kernel waits for the other all the while.
template <protocol Protocol>
__global__ void pass_round_beside(device_comm comm, channel::fifo_handle<Protocol> fifos, std::uint32_t kernel,
                                  unsigned* wrong) {
  const team ranks = comm.lsa();
  channel::session ring{block{}, comm, fifos, channel::from_previous(ranks, kernel), channel::to_next(ranks, kernel)};
  channel::session beside{block{}, comm, fifos, from_other_kernel(ranks, kernel), to_other_kernel(ranks, kernel)};
  for (std::uint32_t n = 0; n < messages; ++n) {
    beside.template send<std::uint32_t>({0, 1}, message{ranks.rank, 2 * n + kernel});
    beside.template recv<std::uint32_t>({0, 1}, comparison{{ranks.rank, 2 * n + 1 - kernel}, wrong});
    const slice packs{n, n + size_of(n)};
    ring.template send<std::uint32_t>(packs, message{ranks.rank, 100 * kernel + n});
    ring.template recv<std::uint32_t>(packs, comparison{{ring_previous(ranks), 100 * kernel + n}, wrong});
  }
  if (ring.agree() != status::success || beside.agree() != status::success) atomicAdd(wrong, 1u);
}

/// Two streams of the calling thread's device.
struct two_streams {
  two_streams() {
    for (cudaStream_t& each : streams) check_cuda(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "stream");
  }
  two_streams(const two_streams&) = delete;
  two_streams& operator=(const two_streams&) = delete;
  ~two_streams() {
    for (const cudaStream_t each : streams) static_cast<void>(cudaStreamDestroy(each));
  }

  cudaStream_t streams[2]{};
};

}  // namespace

TEST_CASE("two kernels on two streams use channels of their own of one communicator at once") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    for (const int ranks : {1, 2, 3}) {
      test::on_ranks(ranks, [=](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 4, 60, 4});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<unsigned> wrong(2);
        const two_streams beside;
        comm.barrier();  // an allocation may wait for a kernel that waits for this rank
        for (int n = 0; n < 2; ++n)
          for (const std::uint32_t kernel : {0u, 1u})
            launch(pass_round_beside<protocol()>, {.grid = 1, .block = threads, .stream = beside.streams[kernel]},
                   device_comm.get(), fifos, kernel, wrong.get());
        for (const cudaStream_t each : beside.streams) check_cuda(cudaStreamSynchronize(each), "pass_round_beside");
        device_comm.check();
        std::uint64_t packs = 0;
        for (std::uint32_t n = 0; n < messages; ++n) packs += 4 * (size_of(n) + 1);
        test::require(wrong.read()[0] == 0 && wrong.read()[1] == packs,
                      "rank " + std::to_string(comm.rank()) + " has " + std::to_string(wrong.read()[0]) +
                          " wrong elements, and " + std::to_string(wrong.read()[1]) + " packs of " +
                          std::to_string(packs));
        comm.barrier();
      });
    }
  });
}

namespace {

/// Rank 0 adds its input to those of up to two others and sends the sum back to both.
template <protocol Protocol>
__global__ void sum_of_star(device_comm comm, channel::fifo_handle<Protocol> fifos, std::uint64_t packs,
                            unsigned* wrong) {
  const team ranks = comm.lsa();
  const bool is_root = ranks.rank == 0;
  const channel::endpoint none = channel::endpoint::none();
  channel::endpoint ends[2] = {none, none};
  if (is_root) {
    for (int child = 1; child < ranks.size && child <= 2; ++child)
      ends[child - 1] = {child, static_cast<std::uint32_t>(child - 1), 0};
  } else {
    ends[0] = {0, 0, static_cast<std::uint32_t>(ranks.rank - 1)};
  }
  channel::session<Protocol, block, 2, 2> star{block{}, comm, ranks, fifos, ends, ends};
  const auto expect = [&](std::uint64_t i, const pack<std::uint32_t>& value) {
    atomicAdd(wrong + 1, 1u);
    for (int e = 0; e < 4; ++e) {
      std::uint32_t sum_of_all = 0;
      for (int rank = 0; rank < ranks.size; ++rank) sum_of_all += element(rank, 0, i * 4 + static_cast<unsigned>(e));
      if (value[e] != sum_of_all / static_cast<std::uint32_t>(ranks.size)) atomicAdd(wrong, 1u);
    }
  };
  if (is_root) {
    star.template recv_reduce_copy_send<std::uint32_t>({0, packs}, message{0, 0}, expect, average{}, ranks.size);
  } else {
    star.template send<std::uint32_t>({0, packs}, message{ranks.rank, 0});
    star.template recv_reduce_copy<std::uint32_t>(
        {0, packs}, [](std::uint64_t) { return pack<std::uint32_t>{}; }, expect, sum{}, 0);
  }
}

}  // namespace

TEST_CASE("a session receives from several ranks and sends to several") {
  test::for_each_protocol([](auto protocol) {
    for (const int ranks : {2, 3}) {
      for (const std::uint64_t packs : {1u, 45u, 300u}) {
        test::on_ranks(test::ranks_that_meet(ranks), [=](host::communicator& comm) {
          auto needs = comm.requirements();
          const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 2, 60, 8});
          const auto device_comm = comm.create_device_comm(needs);
          const test::device_array<unsigned> wrong(2);
          comm.barrier();
          for (int n = 0; n < 2; ++n)
            launch(sum_of_star<protocol()>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
                   device_comm.get(), fifos, packs, wrong.get());
          test::finish("sum_of_star");
          device_comm.check();
          test::require(wrong.read().front() == 0 && wrong.read()[1] == 2 * packs,
                        "wrong sums, or not all, on rank " + std::to_string(comm.rank()));
          comm.barrier();
        });
      }
    }
  });
}

namespace {

/// Rank 0 sends `sent` packs, rank 1 receives `received`.
template <protocol Protocol>
__global__ void send_and_receive(device_comm comm, channel::fifo_handle<Protocol> fifos, std::uint64_t sent,
                                 std::uint64_t received, status* outcome) {
  const team ranks = comm.lsa();
  const channel::endpoint none = channel::endpoint::none();
  const channel::endpoint other{1 - ranks.rank, 0, 0};
  channel::session link{block{}, comm, fifos, ranks.rank == 1 ? other : none, ranks.rank == 0 ? other : none};
  if (ranks.rank == 0) link.template send<std::uint32_t>({0, sent}, message{0, 0});
  if (ranks.rank == 1) link.template recv<std::uint32_t>({0, received}, [](std::uint64_t, pack<std::uint32_t>) {});
  const status end = link.agree();
  if (threadIdx.x == 0) *outcome = end;
}

/// What `describe` says of the first failure of each of two ranks, of which rank 1 takes part only where `received`
/// is not 0.
template <protocol Protocol>
std::vector<std::string> failures_of(std::uint64_t sent, std::uint64_t received) {
  std::vector<std::string> texts(2);
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(60);
  test::on_ranks(
      2,
      [&](host::communicator& comm) {
        const test::takes_left_steps at_end{comm};
        auto needs = comm.requirements();
        const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), 1, 30, 2});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<status> outcome(1);
        comm.barrier();
        if ((comm.rank() == 0 && sent != 0) || (comm.rank() == 1 && received != 0))
          launch(send_and_receive<Protocol>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
                 device_comm.get(), fifos, sent, received, outcome.get());
        test::finish("send_and_receive");
        const auto failures = device_comm.failures();
        if (!failures.empty()) texts[static_cast<std::size_t>(comm.rank())] = host::describe(failures.front());
        comm.barrier();
      },
      options);
  return texts;
}

}  // namespace

TEST_CASE("a sender whose receiver never takes a step, and a receiver to whom nobody sends, say so") {
  using Catch::Matchers::ContainsSubstring;
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    CHECK(failures_of<protocol()>(60, 0)[0].empty());  // two slots
    CHECK_THAT(failures_of<protocol()>(61, 0)[0],
               ContainsSubstring("rank 0, block 0: FIFO 0 waited for rank 1 to take step 1 and last saw 0: timeout"));
    CHECK_THAT(failures_of<protocol()>(0, 1)[1],
               ContainsSubstring("rank 1, block 0: FIFO 0 waited for rank 0 to send step 1 and last saw 0: timeout"));
  });
}

namespace {

/// Rank 0 sends a step in each of several sessions, rank 1 receives it, all in one launch.
template <protocol Protocol>
__global__ void send_in_sessions(device_comm comm, channel::fifo_handle<Protocol> fifos, unsigned* failed) {
  const team ranks = comm.lsa();
  const channel::endpoint none = channel::endpoint::none();
  const channel::endpoint other{1 - ranks.rank, 0, 0};
  for (std::uint32_t n = 0; n < 12; ++n) {
    channel::session link{block{}, comm, fifos, ranks.rank == 1 ? other : none, ranks.rank == 0 ? other : none};
    if (ranks.rank == 0) link.template send<std::uint32_t>({0, 30}, message{0, n});
    if (ranks.rank == 1) link.template recv<std::uint32_t>({0, 30}, comparison{{0, n}, failed});
  }
}

}  // namespace

TEST_CASE("sessions of a step, one after another, write slots that the receiver has read") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    test::on_ranks(2, [&](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 1, 30, 4});
      const auto device_comm = comm.create_device_comm(needs);
      const test::device_array<unsigned> wrong(2);
      comm.barrier();
      launch(send_in_sessions<protocol()>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
             device_comm.get(), fifos, wrong.get());
      test::finish("send_in_sessions");
      device_comm.check();
      test::require(wrong.read().front() == 0, "packs of another session");
      comm.barrier();
    });
  });
}

namespace {

/// Rank 0 sends nothing, so rank 1 gives up, and rank 2, which comes a little later, is to get nothing from it.
template <protocol Protocol>
__global__ void pass_on(device_comm comm, channel::fifo_handle<Protocol> fifos, unsigned* got) {
  const team ranks = comm.lsa();
  const std::uint64_t start = arch::global_time();
  while (ranks.rank == 2 && arch::global_time() - start < 40000000) __nanosleep(100000);
  const channel::endpoint next = ranks.rank == 1 ? channel::to_next(ranks, 0) : channel::endpoint::none();
  channel::session link{block{}, comm, fifos, channel::from_previous(ranks, 0), next};
  const auto take = [&](std::uint64_t, const pack<std::uint32_t>&) { atomicAdd(got, 1u); };
  if (ranks.rank == 1) link.template recv_copy_send<std::uint32_t>({0, 30}, take);
  if (ranks.rank == 2) link.template recv<std::uint32_t>({0, 30}, take);
}

}  // namespace

TEST_CASE("a rank that timed out passes nothing on") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    host::communicator_options options;
    options.kernel_timeout = std::chrono::milliseconds(60);
    test::on_ranks(
        3,
        [&](host::communicator& comm) {
          auto needs = comm.requirements();
          const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 1, 30, 2});
          const auto device_comm = comm.create_device_comm(needs);
          const test::device_array<unsigned> got(1);
          comm.barrier();
          if (comm.rank() != 0) {
            launch(pass_on<protocol()>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
                   fifos, got.get());
            test::finish("pass_on");
            test::require(!device_comm.failures().empty(), "no record of the rank that sends nothing");
          }
          test::require(got.read().front() == 0, "packs arrived that nobody sent");
          comm.barrier();
        },
        options);
  });
}

TEST_CASE("a rank that timed out sends nothing again, though there is credit") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    host::communicator_options options;
    options.kernel_timeout = std::chrono::milliseconds(60);
    test::on_ranks(
        2,
        [&](host::communicator& comm) {
          auto needs = comm.requirements();
          const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 1, 30, 4});
          const auto device_comm = comm.create_device_comm(needs);
          const test::device_array<status> outcome(1);
          comm.barrier();
          if (comm.rank() == 0) {
            const launch_config shape{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
            launch(send_and_receive<protocol()>, shape, device_comm.get(), fifos, 200, 0,
                   outcome.get());  // seven steps
            test::finish("the first launch");
            test::require(outcome.read().front() != status::success, "four slots took seven steps");
            const channel::fifo_layout<protocol()> layout{fifos.count, fifos.slots, fifos.packs};
            const auto sent = [&] {
              std::uint32_t steps = 0;
              check_cuda(cudaMemcpyAsync(&steps, device_comm.get().resources.local + fifos.offset + layout.counts(0),
                                         sizeof steps, cudaMemcpyDefault, cudaStreamPerThread),
                         "copy");
              test::finish("copy");
              return steps;
            };
            test::require(sent() == 4, "steps: " + std::to_string(sent()));
            start_at(device_comm, fifos, 4);  // as if the peer had taken them
            launch(send_and_receive<protocol()>, shape, device_comm.get(), fifos, 30, 0, outcome.get());
            test::finish("the second launch");
            test::require(outcome.read().front() != status::success && sent() == 4, "a dead session sent a step");
            test::require(!device_comm.failures().empty(), "nobody wrote down the failure");
          }
          comm.barrier();
        },
        options);
  });
}

#if DEVCOMM_CHECKED
namespace {

/// Rank 0 sends `sent` packs, rank 1 receives `received`, and stays so long in its session.
template <protocol Protocol>
__global__ void send_to_one(device_comm comm, channel::fifo_handle<Protocol> fifos, std::uint64_t sent,
                            std::uint64_t received, std::uint64_t stays, status* outcome) {
  const channel::endpoint none = channel::endpoint::none();
  const bool sends = comm.rank == 0;
  channel::session link{block{}, comm, fifos, sends ? none : channel::endpoint{0, 0, 0},
                        sends ? channel::endpoint{1, 0, 0} : none};
  const auto give = [](std::uint64_t) { return pack<std::uint32_t>{}; };
  const auto take = [](std::uint64_t, const pack<std::uint32_t>&) {};
  if (sends) link.template send<std::uint32_t>({0, sent}, give);
  if (!sends) link.template recv<std::uint32_t>({0, received}, take);
  for (const std::uint64_t begin = arch::global_time(); arch::global_time() - begin < stays;) __nanosleep(10000);
  const status ended = link.agree();
  if (threadIdx.x == 0) *outcome = ended;
}

/// What rank 1 reports of steps that it leaves behind in one launch, which it makes `again` before it is over.
template <protocol Protocol>
std::string left_behind(std::uint64_t stays, bool again) {
  std::string text;
  test::on_ranks(2, [&](host::communicator& comm) {
    const test::takes_left_steps at_end{comm};
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), 1, 30, 4});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<status> outcome(1);
    const launch_config shape{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    comm.barrier();
    const std::uint64_t waits = comm.rank() == 1 ? stays : 0;
    launch(send_to_one<Protocol>, shape, device_comm.get(), fifos, 10, 0, waits, outcome.get());
    test::finish("the first launch");
    comm.barrier();
    if (again) {
      launch(send_to_one<Protocol>, shape, device_comm.get(), fifos, 10, 10, 0, outcome.get());
      test::finish("the second launch");
    }
    const auto failures = device_comm.failures();
    test::require(failures.empty() == (comm.rank() == 0), "rank 1 has a record, and rank 0 none");
    if (comm.rank() == 1) text = host::describe(failures.front());
    comm.barrier();
  });
  return text;
}

}  // namespace

namespace {

/// What the end of the device communicators says, of rank 1 first, where rank 0 has sent `packs` after rank 1 has
/// received none of them in a session of its own, or in no session.
template <protocol Protocol>
std::vector<std::string> end_with_left_steps(std::uint64_t packs, bool has_session) {
  std::vector<std::string> texts(2);
  test::on_ranks(2, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    static_cast<void>(needs.add(channel::fifos<Protocol>{comm.lsa(), 2, 30, 4}));
    const auto fifos = needs.add(channel::fifos<Protocol>{comm.lsa(), 3, 30, 4});
    const test::device_array<status> outcome(1);
    std::optional<host::device_communicator> device_comm = comm.create_device_comm(needs);
    const launch_config shape{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    for (const int rank : {1, 0}) {
      if (comm.rank() == rank && (rank == 0 || has_session))
        launch(send_to_one<Protocol>, shape, device_comm->get(), fifos, packs, 0, 0, outcome.get());
      test::finish("send_to_one");
      comm.barrier();
    }
    comm.check();
    for (const int rank : {1, 0}) {
      if (comm.rank() == rank) device_comm.reset();
      comm.barrier();
    }
    try {
      comm.check();
    } catch (const host::kernel_error& error) {
      texts[static_cast<std::size_t>(comm.rank())] = error.what();
    }
    comm.barrier();
  });
  return texts;
}

}  // namespace

TEST_CASE("steps that nobody has received when the device communicators end are reported") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    for (const std::uint64_t packs : {10u, 70u}) {
      const std::string steps = packs == 10 ? "step" : "3 steps";
      const std::string end = " had not been received when the device communicator ended";
      const auto received = end_with_left_steps<protocol()>(packs, true);
      CHECK(received[1].ends_with("rank 1: FIFO 0: mismatch: the last " + steps + " that rank 0 sent to rank 1" + end));
      CHECK(received[0].ends_with("rank 0: FIFO 0: mismatch: the last " + steps + " that rank 0 sent to rank 1" + end));
      const auto absent = end_with_left_steps<protocol()>(packs, false);
      CHECK(absent[1].empty());
      CHECK(absent[0] == received[0]);
    }
  });
}

TEST_CASE("a step that a session has not received is no step of the next one") {
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    CHECK(
        left_behind<protocol()>(2000000, false) ==
        "rank 1, block 0: FIFO 0: mismatch: rank 0 sent 10 packs of 4-byte elements in call 1 on the FIFO, which rank 1 has "
        "not received in its call 1 (step 1)");
    const std::string later = left_behind<protocol()>(0, true);
    INFO(later);
    CHECK(later.find("mismatch: rank 0 sent 10 packs of 4-byte elements") != std::string::npos);
  });
}

TEST_CASE("a step of an earlier session is not received in a later one") {
  // As it would be where the step arrives when the receiver's session has ended.
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    std::string text;
    test::on_ranks(2, [&](host::communicator& comm) {
      const test::takes_left_steps at_end{comm};
      auto needs = comm.requirements();
      const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 1, 30, 4});
      const auto device_comm = comm.create_device_comm(needs);
      const test::device_array<status> outcome(1);
      const launch_config shape{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
      for (const int first : {1, 0}) {  // rank 1 is done before rank 0 begins
        comm.barrier();
        if (comm.rank() == first)
          launch(send_to_one<protocol()>, shape, device_comm.get(), fifos, 10, 0, 0, outcome.get());
        test::finish("the first launch");
      }
      comm.barrier();
      test::require(device_comm.failures().empty(), "nobody knows yet");
      launch(send_to_one<protocol()>, shape, device_comm.get(), fifos, 10, 10, 0, outcome.get());
      test::finish("the second launch");
      if (comm.rank() == 1) {
        test::require(outcome.read().front() == status::mismatch, "the session is dead");
        text = host::describe(device_comm.failures().front());
      }
      comm.barrier();
    });
    CHECK(
        text ==
        "rank 1, block 0: FIFO 0: mismatch: rank 0 sent 10 packs of 4-byte elements in call 1 on the FIFO, which rank 1 has "
        "not received in its call 1 (step 1)");
  });
}
#endif

#if DEVCOMM_CHECKED
TEST_CASE("ends of a FIFO that make different calls are told so") {
  using Catch::Matchers::ContainsSubstring;
  test::for_each_protocol([](auto protocol) {
    INFO(to_string(protocol()));
    for (const auto& [sent, received] :
         std::vector<std::pair<std::uint64_t, std::uint64_t>>{{20, 29}, {29, 20}, {50, 20}})
      CHECK_THAT(failures_of<protocol()>(sent, received)[1],
                 ContainsSubstring("mismatch: rank 0 sent " + std::to_string(sent) + " packs of 4-byte elements") &&
                     ContainsSubstring("where rank 1 expects " + std::to_string(received) + " packs of 4-byte"));
  });
}
#endif

#if defined(DEVCOMM_SIMULATOR) && DEVCOMM_CHECKED
namespace {

/// Rank 0 uses FIFO 0 with rank 1, and then with rank 2.
__global__ void use_with_two(device_comm comm, channel::fifo_handle<protocol::ll> fifos) {
  const channel::endpoint none = channel::endpoint::none();
  for (const int peer : {1, 2}) channel::session{block{}, comm, fifos, none, channel::endpoint{peer, 0, 0}};
}

}  // namespace

namespace {

/// Both kernels have a session of ring 0 at once: the second begins its own when the first has told it to.
__global__ void share_a_ring(device_comm comm, channel::fifo_handle<protocol::ll> fifos, std::uint32_t kernel) {
  const team ranks = comm.lsa();
  const auto nothing = [](std::uint64_t, const pack<std::uint32_t>&) {};
  channel::session beside{block{}, comm, fifos, from_other_kernel(ranks, kernel), to_other_kernel(ranks, kernel)};
  if (kernel == 1) beside.template recv<std::uint32_t>({0, 1}, nothing);
  channel::session ring{block{}, comm, fifos, channel::from_previous(ranks, 0), channel::to_next(ranks, 0)};
  beside.template send<std::uint32_t>({0, 1}, message{0, 0});
  if (kernel == 0) beside.template recv<std::uint32_t>({0, 1}, nothing);
}

}  // namespace

TEST_CASE("two kernels that use one channel at once are told so") {
  std::string said;
  test::on_ranks(2, [&](host::communicator& comm) {
    const test::takes_left_steps at_end{comm};
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::ll_fifos{comm.lsa(), 4, 30, 2});
    const auto device_comm = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      const two_streams beside;
      for (const std::uint32_t kernel : {0u, 1u})
        launch(share_a_ring, {.grid = 1, .block = 32, .stream = beside.streams[kernel]}, device_comm.get(), fifos,
               kernel);
      for (const cudaStream_t each : beside.streams) static_cast<void>(cudaStreamSynchronize(each));
      said = simulator::last_failure();
    }
    comm.barrier();
  });
  CHECK_THAT(said, Catch::Matchers::ContainsSubstring("two sessions of FIFO 0 of rank 0 are live at once"));
  CHECK_THAT(said, Catch::Matchers::ContainsSubstring("give groups that run side by side indices of their own"));
}

TEST_CASE("a FIFO index that is used with two peers is named") {
  std::string said;
  test::on_ranks(3, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::ll_fifos{comm.lsa(), 1, 30, 2});
    const auto device_comm = comm.create_device_comm(needs);
    if (comm.rank() == 0) {
      launch(use_with_two, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), fifos);
      static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));
      said = simulator::last_failure();
    }
    comm.barrier();
  });
  CHECK_THAT(said, Catch::Matchers::ContainsSubstring("a FIFO index is used with two peers"));
}
#endif

namespace {

/// Rank 1 comes late and takes late. Rank 0 fills two slots, finds no room for a while, and goes on; rank 1 finds
/// nothing for a while when all has come.
template <protocol Protocol>
__global__ void move_in_time(device_comm comm, channel::fifo_handle<Protocol> fifos, lsa::signal_handle signals,
                             unsigned* wrong) {
  const team ranks = comm.lsa();
  const channel::endpoint none = channel::endpoint::none();
  const channel::endpoint other{1 - ranks.rank, 0, 0};
  constexpr std::uint64_t steps = 5;
  unsigned timeouts = 0;
  lsa::signal_session late{block{}, comm, signals, 0};
  channel::session link{block{}, comm, fifos, ranks.rank == 1 ? other : none, ranks.rank == 0 ? other : none};
  const std::uint64_t packs = link.capacity();
  if (ranks.rank == 1) late.wait(0, lsa::at_least{1});
  for (std::uint64_t s = 0; s < steps; ++s) {
    const slice part{s * packs, (s + 1) * packs};
    if (ranks.rank == 0) {
      while (link.wait_send_for(microseconds(20)) == status::timeout) {
        if (++timeouts == 1) late.store(1, 1);
      }
      link.template send<std::uint32_t>(part, message{0, 0});
    } else {
      while (link.wait_receive_for(static_cast<std::uint32_t>(packs), microseconds(20)) == status::timeout) {
      }
      link.template recv<std::uint32_t>(part, comparison{{0, 0}, wrong});
    }
  }
  if (ranks.rank == 1) {
    for (int n = 0; n < 2; ++n)
      if (link.wait_receive_for(1, microseconds(20)) == status::timeout) ++timeouts;
  }
  const bool right = ranks.rank == 0 ? timeouts >= 1 : timeouts == 2;
  if (link.agree() != status::success || !right) atomicAdd(wrong, 1u);
}

}  // namespace

TEST_CASE("a wait of a channel with a deadline says that it has run out, and may be repeated") {
  test::for_each_protocol([](auto protocol) {
    test::on_ranks(2, [=](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 1, 60, 2});
      const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
      const auto device_comm = comm.create_device_comm(needs);
      const test::device_array<unsigned> wrong(2);
      comm.barrier();
      launch(move_in_time<protocol()>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             fifos, signals, wrong.get());
      test::finish("move_in_time");
      device_comm.check();
      test::require(wrong.read()[0] == 0 && (comm.rank() == 0 || wrong.read()[1] == 5 * 60),
                    "wrong packs, or no timeout, on rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
  });
}

namespace {

constexpr nanoseconds own_limit = milliseconds(2);

/// Rank 1 sends a pack before rank 0's time is over, rank 2 only after it.
template <protocol Protocol>
__global__ void come_one_by_one(device_comm comm, channel::fifo_handle<Protocol> fifos, lsa::signal_handle signals,
                                std::uint64_t* passed, unsigned* wrong) {
  const team ranks = comm.lsa();
  const channel::endpoint none = channel::endpoint::none();
  channel::endpoint ends[2] = {none, none};
  if (ranks.rank == 0) {
    for (std::uint32_t child = 0; child < 2; ++child) ends[child] = {static_cast<int>(child) + 1, child, 0};
  } else if (ranks.rank <= 2) {
    ends[0] = {0, 0, static_cast<std::uint32_t>(ranks.rank - 1)};
  } else {
    return;
  }
  lsa::signal_session pace{block{}, comm, signals, 0};
  channel::session<Protocol, block, 2, 2> star{block{}, comm, ranks, fifos, ends, ends};
  if (ranks.rank == 0) {
    for (int child = 1; child <= 2; ++child) pace.store(child, 1);
    const std::uint64_t begin = arch::global_time();
    const status outcome = star.wait_receive_for(1, own_limit);
    if (threadIdx.x == 0) *passed = outcome == status::timeout ? arch::global_time() - begin : 0;
    pace.store(2, 2);
    star.template recv_reduce_copy<std::uint32_t>(
        {0, 1}, message{0, 0},
        [=](std::uint64_t, const pack<std::uint32_t>& value) {
          for (unsigned e = 0; e < 4; ++e)
            if (value[static_cast<int>(e)] != element(0, 0, e) + element(1, 0, e) + element(2, 0, e))
              atomicAdd(wrong, 1u);
        },
        sum{}, 3);
  } else {
    pace.wait(0, lsa::at_least{1});
    if (ranks.rank == 1) {
      static_cast<void>(pace.wait_for(0, lsa::at_least{2}, nanoseconds{own_limit.count * 6 / 10}));
    } else {
      pace.wait(0, lsa::at_least{2});
    }
    star.template send<std::uint32_t>({0, 1}, message{ranks.rank, 0});
  }
}

}  // namespace

TEST_CASE("a deadline of a channel's wait is for all that it waits for") {
  test::for_each_protocol([](auto protocol) {
    test::on_ranks(3, [=](host::communicator& comm) {
      if (comm.size() < 3) return;  // DEVCOMM_RANKS asks for another number
      auto needs = comm.requirements();
      const auto fifos = needs.add(channel::fifos<protocol()>{comm.lsa(), 2, 60, 2});
      const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
      const auto device_comm = comm.create_device_comm(needs);
      const test::device_array<std::uint64_t> passed(1);
      const test::device_array<unsigned> wrong(1);
      comm.barrier();
      launch(come_one_by_one<protocol()>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread},
             device_comm.get(), fifos, signals, passed.get(), wrong.get());
      test::finish("come_one_by_one");
      device_comm.check();
      test::require(wrong.read()[0] == 0, "a wrong sum");
      if (comm.rank() == 0) {
        const std::uint64_t took = passed.read()[0];
        test::require(took >= own_limit.count && took < own_limit.count * 13 / 10,
                      "a wait of 2 ms took " + std::to_string(took) + " ns, or did not time out");
      }
      comm.barrier();
    });
  });
}
