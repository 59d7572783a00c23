/// \file order_kernels.cuh
/// Accesses that nothing orders: orders too weak, fences and barriers left out, barriers of others.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

using board = sym_ptr<std::uint32_t>;

/// The word of the next rank's neighboring thread in this block.
__device__ std::uint32_t next_word(const device_comm& comm, board words) {
  const unsigned neighbor = blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x;
  return words.lsa((comm.rank + 1) % comm.lsa_size)[neighbor];
}
/// What `next_word` finds on rank `rank` in round `round`, of the value that `value` makes.
std::uint32_t next_value(const bench& b, std::uint32_t round, std::uint32_t i) {
  const std::uint32_t next = static_cast<std::uint32_t>((b.ranks.rank() + 1) % b.ranks.size());
  return (round * 16 + next) * 256 + i / threads * threads + (i + 1) % threads;
}
__device__ std::uint32_t value(const device_comm& comm, std::uint32_t round) {
  return (round * 16 + static_cast<std::uint32_t>(comm.rank)) * 256 + blockIdx.x * blockDim.x + threadIdx.x;
}

/// Fill, meet, read the next rank, meet.
__global__ void exchange(device_comm comm, board words, std::uint32_t* out, memory_order before) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[mine] = value(comm, 0);
  barrier.sync(before);
  out[mine] = next_word(comm, words);
  barrier.sync(memory_order::acq_rel);
}
void exchange_with(const bench& b, memory_order before) {
  const output out(words);
  launch(exchange, bench::config(), b.comm(), b.board, out.get(), before);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, 0, i); });
}
void release_weakened(const bench& b) { exchange_with(b, b.wrong ? memory_order::acquire : memory_order::acq_rel); }
void launch_order(const bench& b) { exchange_with(b, b.wrong ? lsa::at_launch : memory_order::acq_rel); }
void acquire_weakened(const bench& b) { exchange_with(b, b.wrong ? memory_order::release : memory_order::acq_rel); }
void both_weakened(const bench& b) { exchange_with(b, b.wrong ? memory_order::relaxed : memory_order::acq_rel); }

/// This rank's epochs are 0 again before the second launch, so that the arrivals of the first end its waits.
void epochs_reset(const bench& b) {
  const output out(words);
  launch(exchange, bench::config(), b.comm(), b.board, out.get(), memory_order::acq_rel);
  b.finish();
  if (b.wrong) {
    const resource_handle barriers = b.comm().lsa_barriers;
    for (unsigned index = 0; index < blocks; ++index) {
      const auto epoch = barriers.offset + lsa::barrier_layout{barriers.count, barriers.members}.epoch(index);
      check_cuda(cudaMemsetAsync(b.comm().resources.local + epoch, 0, 4, cudaStreamPerThread), "cudaMemsetAsync");
    }
    test::finish("cudaMemsetAsync");
  }
  b.ranks.barrier();
  launch(exchange, bench::config(), b.comm(), b.board, out.get(), memory_order::acq_rel);
  b.finish();
}

/// A word and then a flag to the next rank, by CUDA's own relaxed atomics and fences. The flag of each block
/// lies behind the words.
__global__ void message(device_comm comm, board words, std::uint32_t* out, bool fence_before, bool fence_after) {
  if (threadIdx.x != 0) return;
  const int next = (comm.rank + 1) % comm.lsa_size;
  words.lsa(next)[blockIdx.x] = 70 + blockIdx.x;
  if (fence_before) __threadfence_system();
  atomicExch_system(words.lsa(next) + mistakes::words + blockIdx.x, 1u);
  while (atomicAdd_system(words.local() + mistakes::words + blockIdx.x, 0u) == 0) {
  }
  if (fence_after) __threadfence_system();
  out[blockIdx.x] = words.local()[blockIdx.x];
}
void send_message(const bench& b, bool fence_before, bool fence_after) {
  const output out(blocks);
  launch(message, bench::config(), b.comm(), b.board, out.get(), fence_before, fence_after);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 70 + i; });
}
void missing_release_fence(const bench& b) { send_message(b, !b.wrong, true); }
void missing_acquire_fence(const bench& b) { send_message(b, true, !b.wrong); }

/// The same with CUDA's scopes: a fence and atomics of the device reach no other GPU.
__global__ void message_at(device_comm comm, board words, std::uint32_t* out, bool device_fence, bool device_atomic) {
  if (threadIdx.x != 0) return;
  const int next = (comm.rank + 1) % comm.lsa_size;
  std::uint32_t* const flag = words.lsa(next) + mistakes::words + blockIdx.x;
  words.lsa(next)[blockIdx.x] = 70 + blockIdx.x;
  if (device_fence) {
    __threadfence();
  } else {
    __threadfence_system();
  }
  if (device_atomic) {
    atomicExch(flag, 1u);
  } else {
    atomicExch_system(flag, 1u);
  }
  while (atomicAdd_system(words.local() + mistakes::words + blockIdx.x, 0u) == 0) {
  }
  __threadfence_system();
  out[blockIdx.x] = words.local()[blockIdx.x];
}
void send_message_at(const bench& b, bool device_fence, bool device_atomic) {
  const output out(blocks);
  launch(message_at, bench::config(), b.comm(), b.board, out.get(), device_fence, device_atomic);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 70 + i; });
}
void narrow_fence(const bench& b) { send_message_at(b, b.wrong, false); }
void narrow_atomic(const bench& b) { send_message_at(b, false, b.wrong); }

/// A word from one block to the next of its own rank, with fences of a block or of the device.
__global__ void pass_to_block(board words, std::uint32_t* out, bool wrong) {
  if (threadIdx.x != 0) return;
  const unsigned next = (blockIdx.x + 1) % gridDim.x;
  std::uint32_t* const flags = words.local() + mistakes::words;
  words.local()[next] = 70 + next;
  wrong ? __threadfence_block() : __threadfence();
  atomicExch(flags + next, 1u);
  while (atomicAdd(flags + blockIdx.x, 0u) == 0) {
  }
  wrong ? __threadfence_block() : __threadfence();
  out[blockIdx.x] = words.local()[blockIdx.x];
}
void block_fence(const bench& b) {
  const output out(blocks);
  launch(pass_to_block, bench::config(), b.board, out.get(), b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 70 + i; });
}

/// What the next rank has written meanwhile, through a cache that nobody keeps up to date.
__global__ void exchange_cached(device_comm comm, board words, std::uint32_t* out, bool cached) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned neighbor = blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[mine] = value(comm, 0);
  barrier.sync();
  const std::uint32_t* const theirs = words.lsa((comm.rank + 1) % comm.lsa_size) + neighbor;
  out[mine] = cached ? __ldg(theirs) : *theirs;
  barrier.sync();
}
void cached_read(const bench& b) {
  const output out(words);
  launch(exchange_cached, bench::config(), b.comm(), b.board, out.get(), b.wrong);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, 0, i); });
}

/// A chain of launches, each of which may start before the one before has ended, and adds to what that has left.
__global__ void add_after(std::uint32_t* out, bool wrong) {
  allow_dependent_launch();
  if (!wrong) wait_for_prior_launch();
  out[blockIdx.x * blockDim.x + threadIdx.x] += 1;
  if (wrong) wait_for_prior_launch();
}
void early_dependent(const bench& b) {
  constexpr std::uint32_t launches = 4;
  const output out(words);
  check_cuda(cudaMemsetAsync(out.get(), 0, words * sizeof(std::uint32_t), cudaStreamPerThread), "cudaMemsetAsync");
  launch_config config = bench::config();
  config.programmatic_dependent = true;
  for (std::uint32_t n = 0; n < launches; ++n) launch(add_after, config, out.get(), b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t) { return launches; });
}

/// Words that are their own flags, from each rank to each, in two rows that take turns: who has read a word clears it,
/// and a fence keeps the zero before what the sender writes there two rounds later.
__global__ void words_as_flags(device_comm comm, board words, std::uint32_t* out, std::uint32_t rounds, bool wrong) {
  if (threadIdx.x != 0) return;
  using arch::load;
  using arch::store;
  constexpr auto relaxed = memory_order::relaxed;
  const team ranks = comm.lsa();
  const auto place = [&](std::uint32_t round, int sender) {
    return (round % 2 * static_cast<unsigned>(ranks.size) + static_cast<unsigned>(sender)) * gridDim.x + blockIdx.x;
  };
  std::uint32_t sum = 0;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (!wrong) __threadfence_system();
    for (int member = 0; member < ranks.size; ++member)
      store<relaxed, scope::system>(words.lsa(member) + place(round, ranks.rank), round);
    for (int member = 0; member < ranks.size; ++member) {
      std::uint32_t* const word = words.local() + place(round, member);
      std::uint32_t got = 0;
      while ((got = load<relaxed, scope::system>(word)) == 0) {
      }
      sum += got;
      store<relaxed, scope::system>(word, 0u);
    }
  }
  out[blockIdx.x] = sum;
}
void clear_without_fence(const bench& b) {
  constexpr std::uint32_t rounds = 6;
  const output out(blocks);
  launch(words_as_flags, bench::config(), b.comm(), b.board, out.get(), rounds, b.wrong);
  b.finish();
  const auto size = static_cast<std::uint32_t>(b.ranks.size());
  b.expect(out, [size](std::uint32_t) { return size * rounds * (rounds + 1) / 2; });
}

/// Each rank sends a value to all, epoch after epoch, each thread by slots of its own. What is sent two epochs later
/// overwrites the slot: that it has been read, a sender knows only by what it receives.
__global__ void values_to_all(device_comm comm, lsa::ll_slots_handle slots, std::uint32_t* out, std::uint32_t epochs,
                              bool wrong) {
  lsa::ll_all_to_all_session session{block{}, comm, slots, blockIdx.x};
  const auto slot = [](int sender) { return static_cast<std::uint32_t>(sender) * blockDim.x + threadIdx.x; };
  const int self = session.members().rank;
  std::uint32_t sum = 0;
  for (std::uint32_t epoch = 1; epoch <= epochs; ++epoch) {
    if (!wrong || self == 0) session.broadcast(slot(self), epoch);
    for (int sender = 0; sender < (wrong ? 1 : session.members().size); ++sender) {
      const auto got = session.receive<std::uint32_t>(slot(sender), sender);
      if (sender == 0) sum += got;
    }
    session.end_epoch();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
void slots_one_way(const bench& b) {
  constexpr std::uint32_t epochs = 6;
  requirements needs = b.ranks.requirements();
  const auto slots =
      needs.add(lsa::ll_slots{b.ranks.lsa(), blocks, static_cast<std::uint32_t>(b.ranks.size()) * threads, 4});
  const auto device = b.ranks.create_device_comm(needs);
  const output out(words);
  launch(values_to_all, bench::config(), device.get(), slots, out.get(), epochs, b.wrong);
  b.finish();
  device.check();
  b.expect(out, [](std::uint32_t) { return epochs * (epochs + 1) / 2; });
}

/// Messages to the next rank as packets, a value and its flag, each by a thread. Flags have two values only, which take
/// turns, and every second message is short: what it leaves out has the flag of the next long one, unless who has read
/// a packet zeroes it.
__global__ void packets_of_messages(device_comm comm, board packets, std::uint32_t* out, std::uint32_t messages,
                                    bool wrong) {
  using arch::load;
  using arch::store;
  constexpr auto relaxed = memory_order::relaxed;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  const sym_ptr<std::uint64_t> packet = packets.as<std::uint64_t>() + static_cast<std::int64_t>(mine);
  std::uint32_t sum = 0;
  for (std::uint32_t n = 1; n <= messages; ++n) {
    const std::uint64_t flag = 1 + n % 2;
    if (threadIdx.x < (n % 2 != 0 ? blockDim.x : 4)) {
      store<relaxed, scope::system>(packet.lsa((comm.rank + 1) % comm.lsa_size), std::uint64_t{n} << 32 | flag);
      std::uint64_t got = 0;
      while (((got = load<relaxed, scope::system>(packet.local())) & 3) != flag) {
      }
      sum += static_cast<std::uint32_t>(got >> 32);
      if (!wrong) store<relaxed, scope::system>(packet.local(), std::uint64_t{0});
    }
    barrier.sync();  // the packets have been read
  }
  out[mine] = sum;
}
void packets_not_zeroed(const bench& b) {
  constexpr std::uint32_t messages = 5;
  const output out(words);
  launch(packets_of_messages, bench::config(), b.comm(), b.board, out.get(), messages, b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return i % threads < 4 ? 1 + 2 + 3 + 4 + 5u : 1 + 3 + 5u; });
}

/// Words and then a signal to the next rank, round after round; who has read them gives a credit back. The signals of
/// each block lie behind the words.
__global__ void stream_words(device_comm comm, board words, std::uint32_t* out, std::uint32_t rounds,
                             memory_order released, memory_order acquired, bool credits) {
  const team ranks = comm.lsa();
  const int next = (ranks.rank + 1) % ranks.size;
  const int previous = (ranks.rank + ranks.size - 1) % ranks.size;
  const sym_ptr<std::uint64_t> flags = (words + mistakes::words).as<std::uint64_t>() + std::int64_t{2} * blockIdx.x;
  lsa::signal_session data{block{}, comm, flags};
  lsa::signal_session credit{block{}, comm, flags + 1};
  const board mine = words + static_cast<std::int64_t>(blockIdx.x) * blockDim.x;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    mine.lsa(next)[threadIdx.x] = (round + 1) * 100 + threadIdx.x;
    data.add(next, 1, released);
    data.take(previous, 1, acquired);
    out[(round * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = mine.local()[blockDim.x - 1 - threadIdx.x];
    credit.add(previous, 1);
    if (credits) credit.take(next);
  }
}
void stream_with(const bench& b, memory_order released, memory_order acquired, bool credits) {
  constexpr std::uint32_t rounds = 3;
  const output out(rounds * words);
  launch(stream_words, bench::config(), b.comm(), b.board, out.get(), rounds, released, acquired, credits);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return (i / words + 1) * 100 + threads - 1 - i % threads; });
}
void signal_not_released(const bench& b) {
  stream_with(b, b.wrong ? memory_order::relaxed : memory_order::release, memory_order::acquire, true);
}
void signal_not_acquired(const bench& b) {
  stream_with(b, memory_order::release, b.wrong ? memory_order::relaxed : memory_order::acquire, true);
}
void missing_credit(const bench& b) { stream_with(b, memory_order::release, memory_order::acquire, !b.wrong); }

/// A number and then a flag to the next rank, by signals of each block: both are atomic, so that no order between them
/// is no data race.
__global__ void signal_number(device_comm comm, board words, std::uint32_t* out, memory_order released,
                              memory_order acquired) {
  if (threadIdx.x != 0) return;
  const team ranks = comm.lsa();
  const int next = (ranks.rank + 1) % ranks.size;
  const int previous = (ranks.rank + ranks.size - 1) % ranks.size;
  const sym_ptr<std::uint64_t> signals = words.as<std::uint64_t>() + std::int64_t{2} * blockIdx.x;
  lsa::signal_session number{thread{}, comm, signals};
  lsa::signal_session flag{thread{}, comm, signals + 1};
  number.store(next, 70 + blockIdx.x, memory_order::relaxed);
  flag.store(next, 1, released);
  flag.wait(previous, lsa::equal_to{1}, acquired);
  out[blockIdx.x] = static_cast<std::uint32_t>(number.load(memory_order::relaxed));
}
void signal_with(const bench& b, memory_order released, memory_order acquired) {
  const output out(blocks);
  launch(signal_number, bench::config(), b.comm(), b.board, out.get(), released, acquired);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return 70 + i; });
}
void relaxed_message(const bench& b) {
  signal_with(b, b.wrong ? memory_order::relaxed : memory_order::release,
              b.wrong ? memory_order::relaxed : memory_order::acquire);
}
void relaxed_reader(const bench& b) {
  signal_with(b, memory_order::release, b.wrong ? memory_order::relaxed : memory_order::acquire);
}

/// Threads read what other threads of the block put into shared memory.
__global__ void reverse_block(std::uint32_t* out, bool wrong) {
  __shared__ std::uint32_t staged[threads];
  staged[threadIdx.x] = threadIdx.x;
  if (!wrong) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}
void missing_block_sync(const bench& b) {
  const output out(words);
  launch(reverse_block, bench::config(), out.get(), b.wrong);
  b.finish();
  b.expect(out, [](std::uint32_t i) { return threads - 1 - i % threads; });
}

/// One thread synchronizes with the peers for its block, without a block barrier before.
__global__ void meet_alone(device_comm comm, board words, std::uint32_t* out, bool wrong) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  words.local()[mine] = value(comm, 0);
  if (!wrong) __syncthreads();
  if (threadIdx.x == 0) lsa::barrier_session{thread{}, comm, blockIdx.x}.sync();
  __syncthreads();
  out[mine] = next_word(comm, words);
  __syncthreads();
  if (threadIdx.x == 0) lsa::barrier_session{thread{}, comm, blockIdx.x}.sync();
}
void missing_group_sync(const bench& b) {
  const output out(words);
  launch(meet_alone, bench::config(), b.comm(), b.board, out.get(), b.wrong);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, 0, i); });
}

/// The words are filled again; wrong without a barrier that orders that after the peers' reads.
__global__ void refill(device_comm comm, board words, std::uint32_t* out, std::uint32_t rounds, bool waits,
                       memory_order order) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  for (std::uint32_t round = 0; round < rounds; ++round) {
    words.local()[mine] = value(comm, round);
    barrier.sync();
    out[round * mistakes::words + mine] = next_word(comm, words);
    if (waits) barrier.sync(order);
  }
  barrier.sync();
}
void refill_with(const bench& b, bool waits, memory_order order) {
  constexpr std::uint32_t rounds = 3;
  const output out(rounds * words);
  launch(refill, bench::config(), b.comm(), b.board, out.get(), rounds, waits, order);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, i / words, i % words); });
}
void buffer_reuse(const bench& b) { refill_with(b, !b.wrong, memory_order::acq_rel); }
void second_barrier_weakened(const bench& b) {
  refill_with(b, true, b.wrong ? memory_order::relaxed : memory_order::acq_rel);
}

/// The kernel ends while peers may still read this rank's words, which the next launch fills again.
__global__ void leave_early(device_comm comm, board words, std::uint32_t* out, std::uint32_t round, bool wrong) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  words.local()[mine] = value(comm, round);
  barrier.sync();
  out[round * mistakes::words + mine] = next_word(comm, words);
  if (!wrong) barrier.sync();
}
template <class Wrong>
void launch_in_a_row(const bench& b, Wrong wrong) {
  constexpr std::uint32_t launches = 3;
  const output out(launches * words);
  for (std::uint32_t round = 0; round < launches; ++round) {
    launch(leave_early, bench::config(), b.comm(), b.board, out.get(), round, wrong(round));
  }
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, i / words, i % words); });
}
void missing_final_barrier(const bench& b) {
  launch_in_a_row(b, [&](std::uint32_t) { return b.wrong; });
}
/// The arrivals of its next launch are taken for those that it left out.
void one_rank_leaves(const bench& b) {
  launch_in_a_row(b, [&](std::uint32_t round) { return b.wrong && b.ranks.rank() == 1 && round == 0; });
}

/// Blocks of one rank use each other's barriers.
__global__ void meet_elsewhere(device_comm comm, board words, std::uint32_t* out, bool wrong) {
  const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned index = wrong && comm.rank == 1 ? (blockIdx.x + 1) % gridDim.x : blockIdx.x;
  lsa::barrier_session barrier{block{}, comm, index};
  words.local()[mine] = value(comm, 0);
  barrier.sync();
  out[mine] = next_word(comm, words);
  barrier.sync();
}
void wrong_barrier_index(const bench& b) {
  const output out(words);
  launch(meet_elsewhere, bench::config(), b.comm(), b.board, out.get(), b.wrong);
  b.finish();
  b.expect(out, [&](std::uint32_t i) { return next_value(b, 0, i); });
}

/// The host reads a result in pinned memory while the kernel may still write it.
__global__ void write_result(std::uint32_t* result) { result[blockIdx.x * blockDim.x + threadIdx.x] = 5; }
void missing_host_wait(const bench& b) {
  void* pinned = nullptr;
  check_cuda(cudaMallocHost(&pinned, words * sizeof(std::uint32_t)), "cudaMallocHost");
  const auto* result = static_cast<const std::uint32_t*>(pinned);
  launch(write_result, bench::config(), static_cast<std::uint32_t*>(pinned));
  if (!b.wrong) b.finish();
  const std::uint32_t found = result[words - 1];
  b.finish();
  check_cuda(cudaFreeHost(pinned), "cudaFreeHost");
  test::require(found == 5, "wrong result: the host found " + std::to_string(found) + ", expected 5");
}

std::vector<mistake> order_kernels() {
  return {{"release_weakened", release_weakened},
          {"launch_order", launch_order},
          {"acquire_weakened", acquire_weakened},
          {"both_weakened", both_weakened},
          {"second_barrier_weakened", second_barrier_weakened},
          {"epochs_reset", epochs_reset},
          {"missing_release_fence", missing_release_fence},
          {"missing_acquire_fence", missing_acquire_fence},
          {"narrow_fence", narrow_fence},
          {"narrow_atomic", narrow_atomic},
          {"block_fence", block_fence},
          {"cached_read", cached_read},
          {"early_dependent", early_dependent},
          {"clear_without_fence", clear_without_fence},
          {"slots_one_way", slots_one_way},
          {"packets_not_zeroed", packets_not_zeroed},
          {"signal_not_released", signal_not_released},
          {"signal_not_acquired", signal_not_acquired},
          {"relaxed_message", relaxed_message},
          {"relaxed_reader", relaxed_reader},
          {"missing_credit", missing_credit},
          {"missing_block_sync", missing_block_sync},
          {"missing_group_sync", missing_group_sync},
          {"buffer_reuse", buffer_reuse},
          {"missing_final_barrier", missing_final_barrier},
          {"one_rank_leaves", one_rank_leaves},
          {"wrong_barrier_index", wrong_barrier_index},
          {"missing_host_wait", missing_host_wait}};
}

}  // namespace
}  // namespace mistakes
