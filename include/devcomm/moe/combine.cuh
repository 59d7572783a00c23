/// \file combine.cuh
/// What experts made of tokens goes back; exchange.hpp has the protocol.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/gemm/session.cuh>
#include <devcomm/group.cuh>
#include <devcomm/moe/dispatch.cuh>
#include <devcomm/moe/exchange.hpp>
#include <devcomm/moe/exchange_end.cuh>

namespace devcomm::detail {

/// `sum += weight * value`, element by element.
template <class T>
DEVCOMM_DEVICE void add_scaled(float (&sum)[pack<T>::size], const pack<T>& value, float weight) {
  DEVCOMM_UNROLL
  for (int e = 0; e < pack<T>::size; ++e) sum[e] += weight * static_cast<float>(value[e]);
}

/// The sum of a token in a slot.
template <class T>
DEVCOMM_DEVICE T* sum_in(const hosts_end<T>& end, char* slot, int32_t place) {
  return reinterpret_cast<T*>(end.row(slot, place, end.exchange().shape.hidden * static_cast<uint32_t>(sizeof(T))));
}
/// Puts a chunk's sums back to where its tokens came from, as one thread.
template <class T>
DEVCOMM_DEVICE void put_sums(const hosts_end<T>& end, int source, uint32_t chunk, const moe::token_range& range) {
  const auto& exchange = end.exchange();
  const uint64_t rows = end.rows_in(exchange.received_place(source, range.begin), range);
  end.put(operation::moe_sums, source, chunk, exchange.sent(end.rank(), chunk) + exchange.slots.rows(),
          exchange.received(source, chunk) + exchange.slots.rows(), rows * exchange.shape.hidden * sizeof(T));
}
/// Sets the flags of sums that have come from other hosts, each thread some.
template <class T>
DEVCOMM_DEVICE void receive_sums(const hosts_end<T>& end, const gemm::flag_access& flags) {
  const auto grid = static_cast<uint32_t>(arch::grid_blocks());
  const uint32_t mine = arch::block_rank() + static_cast<uint32_t>(arch::thread_rank()) * grid;
  end.for_each_chunk_outside(mine, grid * static_cast<uint32_t>(arch::block_threads()), [&](int rank, uint32_t chunk) {
    if (end.wait(operation::moe_sums, rank, chunk, flags.epoch()) == status::success)
      flags.set(flags.members().rank, end.exchange().sum_flag(rank, chunk));
  });
}

}  // namespace devcomm::detail

namespace devcomm::moe {

/// Sums each token's rows of this rank, times its weights, in the order of its routing, in `float`, rounds once, and
/// stores that to the token's rank. `outputs` has the rows as `dispatch_receive` numbered them, aligned to 16 bytes.
///
/// *Collective* as `dispatch_send`, in whole warps. After a failure of this rank nothing is announced.
template <class Exchange, class T>
DEVCOMM_DEVICE void combine_send(const device_comm& comm, const Exchange& exchange_or_both, const T* outputs) {
  const auto end = detail::end_of(comm, exchange_or_both);
  using end_type = decltype(detail::end_of(comm, exchange_or_both));
  const exchange_handle<T>& exchange = end.exchange();
  const gemm::flag_access flags{comm, exchange.flags};
  const block group;
  const auto tid = static_cast<uint32_t>(group.thread_rank()), threads = static_cast<uint32_t>(group.size());
  DEVCOMM_ASSERT(threads % arch::warp_threads == 0, "tokens are sent back by whole warps");
  const uint32_t top_k = exchange.shape.top_k, packs = exchange.shape.hidden / pack<T>::size;
  const uint32_t* const counts = comm.buffer(exchange.counts).local();
  const int32_t* const all_rows = comm.buffer(exchange.row_of).local();
  const float* const all_weights = comm.buffer(exchange.weights).local();
  const sym_ptr<T> sums = comm.buffer(exchange.sums);
  for (uint32_t chunk = arch::block_rank(); chunk < exchange.all_chunks(); chunk += arch::grid_blocks()) {
    const auto source = static_cast<int>(chunk / exchange.chunks);
    const uint32_t of_source = chunk % exchange.chunks;
    const int member = end.lsa(source);
    const token_range range = exchange.range(of_source, counts[exchange.counts_of(chunk)]);
    for (uint32_t t = range.begin + tid / arch::warp_threads; t < range.end && !flags.is_dead();
         t += threads / arch::warp_threads) {
      const int32_t* const row_of = all_rows + exchange.entry(source, t);
      const float* const weights = all_weights + exchange.entry(source, t);
      if (!detail::has_row(row_of, top_k)) continue;
      T* to = nullptr;
      if constexpr (end_type::is_over_hosts)
        if (member < 0) to = detail::sum_in(end, end.received(source, of_source), end.received_place(source, t));
      if (to == nullptr) to = sums.lsa(member) + exchange.sum_of(flags.members().rank, t);
      DEVCOMM_UNROLL_BY(2)
      for (uint32_t p = arch::lane(); p < packs; p += arch::warp_threads) {
        float sum[pack<T>::size] = {};
        for (uint32_t k = 0; k < top_k; ++k)
          if (row_of[k] >= 0)
            detail::add_scaled<T>(
                sum, load_pack(outputs + (static_cast<uint64_t>(row_of[k]) * packs + p) * pack<T>::size), weights[k]);
        detail::store_run(to + uint64_t{p} * pack<T>::size, sum);
      }
    }
    group.sync();
    if (tid != 0) continue;
    if (member >= 0) flags.set(member, exchange.sum_flag(end.rank(), of_source));
    if constexpr (end_type::is_over_hosts)
      if (member < 0) detail::put_sums(end, source, of_source, range);
  }
}

/// Waits for what all ranks' experts made of this rank's tokens, and sums it, in the order of the ranks, in `float`,
/// rounded once: row `t` of `output`, of `hidden` elements, aligned to 16 bytes. A token without experts becomes zeros.
/// Ends the round.
///
/// *Collective* as `dispatch_send`, with the same `route`, in whole warps. *Failure*: as for `lsa::barrier_session`.
template <class Exchange, class T>
DEVCOMM_DEVICE status combine_receive(const device_comm& comm, const Exchange& exchange_or_both, const routing& route,
                                      T* output) {
  const auto end = detail::end_of(comm, exchange_or_both);
  using end_type = decltype(detail::end_of(comm, exchange_or_both));
  const exchange_handle<T>& exchange = end.exchange();
  const block group;
  const gemm::session round{group, comm, exchange.flags};
  const auto tid = static_cast<uint32_t>(group.thread_rank()), threads = static_cast<uint32_t>(group.size());
  DEVCOMM_ASSERT(threads % arch::warp_threads == 0, "tokens are received by whole warps");
  // Also blocks without tokens wait: where the launch ends, all ranks have read what this one sent.
  if constexpr (end_type::is_over_hosts) detail::receive_sums(end, round);
  if (const status outcome = detail::wait_for_chunks(round, end, operation::moe_sums, exchange.all_chunks());
      outcome != status::success)
    return outcome;
  const uint32_t top_k = exchange.shape.top_k, packs = exchange.shape.hidden / pack<T>::size;
  const auto experts = static_cast<int32_t>(exchange.local_experts());
  const T* const sums = comm.buffer(exchange.sums).local();
  [[maybe_unused]] const uint32_t of_chunk = (route.tokens + exchange.chunks - 1) / exchange.chunks;
  const auto sum_of = [&](int rank, uint32_t t) {
    const int member = end.lsa(rank);
    if constexpr (end_type::is_over_hosts)
      if (member < 0)
        return static_cast<const T*>(detail::sum_in(end, end.sent(rank, t / of_chunk), end.sent_place(rank, t)));
    return sums + exchange.sum_of(member, t);
  };
  const auto warps = threads / arch::warp_threads;
  for (uint32_t t = arch::block_rank() * warps + tid / arch::warp_threads; t < route.tokens;
       t += arch::grid_blocks() * warps) {
    uint64_t ranks = 0;  // that have experts of the token
    for (uint32_t k = 0; k < top_k; ++k) {
      const int32_t expert = route.experts[uint64_t{t} * top_k + k];
      if (expert >= 0) ranks |= uint64_t{1} << (expert / experts);
    }
    for (uint32_t p = arch::lane(); p < packs; p += arch::warp_threads) {
      float sum[pack<T>::size] = {};
      for (int m = 0; m < end.ranks(); ++m)
        if ((ranks >> m & 1) != 0) detail::add_scaled<T>(sum, load_pack(sum_of(m, t) + uint64_t{p} * pack<T>::size), 1);
      detail::store_run(output + (uint64_t{t} * packs + p) * pack<T>::size, sum);
    }
  }
  return status::success;
}

}  // namespace devcomm::moe
