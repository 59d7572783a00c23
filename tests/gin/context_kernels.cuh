// Kernels that tests of the network share: ranks in one process and in several.
#pragma once

#include <devcomm/devcomm.cuh>

#include "support/ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gin_test {

using namespace devcomm;

constexpr unsigned threads = 64;

inline launch_config blocks_of(unsigned blocks) {
  return {.grid = blocks, .block = threads, .stream = cudaStreamPerThread};
}

/// What byte `i` of a message from `rank` is in `round`.
__host__ __device__ constexpr unsigned char byte_of(int rank, std::uint32_t round, std::uint64_t i) {
  return static_cast<unsigned char>(static_cast<std::uint64_t>(rank) * 41 + round * 13u + i * 7 + i / 251);
}

/// Counts, over all threads, the bytes of a message that are wrong.
__device__ inline std::uint32_t wrong_bytes(const char* at, std::uint64_t bytes, int rank, std::uint32_t round) {
  std::uint32_t wrong = 0;
  for (std::uint64_t i = threadIdx.x; i < bytes; i += blockDim.x)
    wrong += static_cast<unsigned char>(at[i]) != byte_of(rank, round, i) ? 1u : 0u;
  return wrong;
}
__device__ inline void write_bytes(char* at, std::uint64_t bytes, int rank, std::uint32_t round) {
  for (std::uint64_t i = threadIdx.x; i < bytes; i += blockDim.x) at[i] = static_cast<char>(byte_of(rank, round, i));
}

struct message {
  std::uint64_t bytes;
  std::uint64_t source;       // offset in the block's part of the window
  std::uint64_t destination;  // likewise
};

/// Each block has a context, and in the windows a part of `part` bytes. Around the ring: a put with a signal to the
/// next rank; once its own has come, a credit back, without which the next round does not begin.
[[maybe_unused]] static __global__ void shift(device_comm comm, gin::context_handle contexts, sym_ptr<char> in,
                                              sym_ptr<char> out, std::uint64_t part, message what, std::uint32_t first,
                                              std::uint32_t rounds, std::uint32_t* wrong) {
  gin::context net{block{}, comm, contexts, blockIdx.x};
  const int next = (comm.rank + 1) % comm.size;
  const int previous = (comm.rank + comm.size - 1) % comm.size;
  const auto own = static_cast<std::int64_t>(blockIdx.x * part);
  const sym_ptr<char> source = in + own + static_cast<std::int64_t>(what.source);
  const sym_ptr<char> destination = out + own + static_cast<std::int64_t>(what.destination);
  for (std::uint32_t round = first; round < first + rounds; ++round) {
    write_bytes(source.local(), what.bytes, comm.rank, round);
    net.put(next, destination, source, what.bytes, gin::signal_add{0, 1, gin::strength::weak});
    net.wait_signal(0, round + 1);
    wrong[blockIdx.x * threads + threadIdx.x] += wrong_bytes(destination.local(), what.bytes, previous, round);
    net.signal(previous, gin::signal_add{1});
    net.flush();  // the source is written again
    net.wait_signal(1, round + 1);
  }
}

inline void require_none(const test::device_array<std::uint32_t>& wrong, const std::string& where) {
  const std::vector<std::uint32_t> values = wrong.read();
  for (std::size_t i = 0; i < values.size(); ++i)
    test::require(values[i] == 0, [&] { return where + ": thread " + std::to_string(i) + " found wrong values"; });
}

/// Many puts to each rank and one strong signal; posted by one thread a message, in a queue that is much too short.
static __global__ void scatter_and_signal(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint32_t> in,
                                          sym_ptr<std::uint32_t> out, std::uint32_t messages, std::uint32_t* wrong) {
  for (std::uint32_t i = threadIdx.x; i < messages; i += blockDim.x)
    in.local()[i] = 1000u * static_cast<std::uint32_t>(comm.rank) + i;
  __syncthreads();
  gin::context net{block{}, comm, contexts, 0};
  for (int peer = 0; peer < comm.size; ++peer) {
    {
      gin::context mine{thread{}, comm, contexts, 0};
      for (std::uint32_t i = threadIdx.x; i < messages; i += blockDim.x) {
        const auto at = static_cast<std::int64_t>(i);
        mine.put(peer, out + (static_cast<std::int64_t>(comm.rank) * messages + at), in + at, 1);
      }
    }
    net.signal(peer, gin::signal_add{0});
  }
  net.wait_signal(0, static_cast<std::uint64_t>(comm.size));
  for (std::uint32_t i = threadIdx.x; i < messages * static_cast<std::uint32_t>(comm.size); i += blockDim.x)
    wrong[threadIdx.x] += out.local()[i] != 1000u * (i / messages) + i % messages ? 1u : 0u;
}

static __global__ void get_from_all(device_comm comm, gin::context_handle contexts, sym_ptr<char> in, sym_ptr<char> out,
                                    std::uint64_t bytes, bool by_counter, std::uint32_t* wrong) {
  gin::context net{block{}, comm, contexts, 0};
  write_bytes(in.local(), bytes, comm.rank, 0);
  for (int peer = 0; peer < comm.size; ++peer) net.signal(peer, gin::signal_add{0});
  net.wait_signal(0, static_cast<std::uint64_t>(comm.size));  // all have written
  for (int peer = 0; peer < comm.size; ++peer) {
    const sym_ptr<char> mine = out + static_cast<std::int64_t>(static_cast<std::uint64_t>(peer) * bytes);
    if (by_counter) {
      net.get(peer, mine, in, bytes, gin::counter_increment{1});
    } else {
      net.get(peer, mine, in, bytes);
    }
  }
  if (by_counter) {
    net.wait_counter(1, static_cast<std::uint64_t>(comm.size));
  } else {
    for (int peer = 0; peer < comm.size; ++peer) net.flush(peer);
  }
  for (int peer = 0; peer < comm.size; ++peer)
    wrong[threadIdx.x] += wrong_bytes(out.local() + static_cast<std::uint64_t>(peer) * bytes, bytes, peer, 0);
}

/// Values of all sizes, signals that are set, added to, read and reset. `wrong` counts by thread.
static __global__ void set_and_reset(device_comm comm, gin::context_handle contexts, sym_ptr<std::uint64_t> words,
                                     std::uint32_t* wrong) {
  gin::context net{block{}, comm, contexts, 0};
  const int next = (comm.rank + 1) % comm.size;
  const int previous = (comm.rank + comm.size - 1) % comm.size;
  const auto from = static_cast<std::uint64_t>(previous);
  const auto me = static_cast<std::uint64_t>(comm.rank);
  const auto expect = [&](bool right) { wrong[threadIdx.x] += right ? 0u : 1u; };

  net.put_value(next, words, me + 11);
  net.put_value(next, sym_ptr<std::uint32_t>{words.memory, words.offset + 8}, static_cast<std::uint32_t>(me + 22));
  net.put_value(next, sym_ptr<char>{words.memory, words.offset + 13}, static_cast<char>(me + 33));
  net.signal(next, gin::signal_set{0, 500});
  net.wait_signal(0, 500);
  expect(net.read_signal(0) == 500);
  expect(words.local()[0] == from + 11);
  expect(reinterpret_cast<const std::uint32_t*>(words.local())[2] == static_cast<std::uint32_t>(from + 22));
  expect(reinterpret_cast<const char*>(words.local())[12] == 0);
  expect(reinterpret_cast<const char*>(words.local())[13] == static_cast<char>(from + 33));

  net.reset_signal(0);
  expect(net.read_signal(0) == 0);
  net.signal(previous, gin::signal_add{1});  // the next rank may go on
  net.wait_signal(1, 1);
  net.signal(next, gin::signal_set{0, 7});
  net.wait_signal(0, 7);
  expect(net.read_signal(0) == 7);

  // A signal may go down, and a wait knows it by what it is now.
  net.signal(previous, gin::signal_add{1});
  net.wait_signal(1, 2);
  net.signal(next, gin::signal_set{0, 2});
  net.signal(next, gin::signal_add{3});
  net.wait_signal(3, 1);
  expect(net.read_signal(0) == 2);
  expect(net.wait_signal_for(0, 5, microseconds(2)) == status::timeout);

  // Strong signals of one context to one peer take effect in order: the last value stays.
  for (std::uint64_t value = 1; value <= 20; ++value) net.signal(next, gin::signal_set{2, value});
  net.signal(next, gin::signal_add{3});
  net.wait_signal(3, 2);
  expect(net.read_signal(2) == 20);
}

/// Puts by all contexts but the last, many at a time, a fence, and a signal by the last, or a flag where the peer has
/// one for this rank: what was put is there. Twice, with a credit.
static __global__ void scatter_and_fence(device_comm comm, gin::context_handle contexts, lsa::signal_handle flags,
                                         sym_ptr<char> in, sym_ptr<char> out, std::uint64_t bytes,
                                         std::uint32_t* wrong) {
  constexpr std::uint64_t piece = 20;
  gin::context net{block{}, comm, contexts, contexts.count - 1};
  lsa::signal_session flag{block{}, comm, flags, 0};
  const bool by_flag = comm.lsa_size == comm.size && comm.size > 1;
  const int next = (comm.rank + 1) % comm.size;
  const int previous = (comm.rank + comm.size - 1) % comm.size;
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i + 1 < contexts.count; ++i) {
      const auto part = static_cast<std::int64_t>(i * bytes);
      write_bytes(in.local() + part, bytes, comm.rank, round + i);
      gin::context other{block{}, comm, contexts, i};
      for (std::uint64_t at = 0; at < bytes; at += piece) {
        const std::int64_t from = part + static_cast<std::int64_t>(at);
        other.put(next, out + from, in + from, bytes - at < piece ? bytes - at : piece);
      }
    }
    net.fence(next);
    if (by_flag) {
      flag.add(next, 1);
      flag.take(previous);
    } else {
      net.signal(next, gin::signal_add{0, 1, gin::strength::weak});
      net.wait_signal(0, round + 1);
    }
    for (std::uint32_t i = 0; i + 1 < contexts.count; ++i)
      wrong[threadIdx.x] += wrong_bytes(out.local() + i * bytes, bytes, previous, round + i);
    net.signal(previous, gin::signal_add{1});
    net.wait_signal(1, round + 1);
  }
}

[[maybe_unused]] static __global__ void put_to_next(device_comm comm, gin::context_handle contexts, sym_ptr<char> in,
                                                    sym_ptr<char> out, status* outcome) {
  gin::context net{block{}, comm, contexts, 0};
  net.put((comm.rank + 1) % comm.size, out, in, 64, gin::signal_add{0});
  net.wait_signal(0, 1);
  outcome[threadIdx.x] = net.agree();
}

// What holds for each rank of a job, however its ranks reach each other. Each is called by all ranks.

/// A strong signal has all earlier puts of its context to that peer before it, also where the queue is full.
inline void require_strong_signals(host::communicator& comm) {
  constexpr std::uint32_t messages = 96;
  auto needs = comm.requirements();
  const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = 1, .signals = 1, .depth = 4});
  const auto device_comm = comm.create_device_comm(needs);
  const auto in = comm.allocate(messages * sizeof(std::uint32_t));
  const auto out = comm.allocate(static_cast<std::size_t>(comm.size()) * messages * sizeof(std::uint32_t));
  const test::device_array<std::uint32_t> wrong(threads);
  launch(scatter_and_signal, blocks_of(1), device_comm.get(), contexts, in.pointer<std::uint32_t>(),
         out.pointer<std::uint32_t>(), messages, wrong.get());
  test::finish("scatter_and_signal");
  device_comm.check();
  require_none(wrong, "rank " + std::to_string(comm.rank()));
  comm.barrier();
}

/// What a get of so many bytes brought is there after a flush of its peer, or by its counter.
inline void require_gets(host::communicator& comm, std::uint64_t bytes, bool by_counter) {
  const std::uint64_t room = bytes == 0 ? 1 : bytes;
  auto needs = comm.requirements();
  const auto contexts = needs.add(gin::contexts{comm.world(), 1, 1, 2});
  const auto device_comm = comm.create_device_comm(needs);
  const auto in = comm.allocate(room);
  const auto out = comm.allocate(room * static_cast<std::uint64_t>(comm.size()));
  const test::device_array<std::uint32_t> wrong(threads);
  launch(get_from_all, blocks_of(1), device_comm.get(), contexts, in.pointer<char>(), out.pointer<char>(), bytes,
         by_counter, wrong.get());
  test::finish("get_from_all");
  device_comm.check();
  require_none(wrong, "rank " + std::to_string(comm.rank()));
  comm.barrier();
}

/// Values carry their bytes and no more, and signals can be set, added to and reset.
inline void require_values(host::communicator& comm) {
  auto needs = comm.requirements();
  const auto contexts = needs.add(gin::contexts{comm.world(), 1, 4});
  const auto device_comm = comm.create_device_comm(needs);
  const auto words = comm.allocate(4 * sizeof(std::uint64_t));
  const test::device_array<std::uint32_t> wrong(threads);
  launch(set_and_reset, blocks_of(1), device_comm.get(), contexts, words.pointer<std::uint64_t>(), wrong.get());
  test::finish("set_and_reset");
  device_comm.check();
  require_none(wrong, "rank " + std::to_string(comm.rank()));
  comm.barrier();
}

/// A fence orders the puts of all contexts to a peer before its later signals.
inline void require_fences(host::communicator& comm) {
  constexpr std::uint32_t count = 4;
  constexpr std::uint64_t bytes = 333;
  auto needs = comm.requirements();
  const auto contexts = needs.add(gin::contexts{comm.world(), count, 2});
  const auto flags = needs.add(lsa::signals{comm.lsa(), 1});
  const auto device_comm = comm.create_device_comm(needs);
  const auto in = comm.allocate(count * bytes);
  const auto out = comm.allocate(count * bytes);
  const test::device_array<std::uint32_t> wrong(threads);
  launch(scatter_and_fence, blocks_of(1), device_comm.get(), contexts, flags, in.pointer<char>(), out.pointer<char>(),
         bytes, wrong.get());
  test::finish("scatter_and_fence");
  device_comm.check();
  require_none(wrong, "rank " + std::to_string(comm.rank()));
  comm.barrier();
}

}  // namespace gin_test
