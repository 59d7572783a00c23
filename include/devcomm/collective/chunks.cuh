/// \file chunks.cuh
/// Reductions in chunks, pipelined through scratch memory of the peers: large vectors at the bandwidth of the links,
/// with few blocks. `all_reduce_two_shot_chunked` and `reduce_scatter_chunked` are made of it.
///
/// Protocol (NCCL's Simple protocol moves data in steps through a peer's buffer in the same way, but in a ring). A
/// round moves one chunk from each rank to each. In step `k` a group sends its inputs of round `k`, reduces round `k -
/// 1` and sends the results, and copies the results of round `k - 2`; a barrier ends the step. Data carries no flags,
/// and stores go to one peer after another, a chunk each, which is what the links take best. A reduce-scatter keeps the
/// results.
///
/// *Why two halves of scratch are enough*. Chunks of round `k` use the memory of round `k - 2`. Inputs of round `k - 2`
/// were read in step `k - 1`, and the barrier at its end comes before inputs of round `k` are sent. Results of round
/// `k - 2` were read in step `k`, and those of round `k` are sent in step `k + 1`. The next call sends its inputs after
/// the barrier that follows the last reduction, and its results after a barrier of its own. So inputs and results need
/// separate memory, and the next launch may divide the buffers among groups in another way.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/collective/detail/packs.cuh>
#include <devcomm/collective/vectors.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/trace_span.cuh>
#include <devcomm/lsa/barrier_session.cuh>
#include <devcomm/requirements.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/team.hpp>

namespace devcomm::collective {

/// Two buffers that all groups of a kernel share. Kernels that follow in the stream can use them again.
struct chunk_buffers {
  buffer_handle<char> inputs;
  buffer_handle<char> results;

  /// Packs of the largest chunks that `groups` groups have room for, a multiple of `granularity`: 0 if the buffers have
  /// less than `32 * granularity * groups * ranks` bytes, or for a granularity of 0. *Requires* at least one group.
  DEVCOMM_HOST_DEVICE constexpr uint32_t packs_for(uint64_t groups, int ranks, uint32_t granularity = 1) const {
    const uint64_t packs = inputs.count / (2 * 16 * groups * static_cast<uint64_t>(ranks));
    if (granularity == 0) return 0;
    return (packs < 0xffffffffu ? static_cast<uint32_t>(packs) : 0xffffffffu) / granularity * granularity;
  }
};

/// Asks for chunk buffers, of `bytes` bytes each, on every rank:
/// `const auto buffers = needs.add(collective::chunk_buffer_bytes{32 << 20})`.
struct chunk_buffer_bytes {
  uint64_t bytes;

  DEVCOMM_HOST_DEVICE constexpr chunk_buffers add_to(requirements& needs) const {
    const auto inputs = needs.add_buffer<char>(bytes);
    return {inputs, needs.add_buffer<char>(bytes)};
  }
};

/// The scratch memory of one group: two chunks for each rank in each buffer, of up to `packs` packs of 16 bytes.
struct chunk_scratch {
  sym_ptr<char> inputs;
  sym_ptr<char> results;
  uint32_t packs;
  bool takes_first;          ///< receives before it sends; set for every other group, so that the links are never idle
  uint32_t granularity = 1;  ///< `packs` is a multiple of it, so that one rank reduces whole rows

  /// That of group `group`, where all groups have chunks of `packs` packs; see `chunk_buffers::packs_for`. *Requires*
  /// the same `packs` for all groups and calls of a launch; the next launch may have others.
  DEVCOMM_DEVICE static chunk_scratch of_group(const device_comm& comm, const chunk_buffers& buffers, uint32_t packs,
                                               uint32_t group, uint32_t granularity = 1) {
    const uint64_t bytes = uint64_t{2 * 16} * static_cast<uint32_t>(comm.lsa_size) * packs;
    DEVCOMM_ASSERT(bytes * (group + 1) <= buffers.inputs.count, "the group's chunks are past the end of the buffers");
    const auto skipped = static_cast<int64_t>(bytes * group);
    return {comm.buffer(buffers.inputs) + skipped, comm.buffer(buffers.results) + skipped, packs, group % 2 != 0,
            granularity};
  }
};

}  // namespace devcomm::collective

namespace devcomm::detail {

/// What a round takes of a vector: `count` packs from `begin` on, of which rank `r` owns those from `r * shard` on.
struct chunk_round {
  uint64_t begin;
  uint32_t count;
  uint32_t shard;
  uint32_t half;  // of the scratch, 0 or 1

  DEVCOMM_DEVICE uint64_t first(int owner) const { return begin + uint64_t{static_cast<uint32_t>(owner)} * shard; }
  DEVCOMM_DEVICE uint32_t owned(int owner) const {
    const uint32_t before = static_cast<uint32_t>(owner) * shard;
    if (before >= count) return 0;
    return shard < count - before ? shard : count - before;
  }
};

/// The rounds of a group's slice of a vector.
struct chunk_rounds {
  const collective::chunk_scratch& scratch;
  const collective::slice& packs;
  uint32_t members;

  DEVCOMM_DEVICE uint64_t packs_of_round() const { return uint64_t{scratch.packs} * members; }
  DEVCOMM_DEVICE uint32_t number() const {
    return static_cast<uint32_t>((packs.size() + packs_of_round() - 1) / packs_of_round());
  }
  DEVCOMM_DEVICE chunk_round at(uint32_t k) const {
    const uint64_t begin = packs.begin + k * packs_of_round();
    const uint64_t left = packs.end - begin;
    const auto count = static_cast<uint32_t>(left < packs_of_round() ? left : packs_of_round());
    const uint32_t rows = members * scratch.granularity;
    return {begin, count, (count + rows - 1) / rows * scratch.granularity, k % 2};
  }
};

/// Whether `scratch` holds whole rows, one at least. Checked kernels also compare its team with the barrier's.
DEVCOMM_DEVICE inline bool has_whole_rows(const collective::chunk_scratch& scratch,
                                          [[maybe_unused]] const team& members) {
  const bool is_whole = scratch.packs > 0 && scratch.granularity > 0 && scratch.packs % scratch.granularity == 0;
  DEVCOMM_ASSERT(is_whole, "chunks hold a whole number of rows, one at least: give packs_for the granularity");
  DEVCOMM_ASSERT(spans_lsa_team(members, scratch.inputs.memory), "chunks need a barrier of the whole LSA team");
  return is_whole;
}

/// Calls `store(i, load(i))` for the calling thread's part of `count`, with `Unroll` loads in flight.
template <int Unroll, class Group, class Load, class Store>
DEVCOMM_DEVICE void move_packs(const Group& group, uint32_t count, const Load& load, const Store& store) {
  using value_type = decltype(load(uint32_t{}));
  const auto threads = static_cast<uint32_t>(group.size());
  auto i = static_cast<uint32_t>(group.thread_rank());
  for (; i + (Unroll - 1) * threads < count; i += Unroll * threads) {
    value_type values[Unroll];
    DEVCOMM_UNROLL
    for (uint32_t u = 0; u < Unroll; ++u) values[u] = load(i + u * threads);
    DEVCOMM_UNROLL
    for (uint32_t u = 0; u < Unroll; ++u) store(i + u * threads, values[u]);
  }
  for (; i < count; i += threads) store(i, load(i));
}

/// An all-reduce, whose results go to all ranks, or a reduce-scatter, where each keeps its own: rank `r` then owns the
/// packs that `produce(r, i)` returns.
template <bool IsAllReduce, class T, class Group, class Produce, class Consume, class Operator>
struct chunked_reduction {
  lsa::barrier_session<Group>& barrier;
  team ranks;
  const collective::chunk_scratch& scratch;
  collective::slice packs;
  const Produce& produce;
  const Consume& consume;
  const Operator& op;

  using round = chunk_round;

  template <int Ranks>
  DEVCOMM_DEVICE void run() const {
    const chunk_rounds round_of{scratch, packs, IsAllReduce ? static_cast<uint32_t>(ranks.size) : 1};
    const uint32_t rounds = round_of.number();
    if (rounds == 0) return;
    if (barrier.agree() != status::success) return;  // a late peer may still read its chunks
    for (uint32_t step = 0;; ++step) {
      if (scratch.takes_first && step >= 2) receive(round_of.at(step - 2));
      if (!scratch.takes_first && step < rounds) send(round_of.at(step));
      if (step >= 1 && step <= rounds) reduce<Ranks>(round_of.at(step - 1));
      if (scratch.takes_first && step < rounds) send(round_of.at(step));
      if (!scratch.takes_first && step >= 2) receive(round_of.at(step - 2));
      if (step == rounds + 1) return;
      barrier.sync(memory_order::acq_rel);
      if (barrier.agree() != status::success) return;
    }
  }

 private:
  static constexpr int loads_at_once = sizeof(T) > 4 ? 6 : 8;  // as registers allow for 512 threads
  static constexpr bool into_windows = has_store<const Consume, T>;
  /// Results of two ranks go to the other from registers. With more they are kept in this rank's own chunk, and go to
  /// one peer after another from there.
  template <int Ranks>
  static constexpr bool keeps_results = Ranks != 2 && IsAllReduce;

  /// Packs of a round that rank `owner` reduces, and the first of them.
  DEVCOMM_DEVICE static uint32_t length_of(const round& r, int owner) { return IsAllReduce ? r.owned(owner) : r.count; }
  DEVCOMM_DEVICE static uint64_t begin_of(const round& r, int owner) { return IsAllReduce ? r.first(owner) : r.begin; }
  DEVCOMM_DEVICE pack<T> input([[maybe_unused]] int owner, uint64_t i) const {
    if constexpr (IsAllReduce) {
      return produce(i);
    } else {
      return produce(owner, i);
    }
  }

  /// What rank `from` has sent in a round to the rank whose memory starts at `memory`.
  DEVCOMM_DEVICE T* chunk(char* memory, const round& r, int from) const {
    const uint32_t index = r.half * static_cast<uint32_t>(ranks.size) + static_cast<uint32_t>(from);
    return reinterpret_cast<T*>(memory + uint64_t{index} * scratch.packs * 16);
  }
  /// The peer that is `step` ranks on: all ranks send to different ones at a time.
  DEVCOMM_DEVICE int peer(int step) const {
    const int rank = ranks.rank + step;
    return rank < ranks.size ? rank : rank - ranks.size;
  }

  DEVCOMM_DEVICE void send(const round& r) const {
    const trace_span phase = barrier.trace({"send", span_kind::copy});
    for (int step = 1; step < ranks.size; ++step) {
      const int owner = peer(step);
      const uint64_t begin = begin_of(r, owner);
      T* const there = chunk(scratch.inputs.lsa(owner), r, ranks.rank);
      move_packs<loads_at_once>(
          barrier.group(), length_of(r, owner), [&](uint32_t i) { return input(owner, begin + i); },
          [&](uint32_t i, const pack<T>& value) { store_pack(there + uint64_t{i} * pack<T>::size, value); });
    }
  }

  template <int Ranks>
  DEVCOMM_DEVICE void reduce(const round& r) const {
    const trace_span phase = barrier.trace({"reduce", span_kind::reduction});
    constexpr uint32_t unroll = Ranks == 2 ? 4 : Ranks == 4 ? 2 : 1;
    const auto threads = static_cast<uint32_t>(barrier.group().size());
    const uint32_t count = length_of(r, ranks.rank);
    auto i = static_cast<uint32_t>(barrier.group().thread_rank());
    for (; i + (unroll - 1) * threads < count; i += unroll * threads) reduce_packs<Ranks, unroll>(r, i, threads);
    for (; i < count; i += threads) reduce_packs<Ranks, 1>(r, i, threads);
    if constexpr (keeps_results<Ranks>) send_results(r);
  }

  /// Pack `i` of this rank's shard, and `Unroll - 1` more, each `stride` packs on.
  template <int Ranks, int Unroll>
  DEVCOMM_DEVICE void reduce_packs(const round& r, uint32_t i, uint32_t stride) const {
    using accumulator = accumulator_t<T>;
    constexpr int at_once = members_at_once<Ranks>;
    const int end = Ranks != 0 ? Ranks : ranks.size;
    const uint64_t first_own = begin_of(r, ranks.rank) + i;
    const T* const theirs = chunk(scratch.inputs.local(), r, 0) + uint64_t{i} * pack<T>::size;
    const uint64_t to_next = uint64_t{scratch.packs} * pack<T>::size;
    accumulator total[Unroll][pack<T>::size];
    DEVCOMM_UNROLL_BY(1)
    for (int first = 0; first < end; first += at_once) {
      arch::vec16 values[at_once][Unroll];  // words: the compiler would split packs where two kinds of loads merge
      DEVCOMM_UNROLL
      for (int m = 0; m < at_once; ++m) {  // issue all loads before the first is used
        if (first + m >= end) break;
        DEVCOMM_UNROLL
        for (uint32_t u = 0; u < Unroll; ++u) {
          values[m][u] = first + m == ranks.rank ? to_vec16(input(ranks.rank, first_own + u * stride))
                                                 : arch::load16(theirs + static_cast<uint64_t>(first + m) * to_next +
                                                                uint64_t{u * stride} * pack<T>::size);
        }
      }
      DEVCOMM_UNROLL
      for (int m = 0; m < at_once; ++m) {
        if (first + m >= end) break;
        DEVCOMM_UNROLL
        for (int u = 0; u < Unroll; ++u) {
          const pack<T> value = to_pack<T>(values[m][u]);
          DEVCOMM_UNROLL
          for (int e = 0; e < pack<T>::size; ++e) {
            const accumulator element = to_accumulator<T>(value[e], op);
            total[u][e] = first + m == 0 ? element : op(total[u][e], element);
          }
        }
      }
    }
    pack<T> results[Unroll];
    DEVCOMM_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) results[u][e] = from_accumulator<T>(total[u][e], end, op);
    }
    if constexpr (has_map<const Consume, T>) {
      DEVCOMM_UNROLL
      for (uint32_t u = 0; u < Unroll; ++u) results[u] = consume.map(first_own + u * stride, results[u]);
    }
    if constexpr (keeps_results<Ranks>) {
      T* const kept = chunk(scratch.results.local(), r, ranks.rank) + uint64_t{i} * pack<T>::size;
      DEVCOMM_UNROLL
      for (uint32_t u = 0; u < Unroll; ++u) store_pack(kept + uint64_t{u * stride} * pack<T>::size, results[u]);
    } else if constexpr (IsAllReduce) {
      const result_at there{*this, r, peer(1)};
      DEVCOMM_UNROLL
      for (uint32_t u = 0; u < Unroll; ++u) there(i + u * stride, results[u]);
    }
    DEVCOMM_UNROLL
    for (uint32_t u = 0; u < Unroll; ++u) consume(first_own + u * stride, results[u]);
  }

  /// Where a peer takes this rank's results of a round.
  class result_at {
   public:
    DEVCOMM_DEVICE result_at(const chunked_reduction& all, const round& r, int peer)
        : consume_(all.consume),
          peer_(peer),
          first_(begin_of(r, all.ranks.rank)),
          chunk_(into_windows ? nullptr : all.chunk(all.scratch.results.lsa(peer), r, all.ranks.rank)) {}
    DEVCOMM_DEVICE void operator()(uint32_t i, const pack<T>& result) const {
      if constexpr (into_windows) {
        consume_.store(peer_, first_ + i, result);
      } else {
        store_pack(chunk_ + uint64_t{i} * pack<T>::size, result);
      }
    }

   private:
    const Consume& consume_;
    int peer_;
    uint64_t first_;
    T* chunk_;
  };

  /// Each thread sends what it has kept.
  DEVCOMM_DEVICE void send_results(const round& r) const {
    const T* const kept = chunk(scratch.results.local(), r, ranks.rank);
    for (int step = 1; step < ranks.size; ++step)
      move_packs<loads_at_once>(
          barrier.group(), length_of(r, ranks.rank),
          [&](uint32_t i) { return load_pack(kept + uint64_t{i} * pack<T>::size); }, result_at{*this, r, peer(step)});
  }

  DEVCOMM_DEVICE void receive(const round& r) const {
    if constexpr (IsAllReduce && !into_windows) copy_results(r);  // in windows they are there
    if constexpr (has_complete<const Consume>) {
      if constexpr (!into_windows) barrier.group().sync();
      consume.complete({r.begin, r.begin + r.count});
    }
  }

  DEVCOMM_DEVICE void copy_results(const round& r) const {
    const trace_span phase = barrier.trace({"receive", span_kind::copy});
    for (int step = 1; step < ranks.size; ++step) {
      const int owner = peer(step);
      const uint64_t begin = begin_of(r, owner);
      const T* const here = chunk(scratch.results.local(), r, owner);
      move_packs<loads_at_once>(
          barrier.group(), r.owned(owner), [&](uint32_t i) { return load_pack(here + uint64_t{i} * pack<T>::size); },
          [&](uint32_t i, const pack<T>& value) { consume(begin + i, value); });
    }
  }
};

}  // namespace devcomm::detail
