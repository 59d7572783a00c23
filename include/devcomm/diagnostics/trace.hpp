/// \file trace.hpp
/// What a traced kernel leaves in device memory: one record for each span that has ended.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/diagnostics/collectives.hpp>
#include <devcomm/requirements.hpp>

namespace devcomm {

/// What a span is about; gives it its color.
enum class span_kind : uint8_t {
  user = 0,
  wait = 1,  ///< for peers
  sync = 2,  ///< a wait after an arrival in the same span, so that no peer leaves before this rank has begun
  copy = 3,
  reduction = 4,
  call = 5,  ///< of a collective
};

/// Name of a span, at most 15 characters. It travels in the record itself, so nothing has to be registered.
/// Made from a literal by the compiler: `trace_span span{block{}, comm, "reduce"}`.
struct span_name {
  uint64_t low;
  uint64_t high;  ///< the kind in its last byte

  template <size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor): literals are names
  DEVCOMM_HOST_DEVICE constexpr span_name(const char (&text)[N], span_kind kind = span_kind::user)
      : low(letters(text, 0)), high(letters(text, 8) | static_cast<uint64_t>(kind) << 56) {
    static_assert(N <= 16, "the name of a span has at most 15 characters");
  }
  DEVCOMM_HOST_DEVICE constexpr span_name(uint64_t first, uint64_t second) : low(first), high(second) {}

  DEVCOMM_HOST_DEVICE constexpr span_kind kind() const { return static_cast<span_kind>(high >> 56); }

 private:
  template <size_t N>
  DEVCOMM_HOST_DEVICE static constexpr uint64_t letters(const char (&text)[N], size_t from) {
    uint64_t word = 0;
    for (size_t i = from; i < N && i < from + 8; ++i)
      word |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << 8 * (i - from);
    return word;
  }
};

/// One span. Times are of `arch::global_time` on the rank that wrote it.
struct trace_record {
  uint64_t begin;  ///< nanoseconds
  uint64_t end;
  uint64_t name_low;  ///< see `span_name`; of waits, see `awaited_span`
  uint64_t name_high;
};

static_assert(sizeof(trace_record) == 32, "read by the host library");

/// What a record of a wait has instead of a name.
struct awaited_span {
  uint32_t what;    ///< `operation`
  uint32_t index;   ///< which barrier or mailbox
  uint32_t handle;  ///< offset of the barriers or mailboxes in the resource window, in lines of 128 bytes
  uint32_t epoch;
  uint32_t first;  ///< world rank of the team's first member, modulo 65536
  span_kind kind;

  DEVCOMM_HOST_DEVICE constexpr span_name pack() const {
    return {index | uint64_t{handle} << 32,
            epoch | uint64_t{first & 0xffffu} << 32 | uint64_t{what & 0xffu} << 48 | static_cast<uint64_t>(kind) << 56};
  }
  DEVCOMM_HOST_DEVICE static constexpr awaited_span unpack(uint64_t low, uint64_t high) {
    return {static_cast<uint32_t>(high >> 48 & 0xffu),
            static_cast<uint32_t>(low),
            static_cast<uint32_t>(low >> 32),
            static_cast<uint32_t>(high),
            static_cast<uint32_t>(high >> 32 & 0xffffu),
            static_cast<span_kind>(high >> 56)};
  }
};

/// What a record of a call of a collective has instead of a name.
struct call_span {
  collective_call which;
  uint32_t what;   ///< `operation` that waits
  uint64_t count;  ///< of packs in the slice, or of elements between windows

  DEVCOMM_HOST_DEVICE constexpr span_name pack() const {
    return {count,
            static_cast<uint64_t>(which) | uint64_t{what & 0xffu} << 48 | static_cast<uint64_t>(span_kind::call) << 56};
  }
  DEVCOMM_HOST_DEVICE static constexpr call_span unpack(uint64_t low, uint64_t high) {
    return {static_cast<collective_call>(high & 0xffu), static_cast<uint32_t>(high >> 48 & 0xffu), low};
  }
};

/// Where the trace of one rank lies in its resource window: a ring of records for each of the first `warps` warps of
/// each of the first `blocks` blocks. Lane 0 of a warp writes its ring, alone.
struct trace_rings {
  uint64_t offset;  ///< bytes from the start of the resource window
  uint32_t blocks;
  uint32_t warps;  ///< of each block
  uint32_t spans;  ///< that each ring holds; 0 when nothing is traced
  uint32_t unused;

  /// Those that `needs` has room for.
  DEVCOMM_HOST_DEVICE static constexpr trace_rings of(const requirements& needs) {
    const implicit_handle& handle = needs.implicit(implicit_resource::trace);
    return {handle.offset, handle.count, handle.members, handle.extent, 0};
  }

  DEVCOMM_HOST_DEVICE constexpr uint32_t rings() const { return blocks * warps; }
  /// Count of the spans that had no ring, which follows nothing; then one count of spans written for each ring.
  DEVCOMM_HOST_DEVICE constexpr uint64_t count(uint32_t ring) const { return uint64_t{1 + ring} * sizeof(uint32_t); }
  DEVCOMM_HOST_DEVICE constexpr uint64_t record(uint32_t ring, uint32_t index) const {
    return records() + (uint64_t{ring} * spans + index) * sizeof(trace_record);
  }
  DEVCOMM_HOST_DEVICE constexpr uint64_t records() const { return detail::round_up_to_line(count(rings())); }
  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return detail::round_up_to_line(record(rings(), 0)); }
};

static_assert(sizeof(trace_rings) == 24, "part of resource_header");

/// Asks for a trace of kernels of up to `blocks` blocks: `spans` of each of the first `warps` warps of a block, on
/// every rank; 32 bytes each. Groups of whole blocks need one warp. *Requires* that it is added at most once.
///
///     comm.create_device_comm(comm.requirements().lsa_barriers(blocks).with(tracing{blocks, 256}));
struct tracing {
  uint32_t blocks;
  uint32_t spans;
  uint32_t warps = 1;

  DEVCOMM_HOST_DEVICE constexpr resource_handle add_to(requirements& needs) const {
    const uint64_t bytes = trace_rings{0, blocks, warps, spans, 0}.bytes();
    const resource_handle handle = needs.add_items(bytes, 128, {blocks, spans, warps}, blocks, warps);
    needs.set_implicit(implicit_resource::trace, {handle, spans});
    return handle;
  }
};

}  // namespace devcomm
