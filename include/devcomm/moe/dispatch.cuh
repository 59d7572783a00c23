/// \file dispatch.cuh
/// Tokens go to the ranks of their experts; exchange.hpp has the protocol.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/detail/agree.cuh>
#include <devcomm/detail/report.cuh>
#include <devcomm/gemm/session.cuh>
#include <devcomm/group.cuh>
#include <devcomm/moe/exchange.hpp>
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

/// Says to all ranks which tokens of this rank go to their experts. The tokens are in place, see `token_rows`, and stay
/// until this rank's `combine_receive` of the round is over.
///
/// *Collective* over the grid, on every rank of the LSA team. Both halves of a dispatch may be in one launch, and both
/// of a combine; between the two a launch ends, or the grid has a barrier. Grids may differ from rank to rank and from
/// launch to launch. All blocks are resident at once.
template <class T>
DEVCOMM_DEVICE void dispatch_send(const device_comm& comm, const exchange_handle<T>& exchange, const routing& route) {
  const gemm::flag_access flags{comm, exchange.flags};
  const block group;
  const uint32_t all_experts = exchange.shape.experts;
  const uint32_t top_k = exchange.shape.top_k;
  const team& ranks = flags.members();
  const auto experts = static_cast<int32_t>(exchange.local_experts());
  const auto tid = static_cast<uint32_t>(group.thread_rank()), threads = static_cast<uint32_t>(group.size());
  DEVCOMM_ASSERT_OF(route.tokens <= exchange.shape.max_tokens, "tokens", route.tokens, exchange.shape.max_tokens,
                    "more tokens than the exchange was made for: give moe::exchange a larger max_tokens");
  const sym_ptr<int32_t> to_experts = comm.buffer(exchange.experts);
  const sym_ptr<float> to_weights = comm.buffer(exchange.weights);
  const sym_ptr<uint32_t> to_counts = comm.buffer(exchange.counts);
  for (uint32_t chunk = arch::block_rank(); chunk < exchange.chunks; chunk += arch::grid_blocks()) {
    const token_range range = exchange.range(chunk, route.tokens);
    const uint64_t first = uint64_t{range.begin} * top_k;
    const uint32_t entries = (range.end - range.begin) * top_k;
    const uint64_t row = exchange.counts_of(exchange.number(ranks.rank, chunk));
    for (uint32_t e = tid; e < all_experts; e += threads) {
      uint32_t count = 0;
      for (uint32_t i = 0; i < entries; ++i) count += route.experts[first + i] == static_cast<int32_t>(e) ? 1 : 0;
      const auto expert = static_cast<int32_t>(e);
      to_counts.lsa(expert / experts)[row + 1 + static_cast<uint32_t>(expert % experts)] = count;
    }
    for (int m = static_cast<int>(tid); m < ranks.size; m += static_cast<int>(threads))
      to_counts.lsa(m)[row] = route.tokens;
    const uint64_t mine = exchange.entry(ranks.rank, range.begin);
    for (uint32_t i = tid; i < entries; i += threads) {
      const int32_t expert = route.experts[first + i];
      const float weight = route.weights[first + i];
      DEVCOMM_ASSERT_OF(expert < static_cast<int32_t>(all_experts), "expert", expert, all_experts,
                        "a token goes to an expert that there is not");
      for (int m = 0; m < ranks.size; ++m) {
        const bool is_there = expert >= 0 && expert / experts == m;
        to_experts.lsa(m)[mine + i] = is_there ? expert % experts : exchange_handle<T>::none;
        if (is_there) to_weights.lsa(m)[mine + i] = weight;
      }
    }
    group.sync();
    for (int m = static_cast<int>(tid); m < ranks.size; m += static_cast<int>(threads))
      flags.set(m, exchange.number(ranks.rank, chunk));
  }
}

}  // namespace devcomm::moe

namespace devcomm::detail {

/// Waits for the chunks of all ranks, each thread for some; `first` is the flag of the first one.
template <class T>
DEVCOMM_DEVICE status wait_for_chunks(const gemm::flag_access& flags, const moe::exchange_handle<T>& exchange,
                                      operation what, uint32_t first) {
  const block group;
  status mine = status::success;
  for (auto i = static_cast<uint32_t>(group.thread_rank()); i < exchange.all_chunks() && mine == status::success;
       i += static_cast<uint32_t>(group.size()))
    mine = flags.wait(what, i % exchange.chunks, first + i, static_cast<int>(i / exchange.chunks));
  return agree(group, mine, status::aborted, nullptr);
}

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
DEVCOMM_DEVICE inline void report_rows(const device_comm& comm, const uint32_t* offsets, uint32_t experts,
                                       uint32_t capacity) {
  uint32_t e = 0;
  while (offsets[e + 1] <= capacity) ++e;
  const auto first = static_cast<uint32_t>(comm.lsa_rank()) * experts;
  report(reinterpret_cast<resource_header*>(comm.resources.local), status::truncated,
         {operation::moe_rows, first + e, comm.rank, capacity}, offsets[e + 1]);
}

/// A warp stores a token to all its rows here: `packs` packs and `scales` scales, of the `top_k` entries of `row_of`.
template <class U>
DEVCOMM_DEVICE void copy_token(const U* token, const float* token_scales, uint32_t packs, uint32_t scales,
                               const moe::expert_rows<U>& to, const int32_t* row_of, uint32_t top_k) {
  bool is_needed = false;
  for (uint32_t k = 0; k < top_k; ++k) is_needed = is_needed || row_of[k] >= 0;
  if (!is_needed) return;
  DEVCOMM_UNROLL_BY(4)
  for (uint32_t p = arch::lane(); p < packs; p += arch::warp_threads) {
    const pack<U> value = load_pack(token + uint64_t{p} * pack<U>::size);
    for (uint32_t k = 0; k < top_k; ++k)
      if (row_of[k] >= 0) store_pack(to.rows + (static_cast<uint64_t>(row_of[k]) * packs + p) * pack<U>::size, value);
  }
  for (uint32_t i = arch::lane(); i < scales; i += arch::warp_threads) {
    const float value = token_scales[i];
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
/// which ends the waits of this rank and names the first expert without room. `exchange_handle::max_rows`, and an
/// `alignment` for each expert, always fit.
///
/// *Failure*: as for `lsa::barrier_session`; the record names the chunk and its rank. No row is stored then.
template <class T, class U>
DEVCOMM_DEVICE status dispatch_receive(const device_comm& comm, const exchange_handle<T>& exchange,
                                       const token_rows<U>& tokens, const expert_rows<U>& to) {
  const gemm::flag_access flags{comm, exchange.flags};
  const block group;
  const auto tid = static_cast<uint32_t>(group.thread_rank()), threads = static_cast<uint32_t>(group.size());
  DEVCOMM_ASSERT(threads % arch::warp_threads == 0, "tokens are received by whole warps");
  DEVCOMM_ASSERT(to.alignment > 0, "an expert's rows begin at a multiple of the alignment; 1 for none");
  DEVCOMM_ASSERT(exchange.shape.hidden * sizeof(U) % 16 == 0, "a token fills whole packs of 16 bytes");
  if (const status outcome = detail::wait_for_chunks(flags, exchange, operation::moe_tokens, 0);
      outcome != status::success)
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
    if (arch::block_rank() == 0 && tid == 0) detail::report_rows(comm, layout.offsets, experts, to.capacity);
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
      if (all_entries[first + i] < 0) all_rows[first + i] = exchange_handle<T>::none;
    group.sync();
    const uint32_t packs = exchange.shape.hidden / pack<U>::size;
    for (uint32_t t = range.begin + tid / arch::warp_threads; t < range.end; t += threads / arch::warp_threads)
      detail::copy_token(
          tokens.rows.lsa(source) + uint64_t{t} * exchange.shape.hidden,
          tokens.scales_per_token == 0 ? nullptr : tokens.scales.lsa(source) + uint64_t{t} * tokens.scales_per_token,
          packs, tokens.scales_per_token, to, all_rows + exchange.entry(source, t), top_k);
    group.sync();
  }
  return status::success;
}

}  // namespace devcomm::moe
