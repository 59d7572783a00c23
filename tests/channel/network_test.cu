// Channels between ranks of several hosts: messages, collectives round rings and over trees whose links are stores or
// puts as the hosts lie, across the wrap-around of the counts, and with ranks that are missing, late or differ.
#include <devcomm/devcomm.cuh>

#ifdef DEVCOMM_SIMULATOR
#  include <devcomm/simulator/simulator.hpp>
#endif

#include "channel/ring_operations.cuh"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

using namespace devcomm;
using namespace ring_test;

namespace {

using fifo_handle = channel::fifo_handle<protocol::network>;

launch_config config(unsigned grid = blocks) { return {.grid = grid, .block = threads, .stream = cudaStreamPerThread}; }

struct shape {
  int ranks;
  int lsa_size;
  const char* peers = "";  ///< which simulated GPUs reach each other; empty: all
};
std::string text(const shape& s) {
  return std::to_string(s.ranks) + " ranks, " + std::to_string(s.lsa_size) + " in each LSA team " + s.peers;
}

void on_hosts(const shape& s, const std::function<void(host::communicator&)>& body,
              host::communicator_options options = {}) {
#ifdef DEVCOMM_SIMULATOR
  simulator::set_peers(s.peers);
#else
  if (*s.peers != '\0') return;
#endif
  options.lsa_size = s.lsa_size;
  test::on_ranks(s.ranks, body, options);
#ifdef DEVCOMM_SIMULATOR
  simulator::set_peers("");
#endif
}

/// One host, several of one rank, of two and of three, and ranks dealt to hosts in turn.
constexpr shape shapes[] = {{1, 1}, {2, 2}, {2, 1}, {3, 1}, {4, 2}, {6, 2}, {6, 3}, {4, 0, "0,2/1,3"}};

/// Element `e` of pack `i` of message `number` from `rank`.
__device__ std::uint32_t element(int rank, std::uint32_t number, std::uint64_t i, int e) {
  return static_cast<std::uint32_t>(rank) * 0x9e3779b9u + number * 0x85ebca6bu + static_cast<std::uint32_t>(i) * 8 +
         static_cast<std::uint32_t>(e) + 1;
}
struct message {
  int rank;
  std::uint32_t number;

  __device__ pack<std::uint32_t> operator()(std::uint64_t i) const {
    pack<std::uint32_t> value;
    for (int e = 0; e < pack<std::uint32_t>::size; ++e) value[e] = element(rank, number, i, e);
    return value;
  }
};
/// Counts wrong elements in the first word, and packs in the second.
struct comparison {
  message expected;
  unsigned* wrong;

  __device__ void operator()(std::uint64_t i, const pack<std::uint32_t>& value) const {
    for (int e = 0; e < pack<std::uint32_t>::size; ++e)
      if (value[e] != element(expected.rank, expected.number, i, e)) atomicAdd(wrong, 1u);
    atomicAdd(wrong + 1, 1u);
  }
};

constexpr std::uint32_t messages = 8;
__host__ __device__ constexpr std::uint64_t size_of(std::uint32_t n) {
  constexpr std::uint64_t sizes[messages] = {1, 0, 40, 2, 3, 95, 41, 32};
  return sizes[n];
}

/// Messages of many sizes between rank `r` and the rank `distance` after it, both ways at once. What a rank sends has
/// another index than what it receives, and another context.
__global__ void exchange_messages(device_comm comm, fifo_handle fifos, int distance, std::uint32_t first,
                                  unsigned* wrong) {
  const team ranks = comm.world();
  const int next = (ranks.rank + distance) % ranks.size;
  const int previous = (ranks.rank + ranks.size - distance) % ranks.size;
  const std::uint32_t sends = blockIdx.x;
  const std::uint32_t receives = gridDim.x + blockIdx.x;
  channel::session link{block{}, comm, fifos, channel::endpoint{previous, receives, sends},
                        channel::endpoint{next, sends, receives}};
  for (std::uint32_t n = 0; n < messages; ++n) {
    const std::uint64_t end = n + size_of(n);
    for (std::uint64_t i = n; i < end; i += link.capacity()) {
      const slice part{i, i + link.capacity() < end ? i + link.capacity() : end};
      link.send<std::uint32_t>(part, message{ranks.rank, first + n});
      link.recv<std::uint32_t>(part, comparison{{previous, first + n}, wrong});
    }
  }
  if (link.agree() != status::success) atomicAdd(wrong, 1u);
}

/// Some messages with all of a FIFO's slots under way.
__global__ void send_ahead(device_comm comm, fifo_handle fifos, std::uint32_t steps, unsigned* wrong) {
  const team ranks = comm.world();
  const std::uint32_t index = blockIdx.x;
  const std::uint64_t packs = std::uint64_t{steps} * fifos.packs;
  if (ranks.rank == 0) {
    channel::session link{block{}, comm, fifos, channel::endpoint::none(),
                          channel::endpoint{ranks.size - 1, index, index}};
    link.send<std::uint32_t>({0, packs}, message{0, index});
  } else if (ranks.rank == ranks.size - 1) {
    channel::session link{block{}, comm, fifos, channel::endpoint{0, index, index}, channel::endpoint::none()};
    link.recv<std::uint32_t>({0, packs}, comparison{{0, index}, wrong});
  }
}

/// As if `steps` steps had gone through each FIFO, here and at its peers.
__global__ void set_signals(device_comm comm, gin::context_handle contexts, std::uint32_t first, std::uint64_t steps) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  for (std::uint32_t signal = first; signal < contexts.signals; ++signal)
    net.signal(comm.rank, gin::signal_set{signal, steps});
  net.fence(comm.rank);  // a wait for a signal takes 0 for more than the last numbers before the wrap-around
}
void start_at(const host::device_communicator& comm, const fifo_handle& fifos, std::uint64_t steps) {
  char* own = comm.get().resources.local;
  const auto set = [&](std::uint64_t offset, auto value) {
    check_cuda(cudaMemcpyAsync(own + offset, &value, sizeof value, cudaMemcpyDefault, cudaStreamPerThread), "copy");
    test::finish("counts");
  };
  const channel::fifo_layout<protocol::network> stored{fifos.count, fifos.slots, fifos.packs};
  const channel::network_layout put{fifos.count, fifos.slots};
  for (std::uint32_t i = 0; i < fifos.count; ++i) {
    const auto low = static_cast<std::uint32_t>(steps);
    set(fifos.offset + stored.tail(i), low);
    set(fifos.offset + stored.head(i), low);
    for (const std::uint64_t word : {0u, 4u, 8u}) set(fifos.offset + stored.counts(i) + word, low);
    set(fifos.kept + put.counts(i), channel::network_counts{steps, steps});
  }
  launch(set_signals, config(fifos.contexts.count), comm.get(), fifos.contexts, fifos.first_signal, steps);
  test::finish("set_signals");
}

void require_right(const test::device_array<unsigned>& wrong, std::uint64_t packs, int rank) {
  const auto found = wrong.read();
  test::require(found[0] == 0 && found[1] == packs, [&] {
    return std::to_string(found[0]) + " wrong elements in " + std::to_string(found[1]) + " packs of " +
           std::to_string(packs) + " on rank " + std::to_string(rank);
  });
}

void check_messages(const shape& s, std::uint32_t slots, std::uint64_t steps) {
  INFO(text(s) << ", " << slots << " slots, from step " << steps);
  on_hosts(s, [=](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto fifos =
        needs.add(channel::network_fifos{.contexts = {.world = comm.world(), .count = 3, .signals = 1, .depth = 16},
                                         .count = 2 * blocks,
                                         .packs = 30,
                                         .slots = slots});
    const auto device_comm = comm.create_device_comm(needs);
    if (steps != 0) start_at(device_comm, fifos, steps);
    const test::device_array<unsigned> wrong(2);
    comm.barrier();  // an allocation may wait for a kernel that waits for this rank
    const int distance = s.ranks > 1 ? s.ranks / 2 : 0;
    for (std::uint32_t n = 0; n < 3; ++n)
      launch(exchange_messages, config(), device_comm.get(), fifos, distance, n * messages, wrong.get());
    test::finish("exchange_messages");
    device_comm.check();
    std::uint64_t packs = 0;
    for (std::uint32_t n = 0; n < messages; ++n) packs += 3 * blocks * size_of(n);
    require_right(wrong, packs, comm.rank());
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("what a channel over hosts receives is what was sent, in that order") {
  for (const shape& s : shapes) check_messages(s, 2, 0);
  check_messages({2, 1}, 1, 0);
  check_messages({4, 2}, 4, 0);
}

TEST_CASE("channels over hosts go on across the wrap-around of the lower half of their counts") {
  for (const std::uint64_t steps : {std::uint64_t{0xfffffffb}, std::uint64_t{0x7ffffffb}, ~std::uint64_t{4}})
    for (const shape& s : {shape{2, 1}, {2, 2}}) check_messages(s, 4, steps);
}

TEST_CASE("a sender over the network is as many steps ahead as there are slots, and no slot is written too soon") {
  for (const std::uint32_t slots : {1u, 2u, 4u}) {
    for (const shape& s : {shape{2, 1}, {4, 2}}) {
      INFO(text(s) << ", " << slots << " slots");
      on_hosts(s, [=](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto fifos = needs.add(
            channel::network_fifos{.contexts = {.world = comm.world()}, .count = blocks, .packs = 20, .slots = slots});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<unsigned> wrong(2);
        comm.barrier();
        constexpr std::uint32_t steps = 12;
        launch(send_ahead, config(), device_comm.get(), fifos, steps, wrong.get());
        test::finish("send_ahead");
        device_comm.check();
        require_right(wrong, comm.rank() == comm.size() - 1 ? blocks * steps * 20 : 0, comm.rank());
        comm.barrier();
      });
    }
  }
}

TEST_CASE("a sender's device communicator may end behind a barrier on the host, once all has been received") {
  constexpr unsigned channels = 8;  // whose last signals are all under way as the kernels end
  on_hosts({2, 1}, [](host::communicator& comm) {
    for (int n = 0; n < 20; ++n) {
      auto needs = comm.requirements();
      const auto fifos =
          needs.add(channel::network_fifos{.contexts = {.world = comm.world()}, .count = channels, .packs = 2});
      std::optional<host::device_communicator> device_comm(comm.create_device_comm(needs));
      const test::device_array<unsigned> wrong(2);
      comm.barrier();
      launch(send_ahead, config(channels), device_comm->get(), fifos, 4u, wrong.get());
      test::finish("send_ahead");
      comm.barrier();
      if (comm.rank() == 0) device_comm.reset();
      comm.barrier();
      if (device_comm) device_comm->check();
    }
  });
}

namespace {

void check_rings(const shape& s, std::uint64_t count, std::size_t offset, bool in_order) {
  INFO(text(s) << ", " << count << " elements, offset " << offset << (in_order ? ", in an order of its own" : ""));
  on_hosts(s, [=](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto fifos = needs.add(channel::network_fifos{
        .contexts = {.world = comm.world(), .count = 2}, .count = blocks, .packs = 30, .slots = 2});
    const auto device_comm = comm.create_device_comm(needs);
    require_rings(comm, device_comm, fifos, comm.world(), count, offset, in_order);
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("collectives round a ring over hosts give what the definition says") {
  for (const shape& s : shapes) check_rings(s, 501, 0, false);
  for (const std::uint64_t count : {1u, 120u, 1000u}) check_rings({4, 2}, count, 1, false);
}

TEST_CASE("collectives round a ring that enters hosts more than once give what the definition says") {
  for (const shape& s : {shape{3, 1}, {4, 2}, {6, 2}}) check_rings(s, 501, 3, true);
}

namespace {

__global__ void sum_over_trees(device_comm comm, fifo_handle fifos, const std::int32_t* input, std::int32_t* output,
                               std::uint64_t count) {
  using T = std::int32_t;
  const collective::tree_position position{block{}, comm, comm.world(), fifos, blockIdx.x};
  collective::all_reduce_tree<T>(position, collective::slice_of_block(packs_of<T>(count)),
                                 collective::from_memory<T>{input, count}, collective::to_memory<T>{output, count},
                                 sum{});
}

}  // namespace

TEST_CASE("an all-reduce over two trees across hosts gives every rank the sum") {
  for (const shape& s : {shape{2, 1}, {3, 1}, {4, 2}, {6, 3}}) {
    INFO(text(s));
    on_hosts(s, [](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto fifos = needs.add(channel::network_fifos{.contexts = {.world = comm.world(), .count = 2},
                                                          .count = blocks * collective::fifos_of_tree,
                                                          .packs = 30,
                                                          .slots = 2});
      const auto device_comm = comm.create_device_comm(needs);
      constexpr std::uint64_t count = 1003;
      std::vector<std::int32_t> values(count);
      for (std::uint64_t i = 0; i < count; ++i) values[i] = input_of(comm.rank(), i);
      const test::device_array<std::int32_t> input(values);
      const test::device_array<std::int32_t> output(count);
      comm.barrier();
      for (int n = 0; n < 2; ++n)
        launch(sum_over_trees, config(), device_comm.get(), fifos, input.get(), output.get(), count);
      test::finish("sum_over_trees");
      device_comm.check();
      const auto got = output.read();
      for (std::uint64_t i = 0; i < count; ++i)
        test::require(got[i] == sum_of(comm.size(), i), "element " + std::to_string(i));
      comm.barrier();
    });
  }
}

namespace {

/// Rank 0 sends `sent` packs to rank 1, which receives `received`.
__global__ void send_and_receive(device_comm comm, fifo_handle fifos, std::uint64_t sent, std::uint64_t received,
                                 status* outcome) {
  const channel::endpoint none = channel::endpoint::none();
  const channel::endpoint other{1 - comm.rank, 1, 1};
  channel::session link{block{}, comm, fifos, comm.rank == 1 ? other : none, comm.rank == 0 ? other : none};
  if (comm.rank == 0) link.send<std::uint32_t>({0, sent}, message{0, 0});
  if (comm.rank == 1) link.recv<std::uint32_t>({0, received}, [](std::uint64_t, pack<std::uint32_t>) {});
  const status end = link.agree();
  if (threadIdx.x == 0) *outcome = end;
}

/// The first failure of each of two ranks, of which one without packs takes no part.
std::vector<std::string> failures_of(std::uint64_t sent, std::uint64_t received) {
  std::vector<std::string> texts(2);
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(60);
  on_hosts(
      {2, 1},
      [&](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto fifos =
            needs.add(channel::network_fifos{.contexts = {.world = comm.world()}, .count = 2, .packs = 30, .slots = 2});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<status> outcome(1);
        comm.barrier();
        const std::uint64_t packs = comm.rank() == 0 ? sent : received;
        if (packs != 0) {
          launch(send_and_receive, config(1), device_comm.get(), fifos, sent, received, outcome.get());
          test::finish("send_and_receive");
        }
        const auto failures = device_comm.failures();
        if (!failures.empty()) {
          texts[static_cast<std::size_t>(comm.rank())] = host::describe(failures.front());
          test::require(outcome.read().front() == failures.front().outcome, "the session does not say why it is dead");
        }
        comm.barrier();
      },
      options);
  return texts;
}

}  // namespace

TEST_CASE("a sender over the network whose receiver takes no step, and a receiver to whom nobody sends, name them") {
  CHECK(
      failures_of(100, 0) ==
      std::vector<std::string>{"rank 0, block 0: FIFO 1 waited for rank 1 to take step 1 and last saw 0: timeout", ""});
  CHECK(
      failures_of(0, 40) ==
      std::vector<std::string>{"", "rank 1, block 0: FIFO 1 waited for rank 0 to send step 1 and last saw 0: timeout"});
  CHECK(failures_of(60, 60) == std::vector<std::string>{"", ""});
}

#if DEVCOMM_CHECKED
TEST_CASE("ranks of two hosts that make different calls are told so") {
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(failures_of(20, 29)[1], ContainsSubstring("mismatch: rank 0 sent 20 packs of") &&
                                         ContainsSubstring("where rank 1 expects 29 packs of"));
}
#endif

namespace {

__global__ void wait_with_deadline(device_comm comm, fifo_handle fifos, std::uint64_t limit, int sends, status* outcome,
                                   unsigned* wrong) {
  const channel::endpoint none = channel::endpoint::none();
  const channel::endpoint other{1 - comm.rank, 0, 0};
  const bool receiver = comm.rank == 1;
  channel::session link{block{}, comm, fifos, receiver ? other : none, receiver ? none : other};
  status said = status::success;
  if (receiver) {
    said = link.wait_receive_for(5, nanoseconds{limit});
    if (said == status::success) link.recv<std::uint32_t>({0, 5}, comparison{{0, 3}, wrong});
  } else {
    for (int n = 0; n < sends && said == status::success; ++n) {
      said = link.wait_send_for(nanoseconds{limit});
      if (said == status::success) link.send<std::uint32_t>({0, 5}, message{0, 3});
    }
  }
  if (threadIdx.x == 0) *outcome = said;
}

}  // namespace

TEST_CASE("a wait of a channel over the network with a deadline says that it has run out, and may be repeated") {
  on_hosts({2, 1}, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto fifos =
        needs.add(channel::network_fifos{.contexts = {.world = comm.world()}, .count = 1, .packs = 30, .slots = 1});
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<status> outcome(1);
    const test::device_array<unsigned> wrong(2);
    const auto run = [&](std::uint64_t limit, int sends, status expected) {
      launch(wait_with_deadline, config(1), device_comm.get(), fifos, limit, sends, outcome.get(), wrong.get());
      test::finish("wait_with_deadline");
      const status said = outcome.read().front();
      test::require(said == expected, std::string("the outcome was ") + to_string(said));
    };
    constexpr std::uint64_t soon = 20000;
    constexpr std::uint64_t late = 10000000000;
    if (comm.rank() == 1) run(soon, 0, status::timeout);
    comm.barrier();
    if (comm.rank() == 0) run(soon, 2, status::timeout);  // there is one slot
    comm.barrier();
    if (comm.rank() == 1) run(late, 0, status::success);
    comm.barrier();
    run(late, 1, status::success);
    test::require(device_comm.failures().empty(), "a limit of the caller's own leaves no record");
    require_right(wrong, comm.rank() == 1 ? 10 : 0, comm.rank());
    comm.barrier();
  });
}

namespace {

/// Rank 1 signals what rank 0 waits for.
__global__ void signal_or_wait(device_comm comm, gin::context_handle contexts) {
  gin::context net{block{}, comm, contexts, 0};
  if (comm.rank == 0) {
    net.wait_signal(0, 1);
  } else {
    net.signal(0, gin::signal_add{0});
  }
}

}  // namespace

TEST_CASE("tables of rings and messages are destroyed while a kernel of the GPU waits for the rank") {
  test::on_ranks(2, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    std::optional<channel::ring_table> ring;
    ring.emplace(team{comm.rank(), 2, 0, 1}, std::vector<int>{1, 0});
    std::optional<channel::message_table> list;
    list.emplace(4, 1);
    comm.barrier();
    const auto run = [&] {
      launch(signal_or_wait, {.grid = 1, .block = 32, .stream = cudaStreamPerThread}, device_comm.get(), contexts);
    };
    if (comm.rank() == 0) run();
    comm.barrier();
    if (comm.rank() == 1) {
      ring.reset();
      list.reset();
      run();
    }
    test::finish("signal_or_wait");
    device_comm.check();
    comm.barrier();
  });
}
