/// \file requirements.hpp
/// What a kernel needs from its device communicator, laid out as it is asked for.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/failure.hpp>
#include <devcomm/team.hpp>

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

/// Start of every resource window, before what was asked for.
struct resource_header {
  uint32_t failures;  ///< failed waits of this rank so far; hands out places in the failure log
  uint32_t reserved[31];
};

/// Shape of one barrier in the resource window: this rank's epoch and the outcome of a failed
/// wait, then one arrival flag for each member, then two launch contracts for each member (of even and odd
/// epochs).
struct barrier_layout {
  static constexpr uint64_t epoch_offset = 0;
  static constexpr uint64_t outcome_offset = 4;
  static constexpr uint64_t flags_offset = 16;

  DEVCOMM_HOST_DEVICE static constexpr uint64_t contracts_offset(uint32_t members) {
    return (flags_offset + sizeof(uint32_t) * members + 15) / 16 * 16;
  }
  /// Bytes from one barrier to the next; whole 128-byte lines, so that barriers share none.
  DEVCOMM_HOST_DEVICE static constexpr uint64_t stride(uint32_t members) {
    return (contracts_offset(members) + 2 * sizeof(launch_contract) * members + 127) / 128 * 128;
  }
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
    return {add(barrier_layout::stride(size) * count, 128, size), count, size};
  }

  /// `count` elements of `T` on every rank, aligned to at least 128 bytes.
  template <class T>
  DEVCOMM_HOST_DEVICE constexpr buffer_handle<T> add_buffer(uint64_t count) {
    return {add(count * sizeof(T), alignof(T) > 128 ? alignof(T) : 128, sizeof(T)), count};
  }

  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return bytes_; }
  DEVCOMM_HOST_DEVICE constexpr uint64_t fingerprint() const { return fingerprint_; }
  DEVCOMM_HOST_DEVICE constexpr barrier_handle lsa_barriers() const { return lsa_barriers_; }
  DEVCOMM_HOST_DEVICE constexpr team lsa() const { return lsa_; }

 private:
  DEVCOMM_HOST_DEVICE constexpr uint64_t add(uint64_t bytes, uint64_t alignment, uint64_t kind) {
    const uint64_t offset = (bytes_ + alignment - 1) / alignment * alignment;
    bytes_ = offset + bytes;
    mix(offset);
    mix(bytes);
    mix(kind);
    return offset;
  }

  /// FNV-1a, a word at a time.
  DEVCOMM_HOST_DEVICE constexpr void mix(uint64_t word) { fingerprint_ = (fingerprint_ ^ word) * 0x100000001b3u; }

  team lsa_;
  uint64_t bytes_ = sizeof(resource_header);
  uint64_t fingerprint_ = 0xcbf29ce484222325u;
  barrier_handle lsa_barriers_{};
};

}  // namespace devcomm
