// Worlds of several LSA teams: the barrier of all ranks, all-to-all and all-reduce over stores and the network. Each
// against a reference on the host.
#include <devcomm/devcomm.cuh>

#ifdef DEVCOMM_SIMULATOR
#  include <devcomm/simulator/simulator.hpp>
#endif

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned blocks = 2;
constexpr unsigned threads = 64;

launch_config config() { return {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}; }

struct shape {
  int ranks;
  int lsa_size;
  const char* peers = "";  ///< which simulated GPUs reach each other; empty: all
};
std::string text(const shape& s) {
  return std::to_string(s.ranks) + " ranks, " + std::to_string(s.lsa_size) + " in each LSA team " + s.peers;
}

/// Ranks in LSA teams of one size, blocks of ranks or, where GPUs are placed so, dealt in turn.
void on_ranks_of(const shape& s, const std::function<void(host::communicator&)>& body,
                 host::communicator_options options) {
#ifdef DEVCOMM_SIMULATOR
  simulator::set_peers(s.peers);
#else
  if (*s.peers != '\0') return;
#endif
  test::on_ranks(s.ranks, body, options);
#ifdef DEVCOMM_SIMULATOR
  simulator::set_peers("");
#endif
}

host::communicator_options options_of(const shape& s) {
  host::communicator_options options;
  options.lsa_size = s.lsa_size;
  return options;
}

struct resources {
  gin::context_handle contexts;
  requirements needs;
  collective::network_slot_handle slots;
};
resources ask(const host::communicator& comm) {
  auto needs = comm.requirements().lsa_barriers(blocks);
  const auto slots = needs.add(collective::network_slots{.members = comm.world(), .groups = blocks, .slot_bytes = 990});
  const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 2, .depth = 16, .barriers = blocks});
  return {contexts, needs, slots};
}

__device__ std::uint32_t value_of(int from, int to, std::uint32_t round) {
  return static_cast<std::uint32_t>(from + 1) * 1000000 + static_cast<std::uint32_t>(to) * 10000 + round * 100 +
         threadIdx.x;
}

/// In each round every rank has a row of words for each other. Stored to those that it can reach and put to all, got by
/// all: whatever the level orders is there after the barrier.
__global__ void all_ways(device_comm comm, gin::context_handle contexts, gin::context_range range,
                         sym_ptr<std::uint32_t> memory, std::uint32_t* wrong) {
  collective::barrier_session barrier{block{}, comm, contexts, range, blockIdx.x};
  const std::int64_t board = static_cast<std::int64_t>(comm.size) * threads;
  const sym_ptr<std::uint32_t> own = memory + blockIdx.x * 4 * board;
  const sym_ptr<std::uint32_t> stored = own + board;
  const sym_ptr<std::uint32_t> put = stored + board;
  const sym_ptr<std::uint32_t> got = put + board;
  const auto row = [](sym_ptr<std::uint32_t> of, int rank) { return of + rank * std::int64_t{threads}; };
  const auto expect = [&](std::uint32_t value, std::uint32_t right) {
    wrong[blockIdx.x * threads + threadIdx.x] += value != right ? 1u : 0u;
  };
  auto net = barrier.context(block{});
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (int rank = 0; rank < comm.size; ++rank) row(own, rank).local()[threadIdx.x] = value_of(comm.rank, rank, round);
    for (int member = 0; member < comm.lsa_size; ++member)
      row(stored, comm.rank).lsa(member)[threadIdx.x] = value_of(comm.rank, comm.world_rank(comm.lsa(), member), round);
    barrier.sync(gin::fence_level::none);
    for (int member = 0; member < comm.lsa_size; ++member) {
      const int rank = comm.world_rank(comm.lsa(), member);
      expect(row(stored, rank).local()[threadIdx.x], value_of(rank, comm.rank, round));
    }
    for (int rank = 0; rank < comm.size; ++rank) net.get(rank, row(got, rank), row(own, comm.rank), threads);
    for (int rank = 0; rank < comm.size; ++rank) net.put(rank, row(put, comm.rank), row(own, rank), threads);
    barrier.sync(round == 1 ? gin::fence_level::put : gin::fence_level::put_and_get);
    if (round == 1) {
      net.flush();
      barrier.sync(gin::fence_level::none);
    }
    for (int rank = 0; rank < comm.size; ++rank) {
      expect(row(put, rank).local()[threadIdx.x], value_of(rank, comm.rank, round));
      expect(row(got, rank).local()[threadIdx.x], value_of(rank, comm.rank, round));
    }
    if (round == 0) barrier.sync_across(gin::fence_level::put_and_get);
    if (round == 1) barrier.sync();
  }
}

/// What ranks put along their rail is there after the barrier of the rail; to other LSA teams, after `sync_across`.
__global__ void along_rails(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> memory,
                            std::uint32_t* wrong) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(1), blockIdx.x};
  const std::int64_t board = static_cast<std::int64_t>(comm.size) * threads;
  const sym_ptr<std::uint32_t> own = memory + blockIdx.x * 4 * board;
  const sym_ptr<std::uint32_t> put = own + board;
  const auto row = [](sym_ptr<std::uint32_t> of, int rank) { return of + rank * std::int64_t{threads}; };
  auto net = barrier.context(block{});
  const team rail = barrier.rail();
  for (std::uint32_t round = 0; round < 4; ++round) {
    const bool only_rail = round % 2 == 0;
    const auto is_peer = [&](int rank) {
      return only_rail ? rail.contains(rank) && rank != comm.rank : comm.lsa_member(rank) < 0;
    };
    for (int rank = 0; rank < comm.size; ++rank) row(own, rank).local()[threadIdx.x] = value_of(comm.rank, rank, round);
    for (int rank = 0; rank < comm.size; ++rank)
      if (is_peer(rank)) net.put(rank, row(put, comm.rank), row(own, rank), threads);
    if (only_rail) {
      barrier.sync_rail(gin::fence_level::put);
    } else {
      barrier.sync_across(gin::fence_level::put);
    }
    for (int rank = 0; rank < comm.size; ++rank) {
      if (!is_peer(rank)) continue;
      wrong[blockIdx.x * threads + threadIdx.x] +=
          row(put, rank).local()[threadIdx.x] != value_of(rank, comm.rank, round) ? 1u : 0u;
    }
    net.flush();
    barrier.sync(gin::fence_level::none);
  }
}

void require_none(const test::device_array<std::uint32_t>& wrong, const std::string& where) {
  const std::vector<std::uint32_t> values = wrong.read();
  for (std::size_t i = 0; i < values.size(); ++i)
    test::require(values[i] == 0, [&] { return where + ": thread " + std::to_string(i) + " found wrong values"; });
}

}  // namespace

TEST_CASE("a barrier of all hosts orders stores, and operations of the network as its level says") {
  for (const shape& s : {shape{1, 1}, {2, 1}, {4, 2}, {8, 2}, {6, 3}, {3, 3}}) {
    INFO(text(s));
    test::on_ranks(
        s.ranks,
        [](host::communicator& comm) {
          const resources asked = ask(comm);
          const auto device_comm = comm.create_device_comm(asked.needs);
          const std::size_t words = static_cast<std::size_t>(comm.size()) * threads * 4 * blocks;
          const auto memory = comm.allocate(words * sizeof(std::uint32_t));
          const test::device_array<std::uint32_t> wrong(blocks * threads);
          for (const gin::context_range range : {gin::one_context(0), gin::all_contexts()}) {
            launch(all_ways, config(), device_comm.get(), asked.contexts, range, memory.pointer<std::uint32_t>(),
                   wrong.get());
            test::finish("all_ways");
            device_comm.check();
            require_none(wrong, "rank " + std::to_string(comm.rank()));
            comm.barrier();
          }
          launch(along_rails, config(), device_comm.get(), asked.contexts, memory.pointer<std::uint32_t>(),
                 wrong.get());
          test::finish("along_rails");
          device_comm.check();
          require_none(wrong, "along rails, rank " + std::to_string(comm.rank()));
          comm.barrier();
        },
        options_of(s));
  }
}

namespace {

__global__ void meet(device_comm comm, gin::context_handle contexts, gin::fence_level level, std::uint64_t limit,
                     status* outcome) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), 0};
  status said = status::success;
  if (limit == 0) {
    barrier.sync(level);
    said = barrier.agree();
  } else {
    said = barrier.sync_for(nanoseconds{limit}, level);
    if (said == status::timeout) said = barrier.sync_for(nanoseconds{limit}, level);
  }
  outcome[threadIdx.x] = said;
}

void run_meet(host::device_communicator& device_comm, const gin::context_handle& contexts, gin::fence_level level,
              std::uint64_t limit, status expected) {
  const test::device_array<status> outcome(threads);
  launch(meet, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), contexts, level, limit,
         outcome.get());
  test::finish("meet");
  for (const status each : outcome.read())
    test::require(each == expected, std::string("the outcome was ") + to_string(each));
}

}  // namespace

TEST_CASE("a barrier of all hosts that runs out of a limit of its own can be met later") {
  for (const gin::fence_level level : {gin::fence_level::none, gin::fence_level::put_and_get}) {
    test::on_ranks(
        4,
        [&](host::communicator& comm) {
          const resources asked = ask(comm);
          auto device_comm = comm.create_device_comm(asked.needs);
          for (const int late : {1, 3}) {  // of the own LSA team, of the other one
            if (comm.rank() != late) run_meet(device_comm, asked.contexts, level, 20000, status::timeout);
            comm.barrier();
            run_meet(device_comm, asked.contexts, level, 10000000000, status::success);
            test::require(device_comm.failures().empty(), "a limit of the caller's own leaves no record");
            comm.barrier();
          }
          run_meet(device_comm, asked.contexts, level, 0, status::success);
          comm.barrier();
        },
        options_of({4, 2}));
  }
}

TEST_CASE("a barrier of all hosts ends after the timeout with records of who is missing, inside and across") {
  auto impatient = options_of({4, 2});
  impatient.kernel_timeout = std::chrono::milliseconds(40);
  test::on_ranks(
      4,
      [](host::communicator& comm) {
        const resources asked = ask(comm);
        auto device_comm = comm.create_device_comm(asked.needs);
        comm.barrier();
        if (comm.rank() < 2) {
          run_meet(device_comm, asked.contexts, gin::fence_level::none, 0, status::timeout);
          std::string said;
          for (const failure_record& record : device_comm.failures()) said += host::describe(record) + "\n";
          const std::string me = std::to_string(comm.rank());
          test::require(said == "rank " + me + ", block 0: GIN barrier 0 of context 0 waited for rank " +
                                    std::to_string(comm.rank() + 2) + " to reach epoch 1 and last saw 0: timeout\n",
                        "the records say: " + said);
        } else if (comm.rank() == 2) {
          run_meet(device_comm, asked.contexts, gin::fence_level::none, 0, status::timeout);
          std::string said;
          for (const failure_record& record : device_comm.failures()) said += host::describe(record) + "\n";
          test::require(said.find("rank 2, block 0: LSA barrier 0 waited for rank 3") == 0, "the records say: " + said);
        }
        comm.barrier();
      },
      impatient);
}

namespace {

/// Small, so that sums over all ranks are exact in every type.
template <class T>
__host__ __device__ T element(int rank, std::uint64_t i, int round) {
  return static_cast<T>(
      (static_cast<std::uint64_t>(rank) * 131 + static_cast<std::uint64_t>(round) * 17 + i * 7 + i / 97) % 15);
}

/// What a rank has before a call and after it.
template <class T>
struct exchanged {
  int rank;
  std::uint64_t length;

  __host__ __device__ T input(std::uint64_t i, int round) const { return element<T>(rank, i, round); }
  __host__ __device__ T output(std::uint64_t i, int round) const {
    return element<T>(static_cast<int>(i / length), static_cast<std::uint64_t>(rank) * length + i % length, round);
  }
};
template <class T>
struct reduced {
  int rank;
  int ranks;

  __host__ __device__ T input(std::uint64_t i, int round) const { return element<T>(rank, i, round); }
  __host__ __device__ T output(std::uint64_t i, int round) const {
    T total = 0;
    for (int r = 0; r < ranks; ++r) total = static_cast<T>(total + element<T>(r, i, round));
    return total;
  }
};

template <class T, class Values>
__global__ void write_input(T* data, std::uint64_t count, Values values, int round) {
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    data[i] = values.input(i, round);
}
template <class T, class Values>
__global__ void check_output(const T* data, std::uint64_t count, Values values, int round, std::uint32_t* wrong) {
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    wrong[blockIdx.x * threads + threadIdx.x] += data[i] != values.output(i, round) ? 1u : 0u;
}

template <class T>
__global__ void exchange_all(device_comm comm, gin::context_handle contexts, sym_ptr<T> in, sym_ptr<T> out,
                             std::uint64_t length) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x % contexts.count),
                                      blockIdx.x};
  collective::all_to_all_hybrid<T>(barrier, in, out, length);
}

template <class T>
__global__ void exchange_small(device_comm comm, gin::context_handle contexts, collective::network_slot_handle slots,
                               sym_ptr<T> in, sym_ptr<T> out, std::uint64_t length) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x % contexts.count),
                                      blockIdx.x};
  collective::all_to_all_one_shot<T>(barrier, in, out, slots, length);
}

template <class T, class Operator>
__global__ void reduce_all(device_comm comm, gin::context_handle contexts, sym_ptr<T> in, sym_ptr<T> out,
                           sym_ptr<T> scratch, std::uint64_t count, Operator op) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(blockIdx.x % contexts.count),
                                      blockIdx.x};
  collective::all_reduce_hierarchical<T>(barrier, in, out, scratch, count, op);
}

constexpr std::uint64_t margin = 8;  // elements around vectors, which nobody may write
constexpr std::uint64_t counts[] = {0, 1, 5, 64, 1001, 20003};

/// A vector of `count` elements in a window, with margins that hold a pattern.
template <class T>
class guarded {
 public:
  guarded(host::communicator& comm, std::uint64_t count, std::uint64_t offset)
      : first_(margin + offset), count_(count), memory_(comm.allocate((first_ + count + margin) * sizeof(T))) {
    check_cuda(cudaMemsetAsync(memory_.data(), 3, memory_.bytes(), cudaStreamPerThread), "cudaMemsetAsync");
    test::finish("cudaMemsetAsync");
  }
  [[nodiscard]] sym_ptr<T> get() const { return memory_.pointer<T>() + static_cast<std::int64_t>(first_); }
  void check_margins() const {
    std::vector<unsigned char> bytes(memory_.bytes());
    check_cuda(cudaMemcpyAsync(bytes.data(), memory_.data(), bytes.size(), cudaMemcpyDefault, cudaStreamPerThread),
               "cudaMemcpyAsync");
    test::finish("cudaMemcpyAsync");
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const bool inside = i >= first_ * sizeof(T) && i < (first_ + count_) * sizeof(T);
      test::require(inside || bytes[i] == 3, [&] { return "byte " + std::to_string(i) + " outside was written"; });
    }
  }

 private:
  std::uint64_t first_;
  std::uint64_t count_;
  host::symmetric_memory memory_;
};

/// Two rounds in one stream, without a wait between: inputs are written, `call` is launched, outputs are read.
template <class T, class Values, class Call>
void run_rounds(host::communicator& comm, const host::device_communicator& device_comm, const guarded<T>& in,
                const guarded<T>& out, std::uint64_t count, const Values& values, const Call& call) {
  const test::device_array<std::uint32_t> wrong(blocks * threads);
  comm.barrier();
  for (int round = 0; round < 2; ++round) {
    launch(write_input<T, Values>, config(), in.get().local(), count, values, round);
    call();
    launch(check_output<T, Values>, config(), static_cast<const T*>(out.get().local()), count, values, round,
           wrong.get());
  }
  test::finish("two rounds");
  device_comm.check();
  require_none(wrong, "rank " + std::to_string(comm.rank()) + ", " + std::to_string(count) + " elements");
  out.check_margins();
  comm.barrier();
}

/// `length` elements for each rank, from element `offset` on.
template <class T>
void check_all_to_all(host::communicator& comm, const host::device_communicator& device_comm,
                      const gin::context_handle& contexts, std::uint64_t length, std::uint64_t offset) {
  const std::uint64_t count = static_cast<std::uint64_t>(comm.size()) * length;
  const guarded<T> in(comm, count, offset);
  const guarded<T> out(comm, count, 0);
  run_rounds(comm, device_comm, in, out, count, exchanged<T>{comm.rank(), length},
             [&] { launch(exchange_all<T>, config(), device_comm.get(), contexts, in.get(), out.get(), length); });
}

template <class T>
void check_all_reduce(host::communicator& comm, const host::device_communicator& device_comm,
                      const gin::context_handle& contexts, std::uint64_t count, std::uint64_t offset, bool in_place) {
  const guarded<T> in(comm, count, offset);
  const guarded<T> other(comm, count, 0);
  const guarded<T> scratch(comm, collective::hierarchical_scratch<T>(count, comm.size(), comm.lsa().size), 0);
  const guarded<T>& out = in_place ? in : other;
  run_rounds(comm, device_comm, in, out, count, reduced<T>{comm.rank(), comm.size()}, [&] {
    launch(reduce_all<T, sum>, config(), device_comm.get(), contexts, in.get(), out.get(), scratch.get(), count, sum{});
  });
  scratch.check_margins();
}

const std::vector<shape> shapes = {{1, 1}, {2, 1}, {4, 2}, {8, 2}, {6, 3}, {3, 3}, {3, 1}, {4, 2, "0,2/1,3"}};

/// Calls `check(comm, device_comm, contexts, lengths)` on the ranks of each shape; the largest counts are for few
/// ranks.
template <class Check>
void on_all_shapes(const Check& check) {
  for (const shape& s : shapes) {
    INFO(text(s));
    std::vector<std::uint64_t> lengths;
    for (const std::uint64_t count : counts)
      if (count <= 2000 || s.ranks <= 4) lengths.push_back(count);
    on_ranks_of(
        s,
        [&](host::communicator& comm) {
          const resources asked = ask(comm);
          const auto device_comm = comm.create_device_comm(asked.needs);
          check(comm, device_comm, asked.contexts, lengths);
        },
        options_of(s));
  }
}

}  // namespace

TEST_CASE("an all-to-all over hosts brings every shard to its rank, and touches nothing around") {
  on_all_shapes([](auto& comm, const auto& device_comm, const auto& contexts, const auto& lengths) {
    for (const std::uint64_t length : lengths) check_all_to_all<float>(comm, device_comm, contexts, length, length % 4);
    check_all_to_all<char>(comm, device_comm, contexts, 333, 1);
  });
}

TEST_CASE("an all-reduce over hosts is right on every rank, in place and not, and touches nothing around") {
  on_all_shapes([](auto& comm, const auto& device_comm, const auto& contexts, const auto& lengths) {
    for (const std::uint64_t length : lengths)
      check_all_reduce<float>(comm, device_comm, contexts, length, length % 4, length % 2 == 0);
    check_all_reduce<std::uint32_t>(comm, device_comm, contexts, 777, 0, true);
  });
}

namespace {

/// Several calls of different lengths, through slots.
template <class T>
void check_small_all_to_all(host::communicator& comm, const resources& asked,
                            const host::device_communicator& device_comm, const std::vector<std::uint64_t>& lengths) {
  for (const std::uint64_t length : lengths) {
    const std::uint64_t count = static_cast<std::uint64_t>(comm.size()) * length;
    const guarded<T> in(comm, count, length % 4);
    const guarded<T> out(comm, count, 0);
    run_rounds(comm, device_comm, in, out, count, exchanged<T>{comm.rank(), length}, [&] {
      launch(exchange_small<T>, config(), device_comm.get(), asked.contexts, asked.slots, in.get(), out.get(), length);
    });
  }
}

}  // namespace

TEST_CASE("a small all-to-all over hosts brings every shard to its rank, in as many trips as slots need") {
  for (const shape& s : shapes) {
    INFO(text(s));
    on_ranks_of(
        s,
        [&](host::communicator& comm) {
          const resources asked = ask(comm);
          const auto device_comm = comm.create_device_comm(asked.needs);
          std::vector<std::uint64_t> lengths = {0, 1, 5, 247, 248, 64};
          if (s.ranks <= 4) lengths.push_back(1001);
          check_small_all_to_all<float>(comm, asked, device_comm, lengths);
          check_small_all_to_all<char>(comm, asked, device_comm, {333, 1});
        },
        options_of(s));
  }
}

#if defined(DEVCOMM_SIMULATOR)

namespace {

/// A rank that leaves an all-reduce after so many barriers of its rail.
__global__ void reduce_in_part(device_comm comm, gin::context_handle contexts, int rail_barriers) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), 0};
  barrier.sync(gin::fence_level::none);
  for (int i = 0; i < rail_barriers; ++i) barrier.sync_rail(gin::fence_level::put);
}

__global__ void reduce_in_vain(device_comm comm, gin::context_handle contexts, sym_ptr<float> in, sym_ptr<float> out,
                               sym_ptr<float> scratch, std::uint64_t count, status* outcome) {
  collective::barrier_session barrier{block{}, comm, contexts, gin::one_context(0), 0};
  collective::all_reduce_hierarchical<float>(barrier, in, out, scratch, count, sum{});
  outcome[threadIdx.x] = barrier.agree();
}

}  // namespace

TEST_CASE("an all-reduce over hosts whose rail has failed on one rank fails on its whole LSA team") {
  auto impatient = options_of({4, 2});
  impatient.kernel_timeout = std::chrono::milliseconds(200);
  for (const int rail_barriers : {0, 1}) {
    test::on_ranks(
        4,
        [&](host::communicator& comm) {
          constexpr std::uint64_t count = 900;
          const resources asked = ask(comm);
          auto device_comm = comm.create_device_comm(asked.needs);
          const auto in = comm.allocate(count * sizeof(float));
          const auto out = comm.allocate(count * sizeof(float));
          std::optional<host::symmetric_memory> scratch(
              comm.allocate(collective::hierarchical_scratch<float>(count, 4, 2) * sizeof(float)));
          const sym_ptr<float> pieces = scratch->pointer<float>();
          comm.barrier();
          if (comm.rank() == 3) {
            // Rank 1's first put to it, or its second wait for it, fails. Rank 0 has nothing to do with it.
            if (rail_barriers == 0) scratch.reset();
            comm.barrier();
            launch(reduce_in_part, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
                   asked.contexts, rail_barriers);
            test::finish("reduce_in_part");
            // Rank 1's arrival here may be under way still when its put fails: then it never comes.
            try {
              device_comm.check();
            } catch (const host::kernel_error& error) {
              test::require(std::string(error.what()).find("waited for rank 1") != std::string::npos, error.what());
            }
          } else {
            comm.barrier();
            const test::device_array<status> outcome(threads);
            launch(reduce_in_vain, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
                   asked.contexts, in.pointer<float>(), out.pointer<float>(), pieces, count, outcome.get());
            test::finish("reduce_in_vain");
            for (const status each : outcome.read())
              test::require(each != status::success, "rank " + std::to_string(comm.rank()) + " takes it for done");
            std::string said;
            try {
              device_comm.check();
            } catch (const host::kernel_error& error) {
              said = error.what();
            }
            const std::string first = comm.rank() == 0     ? "LSA barrier 0 waited for rank 1"
                                      : comm.rank() == 2   ? "LSA barrier 0 waited for rank 3"
                                      : rail_barriers == 0 ? "put to rank 3 in context 0: rank 3 has no window"
                                                           : "GIN barrier 0 of context 0 waited for rank 3";
            test::require(said.find(first) != std::string::npos, "check said: " + said);
          }
          comm.barrier();
        },
        impatient);
  }
}

TEST_CASE("LSA teams need not be consecutive ranks, and only an all-reduce over hosts needs rails") {
  for (const char* const teams : {"0,2/1,3", "0,1,4,5/2,3,6,7"}) {
    INFO("ranks that reach each other: " << teams);
    simulator::set_peers(teams);
    const bool has_rails = std::string(teams).size() < 8;
    test::on_ranks(has_rails ? 4 : 8, [&](host::communicator& comm) {
      const resources asked = ask(comm);
      const auto device_comm = comm.create_device_comm(asked.needs);
      check_all_to_all<float>(comm, device_comm, asked.contexts, 101, 1);
      check_small_all_to_all<float>(comm, asked, device_comm, {101, 3});
      if (has_rails) check_all_reduce<float>(comm, device_comm, asked.contexts, 1001, 1, true);
      const auto memory =
          comm.allocate(static_cast<std::size_t>(comm.size()) * threads * 4 * blocks * sizeof(std::uint32_t));
      const test::device_array<std::uint32_t> wrong(blocks * threads);
      launch(all_ways, config(), device_comm.get(), asked.contexts, gin::one_context(0),
             memory.pointer<std::uint32_t>(), wrong.get());
      test::finish("all_ways");
      device_comm.check();
      require_none(wrong, "rank " + std::to_string(comm.rank()));
      comm.barrier();
    });
    simulator::set_peers("");
  }
}

#endif
