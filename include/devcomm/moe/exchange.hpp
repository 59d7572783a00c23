/// \file exchange.hpp
/// Tokens to experts on other ranks and back: what a rank asks for, and how it is laid out.
///
/// Protocol. A round has four halves: `dispatch_send`, `dispatch_receive`, `combine_send`, `combine_receive`. A rank's
/// tokens are divided into chunks, as many on every rank. Per chunk, `dispatch_send` stores to every rank which of its
/// experts get which tokens, with which weights, and how many tokens each expert gets, and sets the chunk's flag there.
/// `dispatch_receive` waits for the flags of all ranks, knows from the numbers where each expert's rows begin, and
/// loads each token that it needs once from its rank's window. `combine_send` sums a token's rows of this rank and
/// stores that to the token's rank, with a flag for each chunk, also where there is nothing to sum. `combine_receive`
/// waits for the chunks of all ranks and sums. Flags are those of gemm/flags.hpp, an epoch a round.
///
/// No half needs a barrier: a rank that has all ranks' chunks of `combine_receive` knows that they have read everything
/// that it sent in the round; and one that has all chunks of `dispatch_receive`, that what it will send back has room.
///
/// *Between hosts* a chunk is one message by the network: `dispatch_send` puts the numbers together with the tokens
/// that the rank needs into a slot of the network memory, and puts that to a slot of the peer, with a weak signal of
/// its own. A warp of `dispatch_receive` waits for the signal, copies the numbers to where a peer on the same host
/// stores them, and sets the chunk's flag on its own rank. `combine_send` makes a chunk's sums in the slot that its
/// tokens came to, and puts them to the slot that these were sent from. A signal counts rounds, as flags do. The two
/// slots suffice, as each message is an answer: a rank writes to a slot, or puts to it, when it has received what its
/// reader sent after reading.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/config.hpp>
#include <devcomm/gemm/flags.hpp>
#include <devcomm/requirements.hpp>
#include <devcomm/team.hpp>

namespace devcomm::moe {

/// Experts of a rank.
inline constexpr uint32_t max_local_experts = 256;
/// Ranks of an exchange.
inline constexpr uint32_t max_ranks = 64;

/// The same on all ranks.
struct exchange_shape {
  uint32_t max_tokens;  ///< of a rank in a round
  uint32_t experts;     ///< of all ranks, as many on each: the first of them on the first rank, and so on
  uint32_t top_k;       ///< experts of a token
  uint32_t hidden;      ///< elements of a token
};

/// Tokens `begin` up to `end` of a rank.
struct token_range {
  uint32_t begin;
  uint32_t end;
};

/// Messages between hosts: two slots for each chunk of each rank, in the network memory. What is in a slot, in words of
/// 4 bytes: the rank's tokens, and how many of each expert; for each token of the chunk its row in the slot, or a
/// negative number; experts and weights. Then come rows, each followed by its scales.
struct exchange_slots {
  uint64_t offset;       ///< of the first slot in the network memory
  signal_range signals;  ///< for each chunk of each rank that of its tokens, then likewise that of sums
  uint32_t experts;      ///< of each rank
  uint32_t tokens;       ///< of a chunk, at most
  uint32_t top_k;
  uint32_t row_bytes;  ///< at most

  DEVCOMM_HOST_DEVICE constexpr uint32_t row_word() const { return 1 + experts; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t expert_word() const { return row_word() + tokens; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t weight_word() const { return expert_word() + tokens * top_k; }
  DEVCOMM_HOST_DEVICE constexpr uint64_t rows() const {
    return detail::round_up_to_line((uint64_t{weight_word()} + uint64_t{tokens} * top_k) * sizeof(uint32_t));
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const {
    return rows() + detail::round_up_to_line(uint64_t{tokens} * row_bytes);
  }
};

/// Plain data; pass it to the kernels. `T` is what tokens' sums travel back as.
template <class T>
struct exchange_handle {
  gemm::flag_handle flags;
  exchange_shape shape;
  uint32_t ranks;
  uint32_t chunks;                 ///< of each rank
  buffer_handle<int32_t> experts;  ///< of each rank's tokens, `top_k` of each: those of this rank, or -1
  buffer_handle<float> weights;    ///< likewise
  buffer_handle<uint32_t> counts;  ///< of each rank's chunks: its tokens, then those of each expert of this rank
  buffer_handle<int32_t> row_of;   ///< of each rank's tokens, `top_k` of each: their rows here, or -1
  buffer_handle<T> sums;           ///< of each LSA member, for each of this rank's tokens
  exchange_slots slots;            ///< between hosts
  buffer_handle<int32_t> places;   ///< rows in slots: of each rank's tokens that came, then of those sent to each rank

  DEVCOMM_HOST_DEVICE constexpr uint32_t local_experts() const { return shape.experts / ranks; }
  DEVCOMM_HOST_DEVICE constexpr uint32_t all_chunks() const { return ranks * chunks; }
  /// Chunk `chunk` of a rank that has `tokens`.
  DEVCOMM_HOST_DEVICE constexpr token_range range(uint32_t chunk, uint32_t tokens) const {
    const uint64_t length = (tokens + chunks - 1) / chunks;
    const uint64_t begin = chunk * length;
    const uint64_t end = begin + length;
    return {static_cast<uint32_t>(begin < tokens ? begin : tokens), static_cast<uint32_t>(end < tokens ? end : tokens)};
  }
  /// The first of the `top_k` entries of `rank`'s token.
  DEVCOMM_HOST_DEVICE constexpr uint64_t entry(int rank, uint32_t token) const {
    return (uint64_t{static_cast<uint32_t>(rank)} * shape.max_tokens + token) * shape.top_k;
  }
  /// The number of `rank`'s chunk among those of all ranks, in their order; also its flag for tokens.
  DEVCOMM_HOST_DEVICE constexpr uint32_t number(int rank, uint32_t chunk) const {
    return static_cast<uint32_t>(rank) * chunks + chunk;
  }
  DEVCOMM_HOST_DEVICE constexpr uint32_t sum_flag(int rank, uint32_t chunk) const {
    return all_chunks() + number(rank, chunk);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t counts_of(uint32_t number) const {
    return uint64_t{number} * (local_experts() + 1);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t sum_of(int member, uint32_t token) const {
    return (uint64_t{static_cast<uint32_t>(member)} * shape.max_tokens + token) * shape.hidden;
  }
  /// A token's entry in `places`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t received_place(int rank, uint32_t token) const {
    return uint64_t{static_cast<uint32_t>(rank)} * shape.max_tokens + token;
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t sent_place(int rank, uint32_t token) const {
    return uint64_t{ranks} * shape.max_tokens + received_place(rank, token);
  }
  /// Where chunks of `rank` come to, and those for it are sent from: bytes from the start of the network memory.
  DEVCOMM_HOST_DEVICE constexpr uint64_t received(int rank, uint32_t chunk) const {
    return slots.offset + number(rank, chunk) * slots.bytes();
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t sent(int rank, uint32_t chunk) const {
    return slots.offset + (uint64_t{all_chunks()} + number(rank, chunk)) * slots.bytes();
  }
  /// Rows that a rank's experts get at most, without alignment.
  DEVCOMM_HOST_DEVICE constexpr uint64_t max_rows() const {
    const uint32_t of_token = shape.top_k < local_experts() ? shape.top_k : local_experts();
    return uint64_t{ranks} * shape.max_tokens * of_token;
  }
};

/// Asks for what a rank needs: mostly `max_tokens * hidden` elements of `T` for each LSA member.
///
///     const auto exchange = needs.add(moe::exchange<__nv_bfloat16>{comm.lsa(), {4096, 256, 8, 7168}, blocks});
///
/// Where the ranks are those of several hosts, `members` is the world. Then it takes signals, so contexts are added
/// after it, and the kernels get both, see `moe::over_hosts`; and `2 * ranks * max_tokens` rows of network memory, with
/// the numbers that go with them.
///
/// *Requires* that `experts` is a multiple of the number of ranks, at most 256 for each, and `hidden` fills whole packs
/// of 16 bytes; at most 64 ranks.
template <class T>
struct exchange {
  team members;  ///< the LSA team or the world
  exchange_shape shape;
  uint32_t max_blocks;     ///< of a launch
  uint32_t chunks = 64;    ///< of a rank's tokens: a block works at some of all ranks' at a time
  uint32_t row_bytes = 0;  ///< between hosts, of a token with its scales; 0: as many as its sum has

  DEVCOMM_HOST_DEVICE constexpr exchange_handle<T> add_to(requirements& needs) const {
    const auto ranks = static_cast<uint32_t>(members.size);
    DEVCOMM_ASSERT(ranks <= max_ranks, "an exchange has at most 64 ranks");
    DEVCOMM_ASSERT(shape.experts > 0 && shape.experts % ranks == 0 && shape.experts / ranks <= max_local_experts,
                   "the experts of an exchange are a multiple of its ranks, at most 256 for each");
    DEVCOMM_ASSERT(shape.max_tokens > 0 && shape.top_k > 0 && chunks > 0,
                   "an exchange has at least one token, one expert for each and one chunk");
    DEVCOMM_ASSERT(shape.hidden > 0 && shape.hidden * sizeof(T) % 16 == 0,
                   "a token of an exchange fills whole packs of 16 bytes");
    exchange_handle<T> made{};
    made.shape = shape;
    made.ranks = ranks;
    made.chunks = chunks;
    const uint64_t tokens = uint64_t{ranks} * shape.max_tokens;
    const uint64_t entries = tokens * shape.top_k;
    made.flags = needs.add(gemm::flags{needs.lsa(), 2 * ranks * chunks, max_blocks});
    made.experts = needs.add_buffer<int32_t>(entries);
    made.weights = needs.add_buffer<float>(entries);
    made.counts = needs.add_buffer<uint32_t>(made.counts_of(ranks * chunks));
    made.row_of = needs.add_buffer<int32_t>(entries);
    made.sums = needs.add_buffer<T>(made.sum_of(needs.lsa().size, 0));
    if (ranks != static_cast<uint32_t>(needs.lsa().size)) {
      const auto of_sum = static_cast<uint32_t>(shape.hidden * sizeof(T));
      const uint32_t of_row = row_bytes > of_sum ? (row_bytes + 15) / 16 * 16 : of_sum;
      made.slots = {0, {}, made.local_experts(), (shape.max_tokens + chunks - 1) / chunks, shape.top_k, of_row};
      made.slots.signals = needs.add_signals(uint64_t{2} * ranks * chunks);
      const resource_shape what{uint64_t{ranks} << 32 | chunks, uint64_t{shape.experts} << 32 | shape.top_k,
                                uint64_t{shape.max_tokens} << 32 | of_row};
      made.slots.offset =
          needs.add_for_network(detail::limited_product(uint64_t{2} * ranks * chunks, made.slots.bytes()), 128, what);
      made.places = needs.add_buffer<int32_t>(2 * tokens);
    }
    return made;
  }
};

/// Where a rank's tokens go: for each, `top_k` experts of all ranks, different ones, or negative numbers for none; and
/// their weights.
struct routing {
  const int32_t* experts;
  const float* weights;
  uint32_t tokens;
};

}  // namespace devcomm::moe
