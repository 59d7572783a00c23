/// \file gin_kernels.cuh
/// Mistakes with operations of the network, between the ranks of one process.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

enum class gin_mistake {
  none,
  no_flush,          ///< before the source is written again
  no_wait,           ///< for the signal
  weak_signal,       ///< that is to cover an earlier put
  other_context,     ///< of the signal, than the put's
  flush_as_arrival,  ///< the peer is told that the data has come once it has been flushed
  no_sync,           ///< a thread posts what others of its block wrote
  no_credit,         ///< the peer may still read what is put again
  no_get_flush,      ///< before what was got is read
  no_put_fence,      ///< at the barrier after which what was put is read
  other_fence,       ///< the barrier fences another context than that of the put
  no_get_fence,      ///< at the barrier after which what was got is read
};

/// In a window of two halves with a word for each thread of a rank.
struct halves {
  sym_ptr<std::uint32_t> source;
  sym_ptr<std::uint32_t> destination;
};

/// Two rounds round the ring: put to the next rank, tell it, take what the rank before has put, and return a credit.
/// `out` gets the sum of what came.
__global__ void go_round(device_comm comm, gin::context_handle contexts, lsa::signal_handle flags, halves memory,
                         std::uint32_t* out, gin_mistake mistake) {
  const int next = (comm.rank + 1) % comm.size;
  const int previous = (comm.rank + comm.size - 1) % comm.size;
  const auto first = static_cast<std::int64_t>(blockIdx.x * blockDim.x);
  const sym_ptr<std::uint32_t> source = memory.source + first;
  const sym_ptr<std::uint32_t> destination = memory.destination + first;
  gin::context net{block{}, comm, contexts, 2 * blockIdx.x};
  gin::context other{block{}, comm, contexts, 2 * blockIdx.x + 1};
  lsa::signal_session flag{block{}, comm, flags, blockIdx.x};
  std::uint32_t total = 0;
  for (std::uint32_t round = 1; round <= 2; ++round) {
    const std::uint32_t value = static_cast<std::uint32_t>(comm.rank + 1) * 100 * round + threadIdx.x;
    source.local()[threadIdx.x] = value;
    if (mistake != gin_mistake::no_credit) net.wait_signal(1, round - 1);
    if (mistake == gin_mistake::no_sync) {
      source.local()[threadIdx.x] = value;
      if (threadIdx.x == 0)
        gin::context{thread{}, comm, contexts, 2 * blockIdx.x}.put(next, destination, source, blockDim.x);
    } else {
      net.put(next, destination, source, blockDim.x);
    }
    if (mistake == gin_mistake::flush_as_arrival) {
      net.flush();
      flag.add(next, 1);
      flag.take(previous);
    } else if (mistake == gin_mistake::other_context) {
      other.signal(next, gin::signal_add{0});
      other.wait_signal(0, round);
    } else {
      net.signal(next, gin::signal_add{
                           0, 1, mistake == gin_mistake::weak_signal ? gin::strength::weak : gin::strength::strong});
      if (mistake != gin_mistake::no_wait) net.wait_signal(0, round);
    }
    total += destination.local()[threadIdx.x];
    net.signal(previous, gin::signal_add{1});
    if (mistake != gin_mistake::no_flush) net.flush();
  }
  net.wait_signal(1, 2);  // nobody puts to a rank that has ended
  out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

/// Each rank writes, all meet, and each gets what the next one wrote.
__global__ void fetch(device_comm comm, gin::context_handle contexts, halves memory, std::uint32_t* out,
                      gin_mistake mistake) {
  const auto first = static_cast<std::int64_t>(blockIdx.x * blockDim.x);
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  gin::context net{block{}, comm, contexts, 2 * blockIdx.x};
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  memory.source.local()[mine] = static_cast<std::uint32_t>(comm.rank + 1) * 100 + mine;
  barrier.sync();
  net.get((comm.rank + 1) % comm.size, memory.destination + first, memory.source + first, blockDim.x);
  if (mistake != gin_mistake::no_get_flush) net.flush();
  out[mine] = memory.destination.local()[mine];
}

/// Two rounds: all threads put to the next rank, or get from it, meet at a barrier that fences that, read what has
/// come, and meet again before anything is written. `out` gets the sum of what came.
__global__ void meet_and_read(device_comm comm, gin::context_handle contexts, halves memory, bool by_get,
                              std::uint32_t* out, gin_mistake mistake) {
  const int next = (comm.rank + 1) % comm.size;
  const auto mine = static_cast<std::int64_t>(blockIdx.x * blockDim.x + threadIdx.x);
  const sym_ptr<std::uint32_t> source = memory.source + mine;
  const sym_ptr<std::uint32_t> destination = memory.destination + mine;
  gin::context net{thread{}, comm, contexts, 2 * blockIdx.x};
  const std::uint32_t fenced = 2 * blockIdx.x + (mistake == gin_mistake::other_fence ? 1 : 0);
  gin::barrier_session barrier{block{}, comm, comm.world(), contexts, gin::one_context(fenced), 0};
  gin::barrier_session last{block{}, comm, comm.world(), contexts, gin::one_context(2 * blockIdx.x), 1};
  const bool forgets = mistake == gin_mistake::no_put_fence || mistake == gin_mistake::no_get_fence;
  const gin::fence_level level = forgets  ? gin::fence_level::none
                                 : by_get ? gin::fence_level::get
                                          : gin::fence_level::put;
  std::uint32_t total = 0;
  for (std::uint32_t round = 1; round <= 2; ++round) {
    *source.local() = static_cast<std::uint32_t>(comm.rank + 1) * 100 * round + threadIdx.x;
    if (by_get) {
      last.sync(gin::fence_level::none);
      net.get(next, destination, source, 1);
    } else {
      net.put(next, destination, source, 1);
    }
    barrier.sync(level);
    total += *destination.local();
    last.sync(gin::fence_level::put_and_get);
  }
  out[mine] = total;
}

template <class Start, class Expected>
void with_network(const bench& b, Start start, Expected expected) {
  auto needs = b.ranks.requirements().lsa_barriers(blocks);
  const auto contexts =
      needs.add(gin::contexts{.world = b.ranks.world(), .count = 2 * blocks, .signals = 2, .barriers = 2});
  const auto flags = needs.add(lsa::signals{b.ranks.lsa(), blocks});
  const auto memory = b.ranks.allocate(2 * words * sizeof(std::uint32_t), "tensor");
  const auto device = b.ranks.create_device_comm(needs);  // destroyed first, when what was posted is done
  const halves where{memory.pointer<std::uint32_t>(), memory.pointer<std::uint32_t>() + words};
  const output out(words);
  b.ranks.barrier();
  start(device.get(), contexts, flags, where, out.get());
  b.finish();
  device.check();
  b.expect(out, expected);
  b.ranks.barrier();
}
void go_round_with(const bench& b, gin_mistake which) {
  with_network(
      b,
      [&](const device_comm& comm, gin::context_handle contexts, lsa::signal_handle flags, const halves& where,
          std::uint32_t* out) {
        launch(go_round, bench::config(), comm, contexts, flags, where, out, b.wrong ? which : gin_mistake::none);
      },
      [&](std::uint32_t i) {
        const auto previous = static_cast<std::uint32_t>((b.ranks.rank() + b.ranks.size() - 1) % b.ranks.size());
        return (previous + 1) * 300 + 2 * (i % threads);
      });
}

void gin_no_flush(const bench& b) { go_round_with(b, gin_mistake::no_flush); }
void gin_no_wait(const bench& b) { go_round_with(b, gin_mistake::no_wait); }
void gin_weak_signal(const bench& b) { go_round_with(b, gin_mistake::weak_signal); }
void gin_other_context(const bench& b) { go_round_with(b, gin_mistake::other_context); }
void gin_flush_as_arrival(const bench& b) { go_round_with(b, gin_mistake::flush_as_arrival); }
void gin_no_sync(const bench& b) { go_round_with(b, gin_mistake::no_sync); }
void gin_no_credit(const bench& b) { go_round_with(b, gin_mistake::no_credit); }
void gin_no_get_flush(const bench& b) {
  with_network(
      b,
      [&](const device_comm& comm, gin::context_handle contexts, lsa::signal_handle, const halves& where,
          std::uint32_t* out) {
        launch(fetch, bench::config(), comm, contexts, where, out,
               b.wrong ? gin_mistake::no_get_flush : gin_mistake::none);
      },
      [&](std::uint32_t i) { return static_cast<std::uint32_t>((b.ranks.rank() + 1) % b.ranks.size() + 1) * 100 + i; });
}

void meet_with(const bench& b, gin_mistake which, bool by_get) {
  with_network(
      b,
      [&](const device_comm& comm, gin::context_handle contexts, lsa::signal_handle, const halves& where,
          std::uint32_t* out) {
        launch(meet_and_read, bench::config(), comm, contexts, where, by_get, out, b.wrong ? which : gin_mistake::none);
      },
      [&](std::uint32_t i) {
        const int way = by_get ? 1 : b.ranks.size() - 1;
        const auto from = static_cast<std::uint32_t>((b.ranks.rank() + way) % b.ranks.size());
        return (from + 1) * 300 + 2 * (i % threads);
      });
}
void gin_barrier_no_put_fence(const bench& b) { meet_with(b, gin_mistake::no_put_fence, false); }
void gin_barrier_other_context(const bench& b) { meet_with(b, gin_mistake::other_fence, false); }
void gin_barrier_no_get_fence(const bench& b) { meet_with(b, gin_mistake::no_get_fence, true); }

}  // namespace

inline std::vector<mistake> gin_kernels() {
  return {{"gin_no_flush", gin_no_flush},
          {"gin_no_wait", gin_no_wait},
          {"gin_weak_signal", gin_weak_signal},
          {"gin_other_context", gin_other_context},
          {"gin_flush_as_arrival", gin_flush_as_arrival},
          {"gin_no_sync", gin_no_sync},
          {"gin_no_credit", gin_no_credit},
          {"gin_no_get_flush", gin_no_get_flush},
          {"gin_barrier_no_put_fence", gin_barrier_no_put_fence},
          {"gin_barrier_other_context", gin_barrier_other_context},
          {"gin_barrier_no_get_fence", gin_barrier_no_get_fence}};
}

}  // namespace mistakes
