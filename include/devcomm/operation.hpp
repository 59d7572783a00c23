/// \file operation.hpp
/// The packet protocols and the calls that wait, as handles, failure records, traces and the simulator name them.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm {

/// The one list of packet protocols: X(enumerator, name in messages). lsa/ has a session for each.
#define DEVCOMM_PACKET_PROTOCOLS(X) \
  X(ll, "LL")                       \
  X(lamport, "Lamport")             \
  X(ll128, "LL128")

/// How a packet shows that it has arrived; see `lsa::ll_session`, `lsa::lamport_session` and `lsa::ll128_session`.
enum class packet_protocol : uint32_t {
#define DEVCOMM_X(protocol, name) protocol,
  DEVCOMM_PACKET_PROTOCOLS(DEVCOMM_X)
#undef DEVCOMM_X
};

/// The kind of call that was waiting: `lsa_barrier`, `ll_mailbox` and so on for each packet protocol, `lsa_signal`, an
/// end of a FIFO, a message, a product's operand, tile or result, or tokens of experts.
enum class operation : uint32_t {
  none = 0,
  lsa_barrier = 1,
#define DEVCOMM_X(protocol, name) protocol##_mailbox,
  DEVCOMM_PACKET_PROTOCOLS(DEVCOMM_X)
#undef DEVCOMM_X
      lsa_signal,
  fifo_send,     ///< through a full FIFO
  fifo_receive,  ///< from an empty one
  message_send,  ///< of a group of messages, see `channel::group_session`; identified by its index in the rank's list
  message_receive,
  multimem_barrier,
  gin_signal,
  gin_counter,
  gin_flush,  ///< until operations are complete on their rank
  gin_post,   ///< until the proxy has read an earlier operation
  gin_fence,  ///< until operations have had their effect on the peer
  gin_barrier,
  gemm_session,  ///< of a matrix product, which itself does not wait
  gemm_operand,  ///< a chunk of a product's operand
  gemm_tile,     ///< a peer's tile of a product
  gemm_result,   ///< a tile that its owner has summed
  moe_tokens,    ///< a chunk of a rank's tokens
  moe_sums,      ///< a chunk of what a rank's experts made of this rank's
  moe_rows,      ///< of an expert; no wait, but room for them
};

/// What a wait asks of the word that it polls.
enum class wait_condition : uint32_t {
  epoch = 0,       ///< that the peer has reached an epoch
  at_least,        ///< at least a value, by the sign of the difference
  equal,           ///< just a value
  predicate,       ///< what a function of the caller's takes
  sent,            ///< that the peer has sent the expected number of steps of a FIFO
  taken,           ///< that the peer has taken the expected number of steps
  receive_listed,  ///< that the peer receives the next piece of a message
  send_listed,     ///< that the peer sends the next message
  piece_sent,      ///< that the peer has sent the expected number of message pieces
  slot_free,       ///< that a slot of a pool is free
  read_by_proxy,   ///< that the proxy has read the expected number of operations
  done_by_proxy,   ///< that the expected number of operations is complete
};

DEVCOMM_HOST_DEVICE constexpr const char* to_string(packet_protocol protocol) {
  switch (protocol) {
#define DEVCOMM_X(protocol, name) \
  case packet_protocol::protocol: return #protocol;
    DEVCOMM_PACKET_PROTOCOLS(DEVCOMM_X)
#undef DEVCOMM_X
  }
  return "unknown packet protocol";
}

DEVCOMM_HOST_DEVICE constexpr const char* to_string(operation op) {
  switch (op) {
    case operation::none: return "no operation";
    case operation::lsa_barrier: return "LSA barrier";
#define DEVCOMM_X(protocol, name) \
  case operation::protocol##_mailbox: return name " mailbox";
      DEVCOMM_PACKET_PROTOCOLS(DEVCOMM_X)
#undef DEVCOMM_X
    case operation::fifo_send: return "FIFO";
    case operation::fifo_receive: return "FIFO";
    case operation::lsa_signal: return "LSA signal";
    case operation::message_send: return "send";
    case operation::message_receive: return "receive";
    case operation::multimem_barrier: return "multimem barrier";
    case operation::gin_signal: return "GIN signal";
    case operation::gin_counter: return "GIN counter";
    case operation::gin_flush: return "GIN flush of context";
    case operation::gin_post: return "GIN post to context";
    case operation::gin_fence: return "GIN fence of context";
    case operation::gin_barrier: return "GIN barrier";
    case operation::gemm_session: return "matrix product";
    case operation::gemm_operand: return "operand chunk";
    case operation::gemm_tile: return "tile";
    case operation::gemm_result: return "result tile";
    case operation::moe_tokens: return "token chunk";
    case operation::moe_sums: return "expert output chunk";
    case operation::moe_rows: return "expert";
  }
  return "unknown operation";
}

/// The wait for a packet of `protocol`.
DEVCOMM_HOST_DEVICE constexpr operation mailbox_wait(packet_protocol protocol) {
  return static_cast<operation>(static_cast<uint32_t>(operation::lsa_barrier) + 1 + static_cast<uint32_t>(protocol));
}

}  // namespace devcomm
