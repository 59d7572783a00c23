// Contexts of the network: what operations order, how waits for them end, and what is refused. The comments name the
// lines of the table in gin/context.cuh and docs/gin.md.
#include <devcomm/devcomm.cuh>

#include "context_kernels.cuh"
#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace devcomm;
using namespace gin_test;

TEST_CASE("a weak signal has the data of its put before it, for any size and alignment, launch after launch") {
  for (const int ranks : test::rank_counts) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, [](host::communicator& comm) {
      constexpr unsigned blocks = 2;
      constexpr std::uint64_t part = 5000;
      auto needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{comm.world(), blocks, 2});
      const auto device_comm = comm.create_device_comm(needs);
      const auto in = comm.allocate(blocks * part);
      const auto out = comm.allocate(blocks * part);
      const test::device_array<std::uint32_t> wrong(blocks * threads);
      std::uint32_t first = 0;
      for (const message& what : {message{0, 0, 0}, {1, 3, 0}, {16, 0, 16}, {4097, 1, 7}}) {
        launch(shift, blocks_of(blocks), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), part,
               what, first, 2u, wrong.get());
        test::finish("shift");
        device_comm.check();
        require_none(wrong, std::to_string(what.bytes) + " bytes");
        first += 2;
      }
      comm.barrier();
    });
  }
}

TEST_CASE("windows in pinned host memory are put to and from as those in device memory are") {
  using host::memory_place;
  const memory_place both[] = {memory_place::device, memory_place::pinned_host};
  for (const memory_place from : both) {
    for (const memory_place to : both) {
      INFO("from place " << static_cast<int>(from) << " to place " << static_cast<int>(to));
      test::on_ranks(3, [=](host::communicator& comm) {
        constexpr std::uint64_t part = 9000;
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{comm.world(), 1, 2});
        const auto device_comm = comm.create_device_comm(needs);
        const auto in = comm.allocate(part, from);
        const auto out = comm.allocate(part, to);
        const test::device_array<std::uint32_t> wrong(threads);
        std::uint32_t first = 0;
        for (const message& what : {message{0, 0, 0}, {8, 3, 1}, {8191, 1, 7}}) {
          launch(shift, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), part, what,
                 first, 2u, wrong.get());
          test::finish("shift");
          device_comm.check();
          require_none(wrong, std::to_string(what.bytes) + " bytes");
          first += 2;
        }
        comm.barrier();
      });
    }
  }
}

TEST_CASE("a strong signal has all earlier puts of its context to that peer before it, also where the queue is full") {
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, require_strong_signals);
  }
}

TEST_CASE("what a get brought is there after a flush of its peer, or by its counter") {
  for (const bool by_counter : {false, true}) {
    INFO((by_counter ? "by counter" : "by flush"));
    test::on_ranks(3, [=](host::communicator& comm) { require_gets(comm, 777, by_counter); });
  }
}

namespace {

/// Each thread gets a word and flushes for itself; in even rounds after all have posted, so that it may read what all
/// have got. Whose wait ends by what another thread saw of the proxy is left to chance.
__global__ void get_by_threads(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> in,
                               sym_ptr<std::uint32_t> out, std::uint32_t rounds, std::uint32_t* wrong) {
  gin::context mine{thread{}, comm, contexts, 0};
  const int next = (comm.rank + 1) % comm.size;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint32_t first = round * threads;
    mine.get(next, out + static_cast<std::int64_t>(first + threadIdx.x), in + static_cast<std::int64_t>(threadIdx.x),
             1);
    if (round % 2 == 0) __syncthreads();
    mine.flush();
    const std::uint32_t begin = round % 2 == 0 ? 0 : threadIdx.x;
    const std::uint32_t end = round % 2 == 0 ? threads : threadIdx.x + 1;
    for (std::uint32_t i = begin; i < end; ++i)
      wrong[threadIdx.x] += out.local()[first + i] != 1000u * static_cast<std::uint32_t>(next) + i ? 1u : 0u;
    __syncthreads();
  }
}

}  // namespace

TEST_CASE("what threads of a rank got is there after each thread's own flush") {
  test::on_ranks(2, [](host::communicator& comm) {
    constexpr std::uint32_t rounds = 10;
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(threads * sizeof(std::uint32_t));
    const auto out = comm.allocate(rounds * threads * sizeof(std::uint32_t));
    std::vector<std::uint32_t> words;
    for (std::uint32_t i = 0; i < threads; ++i) words.push_back(1000u * static_cast<std::uint32_t>(comm.rank()) + i);
    check_cuda(cudaMemcpyAsync(in.data(), words.data(), threads * sizeof(std::uint32_t), cudaMemcpyDefault,
                               cudaStreamPerThread),
               "cudaMemcpyAsync");
    test::finish("cudaMemcpyAsync");
    comm.barrier();
    const test::device_array<std::uint32_t> wrong(threads);
    launch(get_by_threads, blocks_of(1), device_comm.get(), contexts, in.pointer<std::uint32_t>(),
           out.pointer<std::uint32_t>(), rounds, wrong.get());
    test::finish("get_by_threads");
    device_comm.check();
    require_none(wrong, "rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

TEST_CASE("values carry their bytes and no more, and signals can be set, added to and reset") {
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, require_values);
  }
}

TEST_CASE("a fence orders what all contexts have put to a peer before its later signals") {
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    test::on_ranks(ranks, require_fences);
  }
}

namespace {

/// A signal of the network releases what its group wrote, in memory of peers too.
__global__ void store_and_signal(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> words,
                                 std::uint32_t* wrong) {
  gin::context net{block{}, comm, contexts, 0};
  const int next = (comm.rank + 1) % comm.size;
  const int previous = (comm.rank + comm.size - 1) % comm.size;
  words.peer(next)[threadIdx.x] = 100u * static_cast<std::uint32_t>(comm.rank) + threadIdx.x;
  net.signal(next, gin::signal_add{0});
  net.wait_signal(0, 1);
  const std::uint32_t other = (threadIdx.x + 1) % blockDim.x;
  wrong[threadIdx.x] += words.local()[other] != 100u * static_cast<std::uint32_t>(previous) + other ? 1u : 0u;
}

}  // namespace

TEST_CASE("a signal of the network orders stores to memory of peers") {
  test::on_ranks(3, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto words = comm.allocate(threads * sizeof(std::uint32_t));
    const test::device_array<std::uint32_t> wrong(threads);
    launch(store_and_signal, blocks_of(1), device_comm.get(), contexts, words.pointer<std::uint32_t>(), wrong.get());
    test::finish("store_and_signal");
    device_comm.check();
    require_none(wrong, "rank " + std::to_string(comm.rank()));
    comm.barrier();
  });
}

TEST_CASE("ranks of different LSA teams reach each other by the network") {
  host::communicator_options options;
  options.lsa_size = 1;
  test::on_ranks(
      4,
      [](host::communicator& comm) {
        test::require(comm.lsa().size == 1, "the LSA team is larger than asked for");
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{comm.world(), 1, 2});
        const auto device_comm = comm.create_device_comm(needs);
        const auto in = comm.allocate(1000);
        const auto out = comm.allocate(1000);
        const test::device_array<std::uint32_t> wrong(threads);
        launch(shift, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), 1000ull,
               message{999, 1, 0}, 0u, 3u, wrong.get());
        test::finish("shift");
        device_comm.check();
        require_none(wrong, "rank " + std::to_string(comm.rank()));
        comm.barrier();
      },
      options);
}

namespace {

/// After a wait that failed, what is posted goes nowhere.
__global__ void wait_in_vain(device_comm comm, gin::context_handle contexts, bool briefly, sym_ptr<std::uint32_t> word,
                             status* outcome) {
  gin::context net{block{}, comm, contexts, 1};
  if (briefly) {
    outcome[threadIdx.x] = net.wait_signal_for(2, 5, microseconds(50));
  } else {
    net.wait_signal(2, 5);
    net.put_value(1 - comm.rank, word, 77u);
    outcome[threadIdx.x] = net.agree();
  }
}

}  // namespace

TEST_CASE("waits for signals time out, for a limit of their own without a record, else with one that says for what") {
  host::communicator_options impatient;
  impatient.kernel_timeout = std::chrono::milliseconds(40);
  test::on_ranks(
      2,
      [](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{comm.world(), 2, 3});
        const auto device_comm = comm.create_device_comm(needs);
        const auto word = comm.allocate(sizeof(std::uint32_t));
        const test::device_array<status> outcome(threads);
        comm.barrier();
        for (const bool briefly : {true, false}) {
          if (comm.rank() != 0) break;  // while a host can act, waits time out; if none can, they are deadlocked
          launch(wait_in_vain, blocks_of(1), device_comm.get(), contexts, briefly, word.pointer<std::uint32_t>(),
                 outcome.get());
          test::finish("wait_in_vain");
          for (const status each : outcome.read())
            test::require(each == status::timeout, std::string("the outcome was ") + to_string(each));
          std::string said;
          for (const failure_record& record : device_comm.failures()) said += host::describe(record) + "\n";
          const std::string expected = briefly
                                           ? ""
                                           : "rank 0, block 0: GIN signal 2 of context 1 waited for any rank to bring "
                                             "it to at least 5 and last saw 0: timeout\n";
          test::require(said == expected, "the records say: " + said);
        }
        comm.barrier();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // of what was posted
        std::uint32_t got = 0;
        check_cuda(cudaMemcpy(&got, word.pointer<std::uint32_t>().local(), sizeof got, cudaMemcpyDefault),
                   "cudaMemcpy");
        test::require(got == 0, "a rank that timed out has put " + std::to_string(got));
        comm.barrier();
      },
      impatient);
}

namespace {

enum class stuck_wait : std::uint32_t { post, flush, flush_of_peer, fence };

/// Block 1 has some operations done, takes the number of the next one and never writes its descriptor, as a thread
/// would that stands still. So the proxy reads nothing more of the context, and nothing else of it is complete.
__global__ void wait_for_stuck_proxy(device_comm comm, gin::context_handle contexts, stuck_wait what,
                                     std::uint32_t done, std::uint32_t* begun, status* outcome) {
  if (blockIdx.x != 1) return;
  gin::context net{block{}, comm, contexts, 1};
  const int peer = comm.size - 1;
  for (std::uint32_t i = 0; i < done; ++i) net.signal(peer, gin::signal_add{0});
  net.flush();
  if (threadIdx.x == 0) {
    const auto queue = devcomm::detail::queue_end::of(comm, contexts, 1);
    devcomm::arch::fetch_add<memory_order::relaxed, scope::device>(&queue.record->posted, std::uint64_t{1});
    devcomm::arch::store<memory_order::release, scope::system>(begun, 1u);
  }
  if (what != stuck_wait::flush) net.signal(peer, gin::signal_add{0});
  if (what == stuck_wait::post) {
    for (std::uint32_t i = 1; i < contexts.depth; ++i) net.signal(peer, gin::signal_add{0});
  }
  if (what == stuck_wait::flush) net.flush();
  if (what == stuck_wait::flush_of_peer) net.flush(peer);
  if (what == stuck_wait::fence) net.fence(peer);
  outcome[threadIdx.x] = net.agree();
}

struct expected_record {
  stuck_wait wait;
  operation what;
  int peer;
  wait_condition condition;
  std::uint32_t operations;  ///< waited for, from the one on that was never written
  std::string text;          ///< up to their number
};

/// Rank 0's wait ends, by its timeout or by an abort of its communicator, and leaves this record and no other.
void require_record(const expected_record& right, bool aborts) {
  // A network needs time for what is done before.
  const std::uint32_t done = aborts ? 2 : 0;
  host::communicator_options options;
  options.kernel_timeout = std::chrono::milliseconds(aborts ? 20'000 : 40);
  test::on_ranks(
      3,
      [&](host::communicator& comm) {
        auto needs = comm.requirements();
        const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .signals = 1, .depth = 4});
        const auto device_comm = comm.create_device_comm(needs);
        const test::device_array<status> outcome(threads);
        comm.barrier();
        if (comm.rank() == 0) {
          std::uint32_t* begun = nullptr;
          check_cuda(cudaMallocHost(reinterpret_cast<void**>(&begun), sizeof *begun), "cudaMallocHost");
          *begun = 0;
          launch(wait_for_stuck_proxy, blocks_of(2), device_comm.get(), contexts, right.wait, done, begun,
                 outcome.get());
          if (aborts) {
            while (std::atomic_ref(*begun).load() == 0) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            comm.abort();
          }
          test::finish("wait_for_stuck_proxy");
          check_cuda(cudaFreeHost(begun), "cudaFreeHost");
          const status cause = aborts ? status::aborted : status::timeout;
          // In a fence one thread's wait timed out, and the others learn that waits have been ended.
          for (const status each : outcome.read())
            test::require(each == cause || (right.wait == stuck_wait::fence && each == status::aborted),
                          std::string("the outcome was ") + to_string(each));
          const auto records = device_comm.failures();
          test::require(records.size() == 1, std::to_string(records.size()) + " records");
          const failure_record& one = records[0];
          const std::uint64_t expected = done + right.operations;
          const std::string said = host::describe(one);
          test::require(said == "rank 0, block 1: " + right.text + std::to_string(expected) +
                                    (right.wait == stuck_wait::post ? " operations" : "") + " and last saw " +
                                    std::to_string(done) + ": " + to_string(cause),
                        said);
          test::require(one.outcome == cause && one.what == right.what && one.condition == right.condition, said);
          test::require(one.rank == 0 && one.block == 1 && one.index == 1 && one.peer_index == 1, said);
          // Threads take contexts in turns to fence them, and thread 0 does everything else.
          const std::uint32_t thread = right.wait == stuck_wait::fence ? 1 : 0;
          test::require(one.thread == thread, said + ", thread " + std::to_string(one.thread));
          test::require(one.peer == right.peer, said + ", peer " + std::to_string(one.peer));
          test::require(one.expected == expected && one.seen == done, said);
          test::require(one.window == 0 && one.among_groups == 0, said);
        }
        comm.barrier();
      },
      options);
}

}  // namespace

TEST_CASE(
    "a post into a full queue, a flush and a fence that wait in vain end by timeout or abort, with their records") {
  constexpr auto read = wait_condition::read_by_proxy;
  constexpr auto done = wait_condition::done_by_proxy;
  const std::string completes = " waited for the proxy to complete operations below ";
  const expected_record all[] = {
      {stuck_wait::post, operation::gin_post, -1, read, 1, "GIN post to context 1 waited for the proxy to read "},
      {stuck_wait::flush, operation::gin_flush, -1, done, 1, "GIN flush of context 1" + completes},
      {stuck_wait::flush_of_peer, operation::gin_flush, 2, done, 2, "GIN flush of context 1, to rank 2," + completes},
      {stuck_wait::fence, operation::gin_fence, 2, done, 3, "GIN fence of context 1, to rank 2," + completes}};
  for (const bool aborts : {false, true}) {
    INFO((aborts ? "ended by an abort" : "ended by the timeout"));
    for (const expected_record& each : all) require_record(each, aborts);
  }
}

namespace {

/// What `check` says of a put to the next rank that cannot be done, which ends the waits of the kernel.
std::string refused_put(const host::device_communicator& device_comm, gin::context_handle contexts, sym_ptr<char> in,
                        sym_ptr<char> out) {
  const test::device_array<status> outcome(threads);
  launch(put_to_next, blocks_of(1), device_comm.get(), contexts, in, out, outcome.get());
  test::finish("put_to_next");
  for (const status each : outcome.read())
    test::require(each == status::aborted, std::string("the outcome was ") + to_string(each));
  try {
    device_comm.check();
  } catch (const host::kernel_error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("an operation on a window that is gone ends the waits, and says which and why") {
  test::on_ranks(2, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(64);
    sym_ptr<char> gone{};
    {
      const auto out = comm.allocate(64);
      gone = out.pointer<char>();
    }
    comm.barrier();
    const std::string said = refused_put(device_comm, contexts, in.pointer<char>(), gone);
    const std::string next = "rank " + std::to_string(1 - comm.rank());
    test::require(said.find("put to " + next + " in context 0: " + next + " has no window") != std::string::npos,
                  "check said: " + said);
    comm.barrier();
  });
}

TEST_CASE("a window of another communicator is refused, and no window of the same number stands for it") {
  test::on_ranks(2, [](host::communicator& parent) {
    const auto child = parent.split(0, parent.rank());
    const auto theirs_in = parent.allocate(64);
    const auto theirs_out = parent.allocate(64);
    const auto in = child->allocate(64);
    const auto out = child->allocate(64);
    auto needs = child->requirements();
    const auto contexts = needs.add(gin::contexts{child->world(), 1, 1});
    const auto device_comm = child->create_device_comm(needs);
    child->barrier();
    const std::string said = refused_put(device_comm, contexts, theirs_in.pointer<char>(), theirs_out.pointer<char>());
    test::require(said.find("this rank has no window 1 (any more)") != std::string::npos &&
                      said.find("of the communicator that made the device communicator") != std::string::npos,
                  "check said: " + said);
    child->barrier();
  });
}

namespace {

/// One round more: what the previous rank puts is this round's. `round` lies in memory, as a graph's arguments stay.
__global__ void put_next_round(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> in,
                               sym_ptr<std::uint32_t> out, std::uint32_t* rounds, std::uint32_t* wrong) {
  gin::context net{block{}, comm, contexts, 0};
  const std::uint32_t round = *rounds;
  const int next = (comm.rank + 1) % comm.size;
  const int previous = (comm.rank + comm.size - 1) % comm.size;
  const auto value = [&](int rank) { return 1000u * round + 100u * static_cast<std::uint32_t>(rank) + threadIdx.x; };
  in.local()[threadIdx.x] = value(comm.rank);
  net.put(next, out, in, threads, gin::signal_add{0, 1, gin::strength::weak});
  net.wait_signal(0, round + 1);
  wrong[threadIdx.x] += out.local()[threadIdx.x] != value(previous) ? 1u : 0u;
  __syncthreads();  // all have read
  net.signal(previous, gin::signal_add{1});
  net.wait_signal(1, round + 1);
  net.flush();
  if (threadIdx.x == 0) *rounds = round + 1;
}

}  // namespace

TEST_CASE("kernels that put and wait replay in graphs, which one thread launches for all ranks") {
  constexpr int ranks = 2;
  constexpr int launches = 3;
  struct on_stream {
    int device = 0;
    cudaStream_t stream = nullptr;
    cudaGraphExec_t graph = nullptr;
  };
  std::array<on_stream, ranks> all{};
  test::on_ranks(ranks, [&](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts = needs.add(gin::contexts{comm.world(), 1, 2});
    const auto device_comm = comm.create_device_comm(needs);
    const auto in = comm.allocate(threads * sizeof(std::uint32_t));
    const auto out = comm.allocate(threads * sizeof(std::uint32_t));
    const test::device_array<std::uint32_t> rounds(1);
    const test::device_array<std::uint32_t> wrong(threads);
    on_stream& mine = all[static_cast<std::size_t>(comm.rank())];
    check_cuda(cudaGetDevice(&mine.device), "cudaGetDevice");
    check_cuda(cudaStreamCreateWithFlags(&mine.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check_cuda(cudaStreamBeginCapture(mine.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < launches; ++i) {
      launch(put_next_round, {.grid = 1, .block = threads, .stream = mine.stream}, device_comm.get(), contexts,
             in.pointer<std::uint32_t>(), out.pointer<std::uint32_t>(), rounds.get(), wrong.get());
    }
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(mine.stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&mine.graph, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaGraphUpload(mine.graph, mine.stream), "cudaGraphUpload");
    check_cuda(cudaStreamSynchronize(mine.stream), "cudaGraphUpload");
    comm.barrier();
    constexpr int replays = 4;
    if (comm.rank() == 0) {
      for (int replay = 0; replay < replays; ++replay) {
        for (const on_stream& each : all) {
          check_cuda(cudaSetDevice(each.device), "cudaSetDevice");
          check_cuda(cudaGraphLaunch(each.graph, each.stream), "cudaGraphLaunch");
        }
      }
      for (const on_stream& each : all) check_cuda(cudaStreamSynchronize(each.stream), "replays");
      check_cuda(cudaSetDevice(mine.device), "cudaSetDevice");
    }
    comm.barrier();
    device_comm.check();
    require_none(wrong, "rank " + std::to_string(comm.rank()));
    test::require(rounds.read()[0] == launches * replays, "each kernel of each replay has run");
    check_cuda(cudaGraphExecDestroy(mine.graph), "cudaGraphExecDestroy");
    check_cuda(cudaStreamDestroy(mine.stream), "cudaStreamDestroy");
    comm.barrier();
  });
}

TEST_CASE("contexts that cannot be made are refused by name") {
  using Catch::Matchers::ContainsSubstring;
  const auto refused = [](const std::function<void(requirements&, host::communicator&)>& ask) {
    std::string said;
    test::on_ranks(1, [&](host::communicator& comm) {
      auto needs = comm.requirements();
      ask(needs, comm);
      try {
        static_cast<void>(comm.create_device_comm(needs));
      } catch (const host::error& error) {
        said = error.what();
      }
    });
    return said;
  };
  CHECK_THAT(refused([](requirements& needs, host::communicator& comm) {
               static_cast<void>(needs.add(gin::contexts{.world = comm.world(), .count = 1, .depth = 3}));
             }),
             ContainsSubstring("a depth of 3; give a power of two"));
  CHECK_THAT(refused([](requirements& needs, host::communicator& comm) {
               static_cast<void>(needs.add(gin::contexts{comm.world(), 0}));
             }),
             ContainsSubstring("asks for no context"));
  CHECK_THAT(refused([](requirements& needs, host::communicator&) {
               static_cast<void>(needs.add(gin::contexts{team{0, 4, 0, 1}, 1}));
             }),
             ContainsSubstring("made for a team of 4 ranks; give it world()"));
  CHECK_THAT(refused([](requirements& needs, host::communicator& comm) {
               static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
               static_cast<void>(needs.add(gin::contexts{comm.world(), 1}));
             }),
             ContainsSubstring("gin::contexts twice"));
  CHECK_THAT(refused([](requirements& needs, host::communicator& comm) {
               static_cast<void>(needs.add(gin::contexts{.world = comm.world(), .count = 1, .depth = 1u << 31}));
             }),
             ContainsSubstring("asks for 1 queues of 2147483648 operations") && ContainsSubstring("at most 16 GiB"));
  // Signals of features and the kernel's own, together.
  CHECK_THAT(
      refused([](requirements& needs, host::communicator& comm) {
        static_cast<void>(needs.add_signals(1 << 20));
        static_cast<void>(needs.add(gin::contexts{comm.world(), 1, 1}));
      }),
      ContainsSubstring("gin::contexts asks for 1048577 signals") && ContainsSubstring("at most 1048576 in all"));
  CHECK_THAT(refused([](requirements& needs, host::communicator& comm) {
               static_cast<void>(needs.add_signals(~0u));
               static_cast<void>(needs.add_signals(~0u));
               static_cast<void>(needs.add(gin::contexts{comm.world(), 1, 1}));
             }),
             ContainsSubstring("gin::contexts asks for 4294967295 signals"));
  CHECK_THAT(
      refused([](requirements& needs, host::communicator& comm) {
        static_cast<void>(needs.add(gin::contexts{comm.world(), 1, 1}));
        static_cast<void>(needs.add_signals(1));
      }),
      ContainsSubstring("a feature with signals (rail_rings, network_slots, network_fifos) after gin::contexts"));
  CHECK_THAT(refused([](requirements& needs, host::communicator& comm) {
               static_cast<void>(needs.add(gin::contexts{.world = comm.world(), .signals = 1u << 20, .barriers = 1}));
             }),
             ContainsSubstring("asks for 1048578 signals and 0 counters in a context, a barrier being two signals"));
}

#if defined(DEVCOMM_SIMULATOR)

#  include <devcomm/simulator/simulator.hpp>

namespace {

enum class past_end { context, signal, counter, flush };

__global__ void use_past_end(device_comm comm, gin::context_handle contexts, past_end what) {
  gin::context net{block{}, comm, contexts, what == past_end::context ? contexts.count : 0};
  if (what == past_end::signal) net.wait_signal(contexts.signals, 1);
  if (what == past_end::counter) net.wait_counter(contexts.counters, 1);
  if (what == past_end::flush) gin::context{block{}, comm, contexts, 1}.wait(net.begin_flush());
}

}  // namespace

TEST_CASE("a context, signal or counter past the last is misuse, which says of how many it is and what to ask for") {
  test::on_ranks(1, [](host::communicator& comm) {
    auto needs = comm.requirements();
    const auto contexts =
        needs.add(gin::contexts{.world = comm.world(), .count = 2, .signals = 3, .counters = 1, .barriers = 1});
    const auto device_comm = comm.create_device_comm(needs);
    const std::pair<past_end, std::string> all[] = {
        {past_end::context, "gin::contexts{.count = count} (GIN context 2 of 2)"},
        {past_end::signal, "gin::contexts{.signals = count} (GIN signal 3 of 3)"},
        {past_end::counter, "gin::contexts{.counters = count} (GIN counter 1 of 1)"},
        {past_end::flush, "the flush was begun on another context"}};
    for (const auto& [what, text] : all) {
      launch(use_past_end, blocks_of(1), device_comm.get(), contexts, what);
      test::require(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "the launch succeeded");
      const std::string said = simulator::last_failure();
      test::require(said.find(text) != std::string::npos, "it said: " + said);
    }
  });
}

namespace {

/// Rank 0 puts to ranks 1 and 2, and counts how often it finds the second undone after the first is done.
__global__ void put_to_both(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> data,
                            std::uint64_t* polls) {
  gin::context net{thread{}, comm, contexts, 0};
  if (comm.rank != 0) {  // others run meanwhile
    for (int i = 0; i < 5000; ++i) static_cast<void>(clock64());
    net.wait_signal(0, 1);
    return;
  }
  for (std::uint32_t peer = 1; peer <= 2; ++peer)
    net.put(static_cast<int>(peer), data, data, 1, gin::signal_add{0}, gin::counter_increment{peer - 1});
  net.wait_counter(0, 1);
  while (net.read_counter(1) == 0) ++*polls;
}

/// The most such polls of 20 seeds.
std::uint64_t max_polls(const char* schedule) {
  std::uint64_t most = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    simulator::set_schedule(schedule);
    simulator::set_seed(seed);
    test::on_ranks(3, [&](host::communicator& comm) {
      auto needs = comm.requirements();
      const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .counters = 2});
      const auto device_comm = comm.create_device_comm(needs);
      const auto data = comm.allocate(4);
      const test::device_array<std::uint64_t> polls(1);
      launch(put_to_both, {.stream = cudaStreamPerThread}, device_comm.get(), contexts, data.pointer<std::uint32_t>(),
             polls.get());
      test::finish("put_to_both");
      if (comm.rank() == 0) most = std::max(most, polls.read()[0]);
      comm.barrier();
    });
  }
  simulator::set_schedule("random");
  return most;
}

}  // namespace

TEST_CASE("under slow_rank the network keeps what goes to one peer back, while others get theirs") {
  const std::uint64_t at_random = max_polls("random");
  const std::uint64_t lagging = max_polls("slow_rank");
  INFO("polls at random " << at_random << ", with lagging peers " << lagging);
  CHECK(lagging > 2 * at_random);
}

#endif
