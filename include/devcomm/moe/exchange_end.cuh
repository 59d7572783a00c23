/// \file exchange_end.cuh
/// A rank's part in an exchange of tokens, on one host or over several; exchange.hpp has the protocol.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/agree.cuh>
#include <devcomm/device_comm.hpp>
#include <devcomm/gemm/session.cuh>
#include <devcomm/gin/buffer.cuh>
#include <devcomm/gin/context.cuh>
#include <devcomm/gin/detail/queue_end.cuh>
#include <devcomm/group.cuh>
#include <devcomm/moe/exchange.hpp>

namespace devcomm::moe {

/// An exchange of the world's ranks and the contexts for what goes to other hosts: kernels take it in place of the
/// exchange. On one host alone it is the exchange.
///
///     const auto tokens = needs.add(moe::exchange<__nv_bfloat16>{comm.world(), {4096, 256, 8, 7168}, blocks});
///     const auto contexts = needs.add(gin::contexts{.world = comm.world(), .count = blocks});
///     launch(dispatch, config, device_comm.get(), moe::over_hosts{tokens, contexts}, ...);
template <class T>
struct over_hosts {
  exchange_handle<T> exchange;
  gin::context_handle contexts;
};
template <class T>
over_hosts(exchange_handle<T>, gin::context_handle) -> over_hosts<T>;

}  // namespace devcomm::moe

namespace devcomm::detail {

/// Of a chunk: how many tokens and rows there are, and each entry's expert and weight.
struct chunk_numbers {
  uint32_t* counts;
  int32_t* experts;
  float* weights;
};

/// An exchange inside the LSA team. Ranks are numbered as in the exchange.
template <class T>
class exchange_end {
 public:
  static constexpr bool is_over_hosts = false;

  DEVCOMM_DEVICE exchange_end(const device_comm& comm, const moe::exchange_handle<T>& exchange)
      : exchange_end(comm, exchange, exchange.ranks, comm.lsa_rank()) {
    DEVCOMM_ASSERT(exchange.ranks == static_cast<uint32_t>(comm.lsa_size),
                   "the exchange has ranks on other hosts: give kernels moe::over_hosts{exchange, contexts}");
  }

  DEVCOMM_DEVICE const device_comm& comm() const { return comm_; }
  DEVCOMM_DEVICE const moe::exchange_handle<T>& exchange() const { return exchange_; }
  DEVCOMM_DEVICE int ranks() const { return static_cast<int>(exchange_.ranks); }
  DEVCOMM_DEVICE int rank() const { return rank_; }
  /// Index in the LSA team, or -1 on another host.
  DEVCOMM_DEVICE static int lsa(int rank) { return rank; }
  /// Who sets the flags of chunks of `rank` here, as `team::number`.
  DEVCOMM_DEVICE int setter(int rank) const { return comm_.lsa().number(rank); }

  /// Where this rank's numbers of chunk `chunk`, the tokens `range`, are stored for `rank`.
  DEVCOMM_DEVICE chunk_numbers to(int rank, uint32_t chunk, const moe::token_range& range) const {
    return at(lsa(rank), rank_, chunk, range);
  }
  DEVCOMM_DEVICE chunk_numbers at(int member, int source, uint32_t chunk, const moe::token_range& range) const {
    const uint64_t entry = exchange_.entry(source, range.begin);
    return {comm_.buffer(exchange_.counts).lsa(member) + exchange_.counts_of(exchange_.number(source, chunk)),
            comm_.buffer(exchange_.experts).lsa(member) + entry, comm_.buffer(exchange_.weights).lsa(member) + entry};
  }

 protected:
  DEVCOMM_DEVICE exchange_end(const device_comm& comm, const moe::exchange_handle<T>& exchange, uint32_t ranks,
                              int rank)
      : comm_(comm), exchange_(exchange), rank_(rank) {
    DEVCOMM_ASSERT(ranks == exchange.ranks, "the exchange was made for a team of another size: give it the world");
    static_cast<void>(ranks);
  }

 private:
  const device_comm& comm_;
  const moe::exchange_handle<T>& exchange_;
  int rank_;
};

/// An exchange of the world.
template <class T>
class hosts_end : public exchange_end<T> {
 public:
  static constexpr bool is_over_hosts = true;

  DEVCOMM_DEVICE hosts_end(const device_comm& comm, const moe::over_hosts<T>& both)
      : exchange_end<T>(comm, both.exchange, static_cast<uint32_t>(comm.size), comm.rank), contexts_(both.contexts) {
    if (comm.lsa_size == comm.size) return;
    DEVCOMM_ASSERT(contexts_.has(both.exchange.slots.signals),
                   "the contexts lack signals for the exchange: pass the gin::contexts that were added to the same "
                   "requirements after moe::exchange");
    memory_ = gin::network_memory(comm);
  }

  DEVCOMM_DEVICE int lsa(int rank) const { return this->comm().lsa_member(rank); }
  /// No peer, for a rank on another host: threads of this rank set them, also when that rank has left by then.
  DEVCOMM_DEVICE int setter(int rank) const {
    const int member = lsa(rank);
    return member >= 0 ? this->comm().lsa().number(member) : -1;
  }

  DEVCOMM_DEVICE chunk_numbers to(int rank, uint32_t chunk, const moe::token_range& range) const {
    const int member = lsa(rank);
    return member >= 0 ? this->at(member, this->rank(), chunk, range)
                       : in_slot(memory_.local + this->exchange().sent(rank, chunk));
  }
  /// The numbers in a slot.
  DEVCOMM_DEVICE chunk_numbers in_slot(char* slot) const {
    auto* const words = reinterpret_cast<uint32_t*>(slot);
    const moe::exchange_slots& slots = this->exchange().slots;
    return {words, reinterpret_cast<int32_t*>(words + slots.expert_word()),
            reinterpret_cast<float*>(words + slots.weight_word())};
  }
  DEVCOMM_DEVICE char* sent(int rank, uint32_t chunk) const {
    return memory_.local + this->exchange().sent(rank, chunk);
  }
  DEVCOMM_DEVICE char* received(int rank, uint32_t chunk) const {
    return memory_.local + this->exchange().received(rank, chunk);
  }
  /// Row `place` of a slot.
  DEVCOMM_DEVICE char* row(char* slot, int32_t place, uint32_t row_bytes) const {
    return slot + this->exchange().slots.rows() + static_cast<uint64_t>(place) * row_bytes;
  }
  /// The row of a token in its slot; negative where it was not sent.
  DEVCOMM_DEVICE int32_t received_place(int rank, uint32_t token) const {
    return places()[this->exchange().received_place(rank, token)];
  }
  DEVCOMM_DEVICE int32_t sent_place(int rank, uint32_t token) const {
    return places()[this->exchange().sent_place(rank, token)];
  }
  DEVCOMM_DEVICE int32_t* places() const { return this->comm().buffer(this->exchange().places).local(); }
  /// How many rows a slot has of the tokens whose places begin at `first`.
  DEVCOMM_DEVICE uint32_t rows_in(uint64_t first, const moe::token_range& range) const {
    for (uint32_t i = range.end - range.begin; i > 0; --i)
      if (const int32_t place = places()[first + i - 1]; place >= 0) return static_cast<uint32_t>(place) + 1;
    return 0;
  }

  /// Calls `use(rank)` for each rank on another host, as part `part` of `parts`, from the one behind this rank on.
  template <class Use>
  DEVCOMM_DEVICE void for_each_outside(uint32_t part, uint32_t parts, const Use& use) const {
    for (auto step = static_cast<int>(part) + 1; step < this->ranks(); step += static_cast<int>(parts))
      if (const int rank = (this->rank() + step) % this->ranks(); lsa(rank) < 0) use(rank);
  }
  /// The same for each chunk from other hosts: `use(rank, chunk)`.
  template <class Use>
  DEVCOMM_DEVICE void for_each_chunk_outside(uint32_t part, uint32_t parts, const Use& use) const {
    const moe::exchange_handle<T>& exchange = this->exchange();
    for (uint32_t i = part; i < exchange.all_chunks(); i += parts)
      if (const auto rank = static_cast<int>(i / exchange.chunks); lsa(rank) < 0) use(rank, i % exchange.chunks);
  }

  /// Puts `bytes` from one offset of the network memory to another of `rank`, which then has what this rank's chunk
  /// `chunk` is to bring; by one thread, after the block has synchronized.
  DEVCOMM_DEVICE void put(operation what, int rank, uint32_t chunk, uint64_t to, uint64_t from, uint64_t bytes) const {
    gin::context net{thread{}, this->comm(), contexts_, context_of(chunk)};
    const gin::signal_add arrival{signal_of(what, this->rank(), chunk), 1, gin::strength::weak};
    if (bytes == 0) {
      net.signal(rank, arrival);
    } else {
      net.put(rank, memory_, to, memory_, from, bytes, arrival);
    }
  }
  /// Waits, as one thread, for what chunk `chunk` of `rank` is to bring in round `round`.
  [[nodiscard]] DEVCOMM_DEVICE status wait(operation what, int rank, uint32_t chunk, uint64_t round) const {
    const queue_end queue = queue_end::of(this->comm(), contexts_, context_of(chunk));
    return wait_for_proxy(queue, queue.layout.signal(signal_of(what, rank, chunk)), {what, chunk, rank, round},
                          communicator_timeout());
  }

 private:
  DEVCOMM_DEVICE uint32_t context_of(uint32_t chunk) const { return chunk % contexts_.count; }
  DEVCOMM_DEVICE uint32_t signal_of(operation what, int rank, uint32_t chunk) const {
    const moe::exchange_handle<T>& exchange = this->exchange();
    return contexts_.first_signal(exchange.slots.signals) +
           (what == operation::moe_sums ? exchange.sum_flag(rank, chunk) : exchange.number(rank, chunk));
  }

  const gin::context_handle& contexts_;
  window memory_{};
};

template <class T>
DEVCOMM_DEVICE exchange_end<T> end_of(const device_comm& comm, const moe::exchange_handle<T>& exchange) {
  return {comm, exchange};
}
template <class T>
DEVCOMM_DEVICE hosts_end<T> end_of(const device_comm& comm, const moe::over_hosts<T>& both) {
  return {comm, both};
}

/// Waits for the chunks of all ranks, each thread for some; `first` is the flag of the first one.
template <class End>
DEVCOMM_DEVICE status wait_for_chunks(const gemm::flag_access& flags, const End& end, operation what, uint32_t first) {
  const block group;
  const auto& exchange = end.exchange();
  status mine = status::success;
  for (auto i = static_cast<uint32_t>(group.thread_rank()); i < exchange.all_chunks() && mine == status::success;
       i += static_cast<uint32_t>(group.size()))
    mine = flags.wait(what, i % exchange.chunks, first + i, end.setter(static_cast<int>(i / exchange.chunks)));
  return agree(group, mine, status::aborted, nullptr);
}

}  // namespace devcomm::detail
