/// \file failure.hpp
/// What a kernel leaves in host-visible memory when a wait fails, and the word that ends all waits.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/collectives.hpp>
#include <devcomm/operation.hpp>
#include <devcomm/status.hpp>

namespace devcomm {

/// What of a launch must agree across ranks; compared at the first barrier or exchange of a checked launch.
struct launch_contract {
  uint32_t grid_blocks;
  uint32_t group_threads;
  uint64_t key;
};

/// What of one call of a collective must agree across ranks. All zeros where none is named.
struct call_contract {
  uint64_t name[3];        ///< up to 23 letters of the function's name, the first in the lowest byte
  uint64_t begin;          ///< first pack
  uint64_t end;            ///< past the last pack
  uint32_t element_bytes;  ///< size of an element
  int32_t root;            ///< member that has the input or gets the result; 0 where all do

  template <size_t N>
  DEVCOMM_HOST_DEVICE static constexpr call_contract of(const char (&name)[N], uint64_t begin, uint64_t end,
                                                        size_t element_bytes, int32_t root = 0) {
    static_assert(N <= 24, "the name of a call has at most 23 characters");
    call_contract call{{}, begin, end, static_cast<uint32_t>(element_bytes), root};
    for (size_t i = 0; i + 1 < N; ++i)
      call.name[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(name[i])) << i % 8 * 8;
    return call;
  }
  /// That of a call of the library's collective `Which`.
  template <collective_call Which>
  DEVCOMM_HOST_DEVICE static constexpr call_contract of(uint64_t begin, uint64_t end, size_t element_bytes,
                                                        int32_t root = 0) {
    constexpr call_contract named = named_as(to_string(Which));
    call_contract call = named;
    call.begin = begin;
    call.end = end;
    call.element_bytes = static_cast<uint32_t>(element_bytes);
    call.root = root;
    return call;
  }

 private:
  DEVCOMM_HOST_DEVICE static constexpr call_contract named_as(const char* name) {
    call_contract call{};
    for (int i = 0; i < 23 && name[i] != 0; ++i)
      call.name[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(name[i])) << i % 8 * 8;
    return call;
  }
};

/// What a rank has of a message: see `failure_record::my_message`.
struct message_shape {
  uint64_t bytes;    ///< or `channel::no_such_window`, or `channel::no_such_message`
  uint32_t stripes;  ///< with `no_such_window`, 1 more than the id of the window
  uint32_t number;   ///< of the message in its connection
};

/// One failed wait. Peers are world ranks. For `status::mismatch` the contracts of both ranks are set, or the shapes of
/// a message on which they disagree.
struct failure_record {
  static constexpr uint32_t no_block = ~0u;  ///< found by the host

  uint32_t ready;  ///< stored last, with release: 1 once the record is complete
  status outcome;  ///< `status::departed`: aborted, as the peer had destroyed its device communicator
  operation what;
  uint32_t index;  ///< which barrier, mailbox or signal
  int32_t rank;
  int32_t peer;  ///< -1: no particular one
  uint32_t block;
  uint32_t thread;
  uint64_t expected;  ///< epoch or value waited for
  uint64_t seen;      ///< epoch or value last read
  launch_contract mine;
  launch_contract theirs;
  call_contract my_call;
  call_contract their_call;
  uint32_t peer_index;    ///< the peer's; another one only between groups of one rank
  uint32_t among_groups;  ///< 1: among groups of one rank, known by their mailboxes
  wait_condition condition = wait_condition::epoch;
  /// 1 more than the id of the window of which `index` is an 8-byte word; 0: `index` is no such word
  uint32_t window = 0;
  message_shape my_message{};
  message_shape their_message{};
};

static_assert(sizeof(failure_record) == 224, "read by the host library");

/// Lives in pinned host memory, one a device communicator; read by the host while kernels run.
/// Record `i` is complete once its `ready` is 1. Failures past `capacity` are not kept. In memory a bit for each rank
/// follows: whether it has destroyed its device communicator.
struct failure_log {
  static constexpr uint32_t capacity = 64;

  /// `abort_by_host`, stored by the host, ends every wait of this device communicator on this rank, within a
  /// millisecond: see `resource_header::abort`.
  alignas(8) uint32_t abort;
  uint32_t departures;  ///< how many of those bits are set; with 0 the bits need not be there. Read with `abort`
  uint32_t reserved[2];
  failure_record records[capacity];

  /// Of a log with its bits.
  DEVCOMM_HOST_DEVICE static constexpr size_t bytes_for(int32_t ranks) {
    return sizeof(failure_log) + (static_cast<size_t>(ranks) + 31) / 32 * sizeof(uint32_t);
  }
  /// The word that has the bit of `rank`, which is `rank % 32`.
  DEVCOMM_HOST_DEVICE uint32_t* departed_word(int32_t rank) {
    return reinterpret_cast<uint32_t*>(this + 1) + rank / 32;
  }
};

/// Why all waits of a rank have ended; bits.
inline constexpr uint32_t abort_by_host = 1;
inline constexpr uint32_t abort_by_failure = 2;
inline constexpr uint32_t abort_by_departure = 4;

}  // namespace devcomm
