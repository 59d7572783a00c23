/// \file fabric_message.hpp
/// What proxies of different processes tell each other.
#pragma once

#include <devcomm/gin/queue.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace devcomm::host::detail {

/// Random; a rank sends it to the members of its communicator only, over the bootstrap's connections.
using fabric_secret = std::array<std::uint64_t, 2>;

enum class message_kind : std::uint32_t {
  change = 1,   ///< write a value or what the message carries, or change a signal, or both in this order
  acknowledge,  ///< nothing but `changes_done`
  refuse,       ///< change `sequence` cannot be done
  ask_for_key,  ///< of `window`
  remote_key,   ///< key and address of `window`, or why there are none
  leave,        ///< the sender's device communicator ends
  leave_heard,  ///< the answer
  stage_in,     ///< copy from bounce buffer `slot` to the window
  stage_out,    ///< copy from the window to bounce buffer `slot`
  staged,       ///< `stage_in` or `stage_out` `sequence` is done, or cannot be done
};

/// Why a rank does not do what a peer wants.
enum class refusal : std::uint32_t { none, no_window, past_end, no_signal, not_registered };

/// How a write brings payload whose change is sent beside it.
enum class payload_write : std::uint32_t {
  none,             ///< there is no such write: a change carries its payload, or has none
  in_place,         ///< it goes to the window
  to_bounce_buffer  ///< to bounce buffer `slot`, from which the receiver copies to the window
};

/// All kinds have one format: the members that a kind does not name are zero.
struct fabric_message {
  static constexpr std::uint64_t this_format = 0x6465'7663'6f6d'6d07;  // "devcomm" and a version

  std::uint64_t format = this_format;
  fabric_secret secret{};  ///< the receiver's
  std::uint32_t sender = 0;
  message_kind kind{};
  std::uint64_t sequence = 0;      ///< changes of one rank to another have the numbers 0, 1, 2...
  std::uint64_t changes_done = 0;  ///< all changes of the receiver to the sender below it are done
  // change
  std::uint32_t context = 0;
  std::uint32_t signal = 0;
  gin::signal_change signal_change = gin::signal_change::none;
  std::uint32_t value_bytes = 0;  ///< 0: there is no value to write
  std::uint64_t signal_value = 0;
  std::uint64_t value = 0;
  // change, stage_in, stage_out
  std::uint64_t offset = 0;  ///< in the window
  // change, ask_for_key, remote_key, stage_in, stage_out
  std::uint32_t window = 0;
  // refuse, remote_key, staged
  refusal why = refusal::none;
  // remote_key
  std::uint64_t key = 0;
  std::uint64_t base = 0;
  // refuse, remote_key, staged: of the window; stage_in, stage_out: to move; change: that the message carries, which
  // follow it, or that a write brings
  std::uint64_t bytes = 0;
  // remote_key, of a window that the fabric does not reach: the bounce buffers that the receiver may use
  std::uint32_t buffers = 0;
  std::uint32_t buffer_bytes = 0;
  // stage_in, stage_out, staged, change
  std::uint32_t slot = 0;
  // remote_key
  std::int32_t code = 0;  ///< of `not_registered`: of the fabric's error
  // change; remote_key: how writes to the window may be beside their changes
  payload_write write = payload_write::none;
  std::uint32_t device_comm = 0;  ///< number of the device communicator, the same on all ranks
};

static_assert(sizeof(fabric_message) == 144, "all ranks must agree: change the version in this_format with it");

/// Payload of a put that a message carries, at most: message and payload are one small message of most providers.
inline constexpr std::size_t max_carried = 8192;

/// Messages of one device communicator to one peer that are on their way, at most.
inline constexpr std::uint64_t max_unacknowledged = 64;

/// The immediate data that the fabric delivers with a write beside a change. Not every name says something: who does
/// not know the receiver's secret has to guess.
struct write_name {
  std::uint32_t sender;
  std::uint32_t device_comm;  ///< the last eight bits of its number
  std::uint32_t sequence;     ///< the last eight bits of the change's number

  [[nodiscard]] constexpr std::uint32_t pack(const fabric_secret& receiver) const {
    return (sender << 16 | (device_comm & 0xff) << 8 | (sequence & 0xff)) ^ mask_of(receiver);
  }
  [[nodiscard]] static constexpr write_name of(std::uint32_t packed, const fabric_secret& receiver) {
    const std::uint32_t plain = packed ^ mask_of(receiver);
    return {plain >> 16, plain >> 8 & 0xff, plain & 0xff};
  }

 private:
  [[nodiscard]] static constexpr std::uint32_t mask_of(const fabric_secret& receiver) {
    return static_cast<std::uint32_t>(receiver[0] >> 32);
  }
};
/// Ranks that names have room for.
inline constexpr std::uint32_t max_ranks_of_names = 1 << 16;
/// Device communicators whose writes may have names, among so many ranks: names come without being asked for, and the
/// endpoint's queue of completions has room for all of them.
[[nodiscard]] constexpr std::size_t max_named(std::size_t ranks) { return ranks <= 256 ? 8 : 1; }

/// Fills `message` from bytes that anyone may have sent to rank `self` of `ranks`. Returns why they are to be dropped:
/// nothing of a message with another secret is looked at. Empty for a good message, behind which are `message.bytes`
/// bytes where it is a `change` beside no write.
[[nodiscard]] std::string parse_message(std::span<const std::byte> bytes, const fabric_secret& own, std::uint32_t self,
                                        std::uint32_t ranks, fabric_message& message);

}  // namespace devcomm::host::detail
