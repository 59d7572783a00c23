/// \file dispatch.cuh
/// Tokens go to the ranks of their experts; exchange.hpp has the protocol.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/data/copy.cuh>
#include <devcomm/data/pack.cuh>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/gemm/session.cuh>
#include <devcomm/group.cuh>
#include <devcomm/moe/exchange.hpp>
#include <devcomm/moe/exchange_end.cuh>
#include <devcomm/sym_ptr.hpp>

namespace devcomm::moe {

/// What the experts of a rank get: rows of `hidden` elements, those of expert `e` from row `offsets[e]` on, ordered by
/// rank and token.
template <class U>
struct expert_rows {
  U* rows;                  ///< aligned to 16 bytes
  uint32_t capacity;        ///< rows
  uint32_t alignment;       ///< each expert's rows begin at a multiple of it; 1: without gaps
  uint32_t* offsets;        ///< one for each expert of this rank, and one for the end
  uint32_t* counts;         ///< rows of each expert, or null
  float* scales = nullptr;  ///< where tokens have some: as many for each row
};

/// A rank's tokens as experts get them, at the same place of a window on every rank: rows of `hidden` elements, and
/// where they have scales, `scales_per_token` of these for each.
template <class U>
struct token_rows {
  sym_ptr<U> rows;
  sym_ptr<float> scales = {};
  uint32_t scales_per_token = 0;
};

}  // namespace devcomm::moe

namespace devcomm::detail {

/// Bytes of a token in a slot.
template <class U>
DEVCOMM_DEVICE uint32_t slot_row_bytes(const moe::exchange_shape& shape, const moe::token_rows<U>& tokens) {
  return (shape.hidden * static_cast<uint32_t>(sizeof(U)) + tokens.scales_per_token * 4 + 15) / 16 * 16;
}

/// Whether one of a token's `top_k` experts is among those from `first` up to `end`.
DEVCOMM_DEVICE inline bool has_expert(const int32_t* experts, uint32_t top_k, int32_t first, int32_t end) {
  bool is_there = false;
  for (uint32_t k = 0; k < top_k; ++k) is_there = is_there || (experts[k] >= first && experts[k] < end);
  return is_there;
}
/// Whether one of a token's `top_k` experts is on this rank.
DEVCOMM_DEVICE inline bool has_row(const int32_t* row_of, uint32_t top_k) {
  return has_expert(row_of, top_k, 0, 0x7fffffff);
}

/// A block puts the tokens of a chunk to the ranks on other hosts that need them, with the numbers, which are in their
/// slots already.
template <class T, class U>
DEVCOMM_DEVICE void put_tokens(const hosts_end<T>& end, const moe::routing& route, const moe::token_rows<U>& tokens,
                               uint32_t chunk, const moe::token_range& range) {
  if (end.comm().lsa_size == end.comm().size) return;
  const block group;
  const auto& exchange = end.exchange();
  const uint32_t top_k = exchange.shape.top_k, row_bytes = slot_row_bytes(exchange.shape, tokens);
  const auto warp_rank = static_cast<uint32_t>(group.thread_rank()) / arch::warp_threads;
  const auto warps = static_cast<uint32_t>(group.size()) / arch::warp_threads;
  DEVCOMM_ASSERT(group.size() % arch::warp_threads == 0, "tokens are sent to other hosts by whole warps");
  DEVCOMM_ASSERT_OF(row_bytes <= exchange.slots.row_bytes, "bytes", row_bytes, exchange.slots.row_bytes,
                    "a token with its scales is larger than rows between hosts: give moe::exchange its row_bytes");
  const auto experts = static_cast<int32_t>(exchange.local_experts());
  end.for_each_outside(warp_rank, warps, [&](int rank) {
    auto* const row_of = reinterpret_cast<int32_t*>(end.sent(rank, chunk)) + exchange.slots.row_word();
    int32_t rows = 0;
    for (uint32_t begin = range.begin; begin < range.end; begin += arch::warp_threads) {
      const uint32_t t = begin + arch::lane();
      const bool is_needed =
          t < range.end && has_expert(route.experts + uint64_t{t} * top_k, top_k, rank * experts, (rank + 1) * experts);
      const uint32_t needed = arch::ballot(arch::full_mask, is_needed);
      const int32_t place = is_needed ? rows + static_cast<int32_t>(lanes(needed).thread_rank()) : -1;
      if (t < range.end) {
        end.places()[exchange.sent_place(rank, t)] = place;
        row_of[t - range.begin] = place;
      }
      rows += static_cast<int32_t>(detail::count_bits(needed));
    }
  });
  group.sync();
  end.for_each_outside(0, 1, [&](int rank) {
    for (uint32_t t = range.begin + warp_rank; t < range.end; t += warps) {
      const int32_t place = end.sent_place(rank, t);
      if (place < 0) continue;
      char* const row = end.row(end.sent(rank, chunk), place, row_bytes);
      const uint64_t hidden = exchange.shape.hidden;
      copy(warp{}, reinterpret_cast<U*>(row), tokens.rows.local() + t * hidden, hidden);
      if (const uint64_t scales = tokens.scales_per_token; scales != 0)
        copy(warp{}, reinterpret_cast<float*>(row + hidden * sizeof(U)), tokens.scales.local() + t * scales, scales);
    }
  });
  group.sync();
  end.for_each_outside(static_cast<uint32_t>(group.thread_rank()), static_cast<uint32_t>(group.size()), [&](int rank) {
    const uint64_t rows = end.rows_in(exchange.sent_place(rank, range.begin), range);
    end.put(operation::moe_tokens, rank, chunk, exchange.received(end.rank(), chunk), exchange.sent(rank, chunk),
            exchange.slots.rows() + rows * row_bytes);
  });
}

/// Receives the numbers of chunks from other hosts: copies each to where they are of ranks on this one, and sets its
/// flag. A warp for each chunk.
template <class T>
DEVCOMM_DEVICE void receive_numbers(const hosts_end<T>& end, const gemm::flag_access& flags) {
  const warp group;
  const auto& exchange = end.exchange();
  const auto warps = static_cast<uint32_t>(arch::block_threads()) / arch::warp_threads;
  const uint32_t mine = arch::block_rank() + static_cast<uint32_t>(arch::thread_rank()) / arch::warp_threads *
                                                 static_cast<uint32_t>(arch::grid_blocks());
  end.for_each_chunk_outside(mine, arch::grid_blocks() * warps, [&](int rank, uint32_t chunk) {
    status outcome = status::success;
    if (arch::lane() == 0) outcome = end.wait(operation::moe_tokens, rank, chunk, flags.epoch());
    if (group.any(outcome != status::success)) return;
    group.sync();  // a vote orders no memory
    char* const slot = end.received(rank, chunk);
    const chunk_numbers from = end.in_slot(slot);
    const int member = flags.members().rank;
    const moe::token_range range = exchange.range(chunk, from.counts[0]);
    const chunk_numbers to = end.at(member, rank, chunk, range);
    const uint32_t tokens = range.end - range.begin;
    for (uint32_t i = arch::lane(); i <= exchange.local_experts(); i += arch::warp_threads)
      to.counts[i] = from.counts[i];
    for (uint32_t i = arch::lane(); i < tokens * exchange.shape.top_k; i += arch::warp_threads) {
      to.experts[i] = from.experts[i];
      if (from.experts[i] >= 0) to.weights[i] = from.weights[i];
    }
    const auto* const row_of = reinterpret_cast<const int32_t*>(slot) + exchange.slots.row_word();
    for (uint32_t i = arch::lane(); i < tokens; i += arch::warp_threads)
      end.places()[exchange.received_place(rank, range.begin + i)] = row_of[i];
    group.sync();
    if (arch::lane() == 0) flags.set(member, exchange.number(rank, chunk));
  });
}

}  // namespace devcomm::detail

namespace devcomm::moe {

/// Says to all ranks which tokens of this rank go to their experts. The tokens are in place, and stay until this rank's
/// `combine_receive` of the round is over.
///
/// *Collective* over the grid, on every rank of the exchange: a `moe::exchange_handle`, or `moe::over_hosts` for
/// kernels that may have ranks on other hosts. Both halves of a dispatch may be in one launch, and both of a combine;
/// between the two a launch ends, or the grid has a barrier. Grids may differ from rank to rank and from launch to
/// launch. All blocks are resident at once. Over hosts, in whole warps.
template <class Exchange, class U>
DEVCOMM_DEVICE void dispatch_send(const device_comm& comm, const Exchange& exchange_or_both, const routing& route,
                                  const token_rows<U>& tokens) {
  const auto end = detail::end_of(comm, exchange_or_both);
  using end_type = decltype(detail::end_of(comm, exchange_or_both));
  const auto& exchange = end.exchange();
  const gemm::flag_access flags{comm, exchange.flags};
  const block group;
  const uint32_t all_experts = exchange.shape.experts;
  const uint32_t top_k = exchange.shape.top_k;
  const auto experts = static_cast<int32_t>(exchange.local_experts());
  const auto tid = static_cast<uint32_t>(group.thread_rank()), threads = static_cast<uint32_t>(group.size());
  DEVCOMM_ASSERT_OF(route.tokens <= exchange.shape.max_tokens, "tokens", route.tokens, exchange.shape.max_tokens,
                    "more tokens than the exchange was made for: give moe::exchange a larger max_tokens");
  for (uint32_t chunk = arch::block_rank(); chunk < exchange.chunks; chunk += arch::grid_blocks()) {
    const token_range range = exchange.range(chunk, route.tokens);
    const uint64_t first = uint64_t{range.begin} * top_k;
    const uint32_t entries = (range.end - range.begin) * top_k;
    for (uint32_t e = tid; e < all_experts; e += threads) {
      uint32_t count = 0;
      for (uint32_t i = 0; i < entries; ++i) count += route.experts[first + i] == static_cast<int32_t>(e) ? 1 : 0;
      const auto expert = static_cast<int32_t>(e);
      end.to(expert / experts, chunk, range).counts[1 + expert % experts] = count;
    }
    for (int m = static_cast<int>(tid); m < end.ranks(); m += static_cast<int>(threads))
      end.to(m, chunk, range).counts[0] = route.tokens;
    for (uint32_t i = tid; i < entries; i += threads) {
      const int32_t expert = route.experts[first + i];
      const float weight = route.weights[first + i];
      DEVCOMM_ASSERT_OF(expert < static_cast<int32_t>(all_experts), "expert", expert, all_experts,
                        "a token goes to an expert that there is not");
      for (int m = 0; m < end.ranks(); ++m) {
        const detail::chunk_numbers to = end.to(m, chunk, range);
        const bool is_there = expert >= 0 && expert / experts == m;
        to.experts[i] = is_there ? expert % experts : -1;
        if (is_there) to.weights[i] = weight;
      }
    }
    group.sync();
    for (int m = static_cast<int>(tid); m < end.ranks(); m += static_cast<int>(threads))
      if (const int member = end.lsa(m); member >= 0) flags.set(member, exchange.number(end.rank(), chunk));
    if constexpr (end_type::is_over_hosts) detail::put_tokens(end, route, tokens, chunk, range);
  }
}

}  // namespace devcomm::moe

namespace devcomm::detail {

/// Of each expert of this rank, in shared memory.
struct expert_layout {
  uint32_t counts[moe::max_local_experts];       // rows
  uint32_t offsets[moe::max_local_experts + 1];  // the first row; behind the last expert, the end
  uint32_t next_row[moe::max_local_experts];     // the first row of the current chunk
};

/// Calls `use(expert, sum)` with how many rows each expert gets of the chunks `begin` up to `end`: a warp for each
/// expert, of which one lane calls.
template <class T, class Use>
DEVCOMM_DEVICE void sum_counts(const uint32_t* counts, const moe::exchange_handle<T>& exchange, uint32_t begin,
                               uint32_t end, const Use& use) {
  const block group;
  const auto warps = static_cast<uint32_t>(group.size()) / arch::warp_threads;
  const auto warp = static_cast<uint32_t>(group.thread_rank()) / arch::warp_threads;
  for (uint32_t e = warp; e < exchange.local_experts(); e += warps) {
    uint32_t sum = 0;
    DEVCOMM_UNROLL_BY(4)
    for (uint32_t chunk = begin + arch::lane(); chunk < end; chunk += arch::warp_threads)
      sum += counts[exchange.counts_of(chunk) + 1 + e];
    DEVCOMM_UNROLL
    for (uint32_t bit = arch::warp_threads / 2; bit > 0; bit /= 2)
      sum += shuffle(arch::full_mask, sum, arch::lane() ^ bit);
    if (arch::lane() == 0) use(e, sum);
  }
}

/// The first expert whose rows end behind the room for all.
DEVCOMM_DEVICE inline void report_rows(const device_comm& comm, const uint32_t* offsets, uint32_t first_expert,
                                       uint32_t capacity) {
  uint32_t e = 0;
  while (offsets[e + 1] <= capacity) ++e;
  report(reinterpret_cast<resource_header*>(comm.resources.local), status::truncated,
         {operation::moe_rows, first_expert + e, comm.rank, capacity}, offsets[e + 1]);
}

template <class U>
struct token {
  const U* elements;
  const float* scales;
};
/// A token of `rank` that this rank needs: in its window, or in the slot that it came to.
template <class End, class U>
DEVCOMM_DEVICE token<U> token_at(const End& end, const moe::token_rows<U>& tokens, int rank,
                                 [[maybe_unused]] uint32_t chunk, uint32_t t) {
  const moe::exchange_shape& shape = end.exchange().shape;
  const int member = end.lsa(rank);
  if constexpr (End::is_over_hosts) {
    if (member < 0) {
      const char* const row =
          end.row(end.received(rank, chunk), end.received_place(rank, t), slot_row_bytes(shape, tokens));
      return {reinterpret_cast<const U*>(row), reinterpret_cast<const float*>(row + shape.hidden * sizeof(U))};
    }
  }
  return {tokens.rows.lsa(member) + uint64_t{t} * shape.hidden,
          tokens.scales_per_token == 0 ? nullptr : tokens.scales.lsa(member) + uint64_t{t} * tokens.scales_per_token};
}

/// A warp stores a token to all its rows here: `packs` packs and `scales` scales, of the `top_k` entries of `row_of`.
template <class U>
DEVCOMM_DEVICE void copy_token(const token<U>& from, uint32_t packs, uint32_t scales, const moe::expert_rows<U>& to,
                               const int32_t* row_of, uint32_t top_k) {
  DEVCOMM_UNROLL_BY(4)
  for (uint32_t p = arch::lane(); p < packs; p += arch::warp_threads) {
    const pack<U> value = load_pack(from.elements + uint64_t{p} * pack<U>::size);
    for (uint32_t k = 0; k < top_k; ++k)
      if (row_of[k] >= 0) store_pack(to.rows + (static_cast<uint64_t>(row_of[k]) * packs + p) * pack<U>::size, value);
  }
  for (uint32_t i = arch::lane(); i < scales; i += arch::warp_threads) {
    const float value = from.scales[i];
    for (uint32_t k = 0; k < top_k; ++k)
      if (row_of[k] >= 0) to.scales[static_cast<uint64_t>(row_of[k]) * scales + i] = value;
  }
}

}  // namespace devcomm::detail

namespace devcomm::moe {

/// Waits for all ranks' tokens, and gives the experts of this rank their rows. A token that several of them need is
/// loaded once from its rank.
///
/// *Collective* as `dispatch_send`, in whole warps.
///
/// Where the rows do not fit into `to.capacity`, none is stored, and the outcome is `status::truncated`: a failure,
/// which ends the waits of this rank, so that a block that still waits gets `status::aborted`, and names the first
/// expert without room. `exchange_handle::max_rows`, and an `alignment` for each expert, always fit.
///
/// *Failure*: as for `lsa::barrier_session`; the record names the chunk and its rank. No row is stored then.
template <class Exchange, class U>
DEVCOMM_DEVICE status dispatch_receive(const device_comm& comm, const Exchange& exchange_or_both,
                                       const token_rows<U>& tokens, const expert_rows<U>& to) {
  const auto end = detail::end_of(comm, exchange_or_both);
  using end_type = decltype(detail::end_of(comm, exchange_or_both));
  const auto& exchange = end.exchange();
  const gemm::flag_access flags{comm, exchange.flags};
  const block group;
  const auto tid = static_cast<uint32_t>(group.thread_rank()), threads = static_cast<uint32_t>(group.size());
  DEVCOMM_ASSERT(threads % arch::warp_threads == 0, "tokens are received by whole warps");
  DEVCOMM_ASSERT(to.alignment > 0, "an expert's rows begin at a multiple of the alignment; 1 for none");
  DEVCOMM_ASSERT(exchange.shape.hidden * sizeof(U) % 16 == 0, "a token fills whole packs of 16 bytes");
  if constexpr (end_type::is_over_hosts) detail::receive_numbers(end, flags);
  if (const status outcome = detail::wait_for_chunks(flags, end, operation::moe_tokens, 0); outcome != status::success)
    return outcome;

  const uint32_t experts = exchange.local_experts();
  const uint32_t* const counts = comm.buffer(exchange.counts).local();
  auto& layout = *arch::shared_array<detail::expert_layout, detail::expert_layout, 1>();
  detail::sum_counts(counts, exchange, 0, exchange.all_chunks(),
                     [&](uint32_t e, uint32_t sum) { layout.counts[e] = sum; });
  group.sync();
  for (uint32_t e = tid; e <= experts; e += threads) {
    uint32_t begin = 0;
    for (uint32_t other = 0; other < e; ++other)
      begin += (layout.counts[other] + to.alignment - 1) / to.alignment * to.alignment;
    layout.offsets[e] = begin;
    if (e < experts) layout.next_row[e] = begin;
    if (arch::block_rank() != 0) continue;
    to.offsets[e] = begin;
    if (e < experts && to.counts != nullptr) to.counts[e] = layout.counts[e];
  }
  group.sync();
  if (layout.offsets[experts] > to.capacity) {
    if (arch::block_rank() == 0 && tid == 0)
      detail::report_rows(comm, layout.offsets, static_cast<uint32_t>(end.rank()) * experts, to.capacity);
    return status::truncated;
  }

  const uint32_t top_k = exchange.shape.top_k;
  const int32_t* const all_entries = comm.buffer(exchange.experts).local();
  int32_t* const all_rows = comm.buffer(exchange.row_of).local();
  uint32_t counted = 0;
  for (uint32_t chunk = arch::block_rank(); chunk < exchange.all_chunks(); chunk += arch::grid_blocks()) {
    detail::sum_counts(counts, exchange, counted, chunk, [&](uint32_t e, uint32_t sum) { layout.next_row[e] += sum; });
    counted = chunk;
    group.sync();
    const auto source = static_cast<int>(chunk / exchange.chunks);
    const token_range range = exchange.range(chunk % exchange.chunks, counts[exchange.counts_of(chunk)]);
    const uint32_t entries = (range.end - range.begin) * top_k;
    const uint64_t first = exchange.entry(source, range.begin);
    for (uint32_t e = tid; e < experts; e += threads) {
      uint32_t row = layout.next_row[e];
      for (uint32_t i = 0; i < entries; ++i)
        if (all_entries[first + i] == static_cast<int32_t>(e)) all_rows[first + i] = static_cast<int32_t>(row++);
    }
    for (uint32_t i = tid; i < entries; i += threads)
      if (all_entries[first + i] < 0) all_rows[first + i] = -1;
    group.sync();
    for (uint32_t t = range.begin + tid / arch::warp_threads; t < range.end; t += threads / arch::warp_threads)
      if (const int32_t* const row_of = all_rows + exchange.entry(source, t); detail::has_row(row_of, top_k))
        detail::copy_token(detail::token_at(end, tokens, source, chunk % exchange.chunks, t),
                           exchange.shape.hidden / pack<U>::size, tokens.scales_per_token, to, row_of, top_k);
    group.sync();
  }
  return status::success;
}

}  // namespace devcomm::moe
