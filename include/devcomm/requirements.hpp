/// \file requirements.hpp
/// What a kernel needs from its device communicator, laid out as it is asked for.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/detail/lines.hpp>
#include <devcomm/failure.hpp>
#include <devcomm/packet_channels.hpp>
#include <devcomm/team.hpp>
#include <devcomm/trace.hpp>

namespace devcomm {

/// `count` independent barriers of one team. Plain data; pass it to the kernel.
struct barrier_handle {
  uint64_t offset;   ///< bytes from the start of the resource window
  uint32_t count;    ///< barriers, indexed from 0
  uint32_t members;  ///< size of the team they were made for
};

/// `count` elements of `T` on every rank, in the resource window. Plain data; pass it to the kernel.
template <class T>
struct buffer_handle {
  uint64_t offset;  ///< bytes from the start of the resource window
  uint64_t count;   ///< elements on each rank
};

/// Bytes at the start of every resource window that the library keeps for itself, see `resource_header`.
inline constexpr uint64_t resource_header_bytes = 256;

/// Where the parts of `count` barriers of `members` ranks lie, in bytes from the handle's offset.
///
/// First the arrival flags of all barriers side by side: on Hopper a release fence under way on many
/// multiprocessors at once is faster the fewer lines the stores around it touch. Then what only this
/// rank uses, and the launch contracts of checked launches.
struct barrier_layout {
  uint32_t count;
  uint32_t members;

  /// The flag of barrier `index` that member `writer` stores to.
  DEVCOMM_HOST_DEVICE constexpr uint64_t flag(uint32_t index, uint32_t writer) const {
    return (uint64_t{index} * members + writer) * sizeof(uint32_t);
  }
  /// This rank's epoch of barrier `index`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t epoch(uint32_t index) const {
    return own() + uint64_t{index} * 2 * sizeof(uint32_t);
  }
  /// The word by which a group without a vote of its own agrees on an outcome.
  DEVCOMM_HOST_DEVICE constexpr uint64_t outcome(uint32_t index) const { return epoch(index) + sizeof(uint32_t); }
  /// The contract of barrier `index` that member `writer` stores to for an even or odd `epoch`.
  DEVCOMM_HOST_DEVICE constexpr uint64_t contract(uint32_t index, uint32_t writer, uint32_t epoch) const {
    return contracts() + ((uint64_t{index} * 2 + epoch % 2) * members + writer) * sizeof(launch_contract);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const {
    return detail::whole_lines(contracts() + uint64_t{2} * count * members * sizeof(launch_contract));
  }

 private:
  DEVCOMM_HOST_DEVICE constexpr uint64_t own() const { return detail::whole_lines(flag(count, 0)); }
  DEVCOMM_HOST_DEVICE constexpr uint64_t contracts() const { return detail::whole_lines(epoch(count)); }
};

/// Collects resources and fixes their places. Every rank must ask for the same things in the same
/// order: creation of the device communicator compares `fingerprint` and fails on all ranks if not.
///
/// Resources start as zeros.
class requirements {
 public:
  /// `lsa` is the communicator's LSA team.
  DEVCOMM_HOST_DEVICE explicit constexpr requirements(team lsa) : lsa_(lsa) {}

  /// Makes `count` barriers of the LSA team the communicator's own: a session that names only an
  /// index uses them. Usually one for each block. *Requires* that it is called at most once.
  DEVCOMM_HOST_DEVICE constexpr requirements& lsa_barriers(uint32_t count) {
    lsa_barriers_ = add_barriers(lsa_, count);
    return *this;
  }

  /// `count` further barriers for any team within the LSA team.
  DEVCOMM_HOST_DEVICE constexpr barrier_handle add_barriers(team members, uint32_t count) {
    const auto size = static_cast<uint32_t>(members.size);
    return {add(barrier_layout{count, size}.bytes(), 128, {size, count}), count, size};
  }

  /// `count` LL channels for any team within the LSA team, usually one for each block. In one round each member
  /// can send `packets` packets of 8 bytes to each. Takes `32 * count * members * packets` bytes on every rank, and
  /// 144 more for each channel and member.
  DEVCOMM_HOST_DEVICE constexpr ll_handle add_ll_channels(team members, uint32_t count, uint32_t packets) {
    return add_packet_channels<packet_protocol::ll>(members, count, packets);
  }

  /// `count` LL channels for groups of one rank that send to each other, `members` of them at a time.
  DEVCOMM_HOST_DEVICE constexpr ll_handle add_local_ll_channels(uint32_t count, uint32_t members, uint32_t packets) {
    return add_packet_channels<packet_protocol::ll>({0, static_cast<int32_t>(members), 0, 0}, count, packets);
  }

  /// `add_ll_channels` for Lamport channels, with packets of 16 bytes.
  DEVCOMM_HOST_DEVICE constexpr lamport_handle add_lamport_channels(team members, uint32_t count, uint32_t packets) {
    return add_packet_channels<packet_protocol::lamport>(members, count, packets);
  }

  /// The same for LL128 channels, with packets of 16 bytes, rounded up to whole units of 32;
  /// `ll128_session::packets_for` tells how many packs need. Creation of the device communicator fails where links
  /// between `members` do not keep lines whole: see `properties::ll128`.
  DEVCOMM_HOST_DEVICE constexpr ll128_handle add_ll128_channels(team members, uint32_t count, uint32_t packets) {
    return add_packet_channels<packet_protocol::ll128>(members, count, packets);
  }

  /// The same for the channels of a session, such as `lsa::ll_session<block>`, in code that is written for any; with
  /// room for `packs` packs from each member to each in a round.
  template <class Session>
  DEVCOMM_HOST_DEVICE constexpr typename Session::handle add_channels(team members, uint32_t count, uint32_t packs) {
    return add_packet_channels<Session::handle::protocol>(members, count, Session::packets_for(packs));
  }

  /// `count` elements of `T` on every rank, aligned to at least 128 bytes.
  template <class T>
  DEVCOMM_HOST_DEVICE constexpr buffer_handle<T> add_buffer(uint64_t count) {
    const uint64_t bytes = count <= most_bytes / sizeof(T) ? count * sizeof(T) : most_bytes;
    return {add(bytes, alignof(T) > 128 ? alignof(T) : 128, {sizeof(T)}), count};
  }

  /// Room for a trace of kernels of up to `blocks` blocks: `spans` of each of the first `warps` warps of a block, on
  /// every rank; 32 bytes each. Groups of whole blocks need one warp. *Requires* that it is called at most once.
  DEVCOMM_HOST_DEVICE constexpr requirements& trace(uint32_t blocks, uint32_t spans, uint32_t warps = 1) {
    trace_ = {0, blocks, warps, spans, 0};
    trace_.offset = add(trace_.bytes(), 128, {blocks, spans, warps});
    return *this;
  }

  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return bytes_; }
  DEVCOMM_HOST_DEVICE constexpr const trace_room& trace() const { return trace_; }
  DEVCOMM_HOST_DEVICE constexpr uint64_t fingerprint() const { return fingerprint_; }
  DEVCOMM_HOST_DEVICE constexpr barrier_handle lsa_barriers() const { return lsa_barriers_; }
  DEVCOMM_HOST_DEVICE constexpr team lsa() const { return lsa_; }
  /// Whether something needs links that keep lines of 128 bytes whole.
  DEVCOMM_HOST_DEVICE constexpr bool whole_lines() const { return whole_lines_; }

 private:
  /// What was asked for, beside its place and size.
  struct shape {
    uint64_t first;
    uint64_t second = 0;
    uint64_t third = 0;
  };

  /// Sums that would overflow end here, and no window is that large: creation then fails for want of memory.
  static constexpr uint64_t most_bytes = uint64_t{1} << 60;

  template <packet_protocol Protocol>
  DEVCOMM_HOST_DEVICE constexpr packet_handle<Protocol> add_packet_channels(team members, uint32_t count,
                                                                            uint32_t packets) {
    if (Protocol == packet_protocol::ll128) {
      packets = ll128_unit::whole(packets);
      if (members.size > 1) whole_lines_ = true;
    }
    const auto size = static_cast<uint32_t>(members.size);
    const uint64_t bytes = packet_layout{count, size, packets}.bytes();
    const uint64_t shape_and_protocol = uint64_t{packets} << 2 | static_cast<uint64_t>(Protocol);
    return {add(bytes, 128, {size, count, shape_and_protocol}), count, size, packets, 0};
  }

  DEVCOMM_HOST_DEVICE constexpr uint64_t add(uint64_t bytes, uint64_t alignment, shape what) {
    const uint64_t offset = (bytes_ + alignment - 1) / alignment * alignment;
    bytes_ = bytes < most_bytes && offset < most_bytes - bytes ? offset + bytes : most_bytes;
    mix(offset);
    mix(bytes);
    mix(what.first);
    mix(what.second);
    mix(what.third);
    return offset;
  }

  /// FNV-1a, a word at a time.
  DEVCOMM_HOST_DEVICE constexpr void mix(uint64_t word) { fingerprint_ = (fingerprint_ ^ word) * 0x100000001b3u; }

  team lsa_;
  uint64_t bytes_ = resource_header_bytes;
  uint64_t fingerprint_ = 0xcbf29ce484222325u;
  barrier_handle lsa_barriers_{};
  trace_room trace_{};
  bool whole_lines_ = false;
};

}  // namespace devcomm
