// Collectives one after another: between kernels that write their inputs and read their outputs, call after call in one
// session, and in no more rounds than their capacity says.
#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace devcomm;

namespace {

constexpr unsigned threads = 64;

using ll = lsa::ll_session<block>;
using lamport = lsa::lamport_session<block>;
using ll128 = lsa::ll128_session<block>;

/// Element `i` of a rank's input; another one in each call. Sums of a few are exact in a float.
__host__ __device__ float element(int rank, std::uint64_t i, int call) {
  return static_cast<float>((rank + 1) * 4096 + call * 64) + static_cast<float>(i % 61);
}

// --- between kernels of one stream ---

enum class kind {
  one_shot,
  two_shot,
  chunked,
  reduce_scatter,
  scatter_in_chunks,
  all_gather,
  broadcast,
  exchange,
  exchange_with_ends,
  all_to_all,
  all_to_all_v
};
constexpr kind kinds[] = {kind::one_shot,           kind::two_shot,   kind::chunked,     kind::reduce_scatter,
                          kind::scatter_in_chunks,  kind::all_gather, kind::broadcast,   kind::exchange,
                          kind::exchange_with_ends, kind::all_to_all, kind::all_to_all_v};
constexpr std::uint64_t count = 1021;
constexpr int max_ranks = 8;

struct vectors {
  sym_ptr<float> input;
  sym_ptr<float> output;
  collective::chunk_buffers chunks;
  lsa::ll_handle mailboxes;
};

/// Elements that a rank has for each of all.
__host__ __device__ std::uint64_t shard_for_each(int ranks) { return count / static_cast<unsigned>(ranks); }
/// Those of an all-to-all-v, which are fewer.
__host__ __device__ std::uint64_t piece_of(int from, int to, int ranks) {
  return shard_for_each(ranks) - static_cast<unsigned>((from + to) % 3) * 7;
}

__global__ void produce(device_comm comm, vectors v, int call, bool late) {
  if (late && threadIdx.x == 0) __nanosleep(20000);
  __syncthreads();
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) v.input.local()[i] = element(comm.rank, i, call);
}

__global__ void run(device_comm comm, vectors v, kind what, int root) {
  lsa::barrier_session barrier{block{}, comm, 0};
  const team ranks = comm.lsa();
  switch (what) {
    case kind::one_shot:
      collective::all_reduce_one_shot_zero_copy(barrier, v.input, v.output.local(), count, sum{});
      break;
    case kind::two_shot: collective::all_reduce_two_shot_zero_copy(barrier, v.input, v.output, count, sum{}); break;
    case kind::chunked:
      collective::all_reduce_two_shot_chunked<float>(
          barrier, collective::chunk_scratch::of_group(comm, v.chunks, v.chunks.packs_for(1, ranks.size), 0),
          {0, collective::packs_of<float>(count)}, collective::from_memory<float>{v.input.local(), count},
          collective::to_memory<float>{v.output.local(), count}, sum{});
      break;
    case kind::reduce_scatter:
      collective::reduce_scatter_zero_copy(barrier, v.input, v.output.local(), count, sum{});
      break;
    case kind::scatter_in_chunks: {
      const std::uint64_t shard = collective::shard_length(count, ranks.size);
      const std::uint64_t own = collective::shard_of(count, ranks.size, ranks.rank).size();
      collective::reduce_scatter_chunked<float>(
          barrier, collective::chunk_scratch::of_group(comm, v.chunks, v.chunks.packs_for(1, ranks.size), 0),
          {0, collective::packs_of<float>(shard)}, collective::from_shards<float>{v.input.local(), count, shard},
          collective::to_memory<float>{v.output.local(), own}, sum{});
      break;
    }
    case kind::all_gather: {
      const auto shard = collective::shard_of(count, ranks.size, ranks.rank);
      collective::all_gather_zero_copy(barrier, static_cast<const float*>(v.input.local()) + shard.begin, v.output,
                                       count);
      break;
    }
    case kind::broadcast:
      collective::broadcast_zero_copy(barrier, root, static_cast<const float*>(v.input.local()), v.output, count);
      break;
    case kind::exchange:
      collective::exchange_zero_copy<float>(barrier, collective::partners::in_ring(ranks.rank, ranks.size),
                                            v.input.local(), v.output, count);
      break;
    case kind::exchange_with_ends: {
      ll session{block{}, comm, v.mailboxes, 0};
      collective::exchange_zero_copy<float>(barrier, collective::packet_ends<ll>{session, 9, 7},
                                            collective::partners::in_ring(ranks.rank, ranks.size), v.input.local(),
                                            v.output, count);
      break;
    }
    case kind::all_to_all:
      collective::all_to_all_zero_copy<float>(barrier, v.input.local(), v.output, shard_for_each(ranks.size));
      break;
    case kind::all_to_all_v: {
      __shared__ std::uint64_t counts[max_ranks], offsets[max_ranks], table[2 * max_ranks];
      if (threadIdx.x < static_cast<unsigned>(ranks.size)) {
        counts[threadIdx.x] = piece_of(ranks.rank, static_cast<int>(threadIdx.x), ranks.size);
        offsets[threadIdx.x] = threadIdx.x * shard_for_each(ranks.size);
      }
      __syncthreads();
      ll session{block{}, comm, v.mailboxes, 0};
      static_cast<void>(collective::all_to_all_v_zero_copy<float>(
          barrier, session, collective::from_pieces<float>{v.input.local(), counts, offsets}, table, v.output, count));
      break;
    }
  }
}

__global__ void consume(device_comm comm, vectors v, kind what, int root, int call, unsigned* wrong) {
  const team ranks = comm.lsa();
  const auto take = [&](std::uint64_t i, float expected) {
    if (v.output.local()[i] != expected) atomicAdd(wrong, 1u);
    v.output.local()[i] = -1;
  };
  /// `elements` of the input of rank `from`, from `first` on.
  const auto take_piece = [&](std::uint64_t begin, int from, std::uint64_t first, std::uint64_t elements) {
    for (std::uint64_t i = threadIdx.x; i < elements; i += blockDim.x) take(begin + i, element(from, first + i, call));
  };
  const auto take_sums = [&](const collective::slice& sums) {
    for (std::uint64_t i = threadIdx.x; i < sums.size(); i += blockDim.x) {
      float sum = 0;
      for (int rank = 0; rank < ranks.size; ++rank) sum += element(rank, sums.begin + i, call);
      take(i, sum);
    }
  };
  const std::uint64_t length = shard_for_each(ranks.size);
  switch (what) {
    case kind::reduce_scatter:
    case kind::scatter_in_chunks: take_sums(collective::shard_of(count, ranks.size, ranks.rank)); break;
    case kind::all_gather:
      for (int from = 0; from < ranks.size; ++from) {
        const auto shard = collective::shard_of(count, ranks.size, from);
        take_piece(shard.begin, from, shard.begin, shard.size());
      }
      break;
    case kind::broadcast: take_piece(0, root, 0, count); break;
    case kind::exchange:
    case kind::exchange_with_ends: take_piece(0, (ranks.rank + ranks.size - 1) % ranks.size, 0, count); break;
    case kind::all_to_all:
      for (int from = 0; from < ranks.size; ++from)
        take_piece(static_cast<unsigned>(from) * length, from, static_cast<unsigned>(ranks.rank) * length, length);
      break;
    case kind::all_to_all_v: {
      std::uint64_t begin = 0;
      for (int from = 0; from < ranks.size; ++from) {
        const std::uint64_t elements = piece_of(from, ranks.rank, ranks.size);
        take_piece(begin, from, static_cast<unsigned>(ranks.rank) * length, elements);
        begin += elements;
      }
      break;
    }
    default: take_sums({0, count}); break;
  }
}

}  // namespace

TEST_CASE("a collective between the kernels that write its input and read its output is right, call after call") {
  test::on_ranks(test::ranks_that_meet(4), [](host::communicator& comm) {
    constexpr int times = 3;
    auto needs = comm.requirements().lsa_barriers(1);
    const auto chunks = needs.add(collective::chunk_buffer_bytes{1 << 12});
    const auto mailboxes = needs.add(lsa::mailboxes_for<ll>(comm.lsa(), 1, 16));
    const auto device_comm = comm.create_device_comm(needs);
    const auto input = comm.allocate(count * sizeof(float));
    const auto output = comm.allocate(count * sizeof(float));
    const vectors v{input.pointer<float>(), output.pointer<float>(), chunks, mailboxes};
    const test::device_array<unsigned> wrong(std::size(kinds));
    const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    comm.barrier();
    int call = 0;
    for (int time = 0; time < times; ++time) {
      for (std::size_t k = 0; k < std::size(kinds); ++k) {
        const int root = call % comm.size();
        ++call;
        launch(produce, config, device_comm.get(), v, call, (call + comm.rank()) % 3 == 0);
        launch(run, config, device_comm.get(), v, kinds[k], root);
        launch(consume, config, device_comm.get(), v, kinds[k], root, call, wrong.get() + k);
      }
    }
    test::finish("the launches");
    device_comm.check();
    const auto counts = wrong.read();
    for (std::size_t k = 0; k < counts.size(); ++k) {
      test::require(counts[k] == 0, [&] {
        return std::to_string(counts[k]) + " elements of collective " + std::to_string(k) + " wrong on rank " +
               std::to_string(comm.rank());
      });
    }
    comm.barrier();
  });
}

// --- into two outputs in turn ---

namespace {

/// An all-to-all, or an exchange with the neighbors in a ring.
__global__ void move_in_turn(device_comm comm, sym_ptr<float> input, sym_ptr<float> output, bool to_all) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const team ranks = comm.lsa();
  if (to_all) {
    collective::all_to_all_zero_copy<float>(barrier, input.local(), output, shard_for_each(ranks.size),
                                            collective::copy_buffers::alternating);
  } else {
    collective::exchange_zero_copy<float>(barrier, collective::partners::in_ring(ranks.rank, ranks.size), input.local(),
                                          output, count, collective::copy_buffers::alternating);
  }
}

}  // namespace

TEST_CASE("moves into two outputs in turn are right without a first barrier, however late a rank reads") {
  test::on_ranks(test::ranks_that_meet(4), [](host::communicator& comm) {
    constexpr int calls = 8;
    constexpr unsigned blocks = 2;
    const auto device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(blocks));
    const auto input = comm.allocate(count * sizeof(float));
    const auto even = comm.allocate(count * sizeof(float));
    const auto odd = comm.allocate(count * sizeof(float));
    const test::device_array<unsigned> wrong(1);
    const launch_config config{.grid = 1, .block = threads, .stream = cudaStreamPerThread};
    comm.barrier();
    for (int call = 0; call < calls; ++call) {
      const bool to_all = call / 2 % 2 != 0;
      const sym_ptr<float> output = (call % 2 == 0 ? even : odd).pointer<float>();
      const vectors v{input.pointer<float>(), output, {}, {}};
      const bool late = (call + comm.rank()) % 3 == 0;
      launch(produce, config, device_comm.get(), v, call, late);
      launch(move_in_turn, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             v.input, output, to_all);
      if (late) launch(produce, config, device_comm.get(), v, call, true);  // the same values, later
      launch(consume, config, device_comm.get(), v, to_all ? kind::all_to_all : kind::exchange, 0, call, wrong.get());
    }
    test::finish("the launches");
    device_comm.check();
    test::require(wrong.read()[0] == 0, [&] {
      return std::to_string(wrong.read()[0]) + " elements wrong on rank " + std::to_string(comm.rank());
    });
    comm.barrier();
  });
}

// --- in one session ---

namespace {

/// Broadcasts of a few packs, without anything between them; roots in turn, or one that never waits for data.
template <class Session>
__global__ void broadcast_often(device_comm comm, typename Session::handle mailboxes, int times, bool one_root,
                                unsigned* wrong) {
  Session session{block{}, comm, mailboxes, 0};
  const int ranks = session.members().size;
  for (int call = 0; call < times; ++call) {
    const int root = one_root ? ranks - 1 : call % ranks;
    const auto packs = static_cast<std::uint64_t>(1 + call % 5);
    unsigned got = 0;
    collective::broadcast<float>(
        session, root, {0, packs},
        [&](std::uint64_t i) {
          pack<float> value;
          for (int e = 0; e < 4; ++e) value[e] = element(root, 4 * i + static_cast<unsigned>(e), call);
          return value;
        },
        [&](std::uint64_t i, const pack<float>& value) {
          ++got;
          for (int e = 0; e < 4; ++e)
            if (value[e] != element(root, 4 * i + static_cast<unsigned>(e), call)) atomicAdd(wrong, 1u);
        });
    atomicAdd(wrong + 1, got);
  }
  if (session.agree() != status::success) atomicAdd(wrong, 1u);
}

template <class Session>
void check_broadcasts(int ranks) {
  INFO(ranks << " ranks, " << to_string(Session::what));
  test::on_ranks(ranks, [](host::communicator& comm) {
    constexpr int times = 10;
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 1, 2));  // up to three rounds a call
    const auto device_comm = comm.create_device_comm(needs);
    const test::device_array<unsigned> wrong(2);
    comm.barrier();
    for (const bool one_root : {true, false})
      launch(broadcast_often<Session>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             mailboxes, times, one_root, wrong.get());
    test::finish("broadcast_often");
    device_comm.check();
    const auto seen = wrong.read();
    test::require(seen[0] == 0, std::to_string(seen[0]) + " wrong on rank " + std::to_string(comm.rank()));
    test::require(seen[1] == 2 * times * 3, std::to_string(seen[1]) + " packs came");
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("broadcasts that follow each other in one session bring each its own packs") {
  for (const int ranks : {2, 4}) {
    check_broadcasts<ll>(ranks);
    check_broadcasts<lamport>(ranks);
  }
  check_broadcasts<ll128>(3);
}

// --- rounds ---

namespace {

enum class call { one_shot, two_shot, reduce_scatter, all_gather, broadcast };
constexpr call calls[] = {call::one_shot, call::two_shot, call::reduce_scatter, call::all_gather, call::broadcast};

template <class Session>
__global__ void make(device_comm comm, typename Session::handle mailboxes, call which, std::uint64_t packs) {
  Session session{block{}, comm, mailboxes, 0};
  const auto ones = [](std::uint64_t) { return pack<float>{{1, 1, 1, 1}}; };
  const auto ones_for = [&](int, std::uint64_t i) { return ones(i); };
  const auto ignore = [](std::uint64_t, const pack<float>&) {};
  const auto ignore_from = [](int, std::uint64_t, const pack<float>&) {};
  const collective::slice all{0, packs};
  switch (which) {
    case call::one_shot: collective::all_reduce_one_shot<float>(session, all, ones, ignore, sum{}); break;
    case call::two_shot: collective::all_reduce_two_shot<float>(session, all, ones, ignore, sum{}); break;
    case call::reduce_scatter: collective::reduce_scatter<float>(session, all, ones_for, ignore, sum{}); break;
    case call::all_gather: collective::all_gather<float>(session, all, ones, ignore_from); break;
    case call::broadcast: collective::broadcast<float>(session, 0, all, ones, ignore); break;
  }
}

/// A mailbox that has the capacity of `which` for `packs` packs is used for one round, and for two by one pack more, or
/// as many more as it takes to fill a row of every rank.
template <class Session>
void check_rounds(call which, std::uint64_t packs, int ranks) {
  INFO(packs << " packs of call " << static_cast<int>(which) << " on " << ranks << " ranks, "
             << to_string(Session::what));
  test::on_ranks(ranks, [&](host::communicator& comm) {
    const std::uint32_t capacity = which == call::two_shot ? collective::two_shot_capacity(packs, comm.size())
                                                           : collective::one_shot_capacity(packs);
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<Session>(comm.lsa(), 1, capacity));
    const auto device_comm = comm.create_device_comm(needs);
    const lsa::mailbox_layout layout{mailboxes.count, mailboxes.members, mailboxes.packets};
    const auto rounds_of = [&](std::uint64_t vector) {
      const auto epoch = [&] {
        std::uint32_t value = 0;
        check_cuda(cudaMemcpyAsync(&value, device_comm.get().resources.local + mailboxes.offset + layout.epoch(0),
                                   sizeof value, cudaMemcpyDefault, cudaStreamPerThread),
                   "cudaMemcpyAsync");
        test::finish("cudaMemcpyAsync");
        return value;
      };
      const std::uint32_t before = epoch();
      comm.barrier();
      launch(make<Session>, {.grid = 1, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(), mailboxes,
             which, vector);
      test::finish("make");
      device_comm.check();
      return epoch() - before;
    };
    const std::uint32_t rounds = rounds_of(packs);
    test::require(rounds == 1, std::to_string(rounds) + " rounds where one suffices");
    const std::uint64_t room = lsa::ll128_unit::packs * 2 * static_cast<std::uint64_t>(comm.size());
    test::require(rounds_of(packs + room) >= 2, "more than the capacity went in one round");
    comm.barrier();
  });
}

}  // namespace

TEST_CASE("a mailbox of a call's capacity is used for one round") {
  for (const call which : calls) {
    for (const int ranks : {1, 2, 3}) {
      check_rounds<ll>(which, 7, ranks);
      check_rounds<lamport>(which, 64, ranks);
    }
    check_rounds<ll128>(which, 64, 3);
  }
}

namespace {

/// Every rank sends `elements` elements to each.
__global__ void send_pieces(device_comm comm, lsa::ll_handle mailboxes, std::uint64_t elements, unsigned* consumed) {
  __shared__ std::uint64_t counts[max_ranks], received[max_ranks + 1];
  ll session{block{}, comm, mailboxes, blockIdx.x};
  if (threadIdx.x < static_cast<unsigned>(session.members().size)) counts[threadIdx.x] = elements;
  __syncthreads();
  collective::all_to_all_v<float>(
      session, counts, received,
      [](int, std::uint64_t) {
        return pack<float>{{1, 1, 1, 1}};
      },
      [=](int, std::uint64_t, const pack<float>&) { atomicAdd(consumed, 1u); });
}

}  // namespace

TEST_CASE("blocks of an all-to-all-v share a piece in as many rounds as the share of one needs") {
  test::on_ranks(test::ranks_that_meet(3), [](host::communicator& comm) {
    constexpr unsigned blocks = 2;
    constexpr std::uint32_t capacity = 8;  // packs of a round: a share, and one for the count
    auto needs = comm.requirements();
    const auto mailboxes = needs.add(lsa::mailboxes_for<ll>(comm.lsa(), blocks, capacity));
    const auto device_comm = comm.create_device_comm(needs);
    const lsa::mailbox_layout layout{mailboxes.count, mailboxes.members, mailboxes.packets};
    for (const std::uint32_t rounds : {1u, 2u}) {
      const std::uint64_t share = capacity * rounds - 1;
      const test::device_array<unsigned> consumed(1);
      const auto epoch = [&] {
        std::uint32_t value = 0;
        check_cuda(cudaMemcpyAsync(&value, device_comm.get().resources.local + mailboxes.offset + layout.epoch(0),
                                   sizeof value, cudaMemcpyDefault, cudaStreamPerThread),
                   "cudaMemcpyAsync");
        test::finish("cudaMemcpyAsync");
        return value;
      };
      const std::uint32_t before = epoch();
      comm.barrier();
      launch(send_pieces, {.grid = blocks, .block = threads, .stream = cudaStreamPerThread}, device_comm.get(),
             mailboxes, blocks * share * pack<float>::size, consumed.get());
      test::finish("send_pieces");
      device_comm.check();
      test::require(epoch() - before == rounds,
                    std::to_string(epoch() - before) + " rounds where " + std::to_string(rounds) + " suffice");
      test::require(consumed.read().front() == blocks * share * static_cast<unsigned>(comm.size()),
                    "packs are missing");
      comm.barrier();
    }
  });
}
