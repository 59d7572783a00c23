/// \file requirements.hpp
/// What a kernel needs from its device communicator, laid out as it is asked for.
#pragma once

#include <devcomm/config.hpp>
#include <devcomm/team.hpp>

namespace devcomm {

namespace lsa {
struct barriers;
}  // namespace lsa

namespace detail {

/// `bytes` rounded up to lines of 128.
DEVCOMM_HOST_DEVICE constexpr uint64_t round_up_to_line(uint64_t bytes) { return (bytes + 127) / 128 * 128; }

/// `items * item_bytes`, or more than any window has where that would not fit 64 bits, so that creation fails for want
/// of memory rather than make too little.
DEVCOMM_HOST_DEVICE constexpr uint64_t limited_product(uint64_t items, uint64_t item_bytes) {
  constexpr uint64_t most = uint64_t{1} << 61;
  return item_bytes != 0 && items > most / item_bytes ? most : items * item_bytes;
}

/// `number`, or the largest one of 32 bits, which is more than creation of the device communicator allows.
DEVCOMM_HOST_DEVICE constexpr uint32_t limited_number(uint64_t number) {
  constexpr uint32_t most = ~0u;
  return number < most ? static_cast<uint32_t>(number) : most;
}

}  // namespace detail

/// Where a feature's items are in the resource window. The features' own handles derive from it, so that one cannot be
/// passed for another. Plain data; pass it to the kernel.
struct resource_handle {
  uint64_t offset;   ///< bytes from the start of the resource window
  uint32_t count;    ///< items, indexed from 0
  uint16_t members;  ///< size of the team that they were made for
  uint16_t owner;    ///< `requirements::owner` of those that made it
};

/// `count` elements of `T` on every rank, in the resource window. Plain data; pass it to the kernel.
template <class T>
struct buffer_handle {
  uint64_t offset;     ///< bytes from the start of the resource window
  uint64_t count;      ///< elements on each rank
  uint16_t owner = 0;  ///< as `resource_handle::owner`
};

/// What was asked for, beside its offset and size. It enters the fingerprint, so that ranks which ask for different
/// things get an error.
struct resource_shape {
  uint64_t first;
  uint64_t second = 0;
  uint64_t third = 0;
};

/// Resources that device code finds without a handle: the host library writes their handles into the device
/// communicator.
enum class implicit_resource : uint32_t {
  lsa_barriers,  ///< `device_comm::lsa_barriers`
  trace,         ///< `resource_header::trace`
};

/// What features need of the host and its links beside memory. Creation of the device communicator fails, and says why,
/// where there is none.
enum class demand : uint32_t {
  ll128,        ///< links between ranks keep lines of 128 bytes whole
  whole_world,  ///< the LSA team is the world, see `lsa::whole_world`
  multicast,    ///< of the resource window; its value is a `multimem::policy`
};

/// Signals of each context of the network that a feature has to itself, see `requirements::add_signals`. Plain data,
/// for the feature's handle; `gin::context_handle::first_signal` says which they are.
struct signal_range {
  uint32_t from_end;  ///< of the first one, counted back from the end of the signals of the kernel and of features
};

/// What is asked of the network, see `gin::contexts`. All zeros where nothing is.
struct network_request {
  uint64_t offset;    ///< of the first context in the resource window
  uint32_t contexts;  ///< how many
  uint32_t peers;     ///< ranks of the world
  uint32_t signals;   ///< of each context; before contexts are asked for, those of features
  uint32_t counters;  ///< of each context
  uint32_t depth;     ///< descriptors of each context
  uint32_t asked;     ///< how often, up to 2; 3 where a feature asked for signals afterwards
};

/// Handle of an implicit resource; `count` is 0 where nobody asked for it.
struct implicit_handle : resource_handle {
  uint32_t extent;  ///< elements of an item, where items have a size of their own
};

/// Bytes at the start of every resource window that the library keeps for itself, see `resource_header`.
inline constexpr uint64_t resource_header_bytes = 256;

/// Collects resources and lays them out. Every rank must ask for the same things in the same
/// order: creation of the device communicator compares `fingerprint` and fails on all ranks if not.
///
/// A feature is any class with `add_to(requirements&)`, which reserves bytes by `add` and returns a handle. This header
/// knows none of them; those of the library live beside their sessions, and users can write their own.
///
///     requirements needs = comm.requirements().lsa_barriers(blocks);
///     const lsa::lamport_handle mailboxes = needs.add(lsa::lamport_mailboxes{comm.lsa(), blocks, packets});
///     const buffer_handle<float> scratch = needs.add_buffer<float>(count);
///     const auto device_comm = comm.create_device_comm(needs);
///
/// Resources start as zeros.
class requirements {
 public:
  /// `lsa` is the communicator's LSA team. `owner` identifies whose handles they are, see there.
  DEVCOMM_HOST_DEVICE explicit constexpr requirements(team lsa, uint16_t owner = 0) : lsa_(lsa), owner_(owner) {}

  /// Reserves `bytes` on every rank, at a multiple of `alignment`. Returns the offset in the resource window.
  DEVCOMM_HOST_DEVICE constexpr uint64_t add(uint64_t bytes, uint64_t alignment, resource_shape what) {
    const uint64_t offset = (bytes_ + alignment - 1) / alignment * alignment;
    bytes_ = bytes < max_bytes && offset < max_bytes - bytes ? offset + bytes : max_bytes;
    mix(offset);
    mix(bytes);
    mix(what.first);
    mix(what.second);
    mix(what.third);
    return offset;
  }

  /// The same for `count` items of a team of `members` ranks. Returns their handle.
  DEVCOMM_HOST_DEVICE constexpr resource_handle add_items(uint64_t bytes, uint64_t alignment, resource_shape what,
                                                          uint32_t count, uint32_t members) {
    constexpr uint32_t max_members = 0xffff;
    const uint64_t offset = add(members <= max_members ? bytes : max_bytes, alignment, what);
    return {offset, count, static_cast<uint16_t>(members <= max_members ? members : max_members), owner_};
  }

  /// The same in the network memory, whose content kernels put to other ranks, see `gin::buffer`. Returns the offset
  /// there.
  DEVCOMM_HOST_DEVICE constexpr uint64_t add_for_network(uint64_t bytes, uint64_t alignment, resource_shape what) {
    constexpr uint64_t mark = 0x6e6574;
    const uint64_t before = bytes_;
    bytes_ = network_bytes_;
    const uint64_t offset = add(bytes, alignment, what);
    network_bytes_ = bytes_;
    bytes_ = before;
    mix(mark);
    return offset;
  }

  /// Adds a feature; returns its handle.
  template <class Feature>
  DEVCOMM_HOST_DEVICE constexpr auto add(const Feature& feature) {
    return feature.add_to(*this);
  }

  /// Adds a feature that needs no handle, such as `tracing`.
  template <class Feature>
  DEVCOMM_HOST_DEVICE constexpr requirements& with(const Feature& feature) {
    static_cast<void>(feature.add_to(*this));
    return *this;
  }

  /// Makes `count` barriers of the LSA team the communicator's own: a session that names only an index uses them.
  /// Usually one for each block. *Requires* `lsa/barriers.hpp`, and that it is called at most once.
  template <class Barriers = lsa::barriers>
  DEVCOMM_HOST_DEVICE constexpr requirements& lsa_barriers(uint32_t count) {
    set_implicit(implicit_resource::lsa_barriers, {add(Barriers{lsa_, count}), 0});
    return *this;
  }

  /// `count` elements of `T` on every rank, aligned to at least 128 bytes.
  template <class T>
  DEVCOMM_HOST_DEVICE constexpr buffer_handle<T> add_buffer(uint64_t count) {
    const uint64_t bytes = count <= max_bytes / sizeof(T) ? count * sizeof(T) : max_bytes;
    return {add(bytes, alignof(T) > 128 ? alignof(T) : 128, {sizeof(T)}), count, owner_};
  }

  // For features.

  /// Written into the handles and into the device communicator: in checked mode, device code refuses handles of another
  /// one. Those of copies of one `requirements` have the same owner. 0: not known, and not compared; that of
  /// `host::communicator::requirements` never is.
  DEVCOMM_HOST_DEVICE constexpr uint16_t owner() const { return owner_; }

  /// Device code finds resource `which` by `handle`. There is one of each: creation of the device communicator fails
  /// where it was asked for twice.
  DEVCOMM_HOST_DEVICE constexpr void set_implicit(implicit_resource which, const implicit_handle& handle) {
    asked_[static_cast<uint32_t>(which)] += asked_[static_cast<uint32_t>(which)] < 2 ? 1u : 0u;
    implicit_[static_cast<uint32_t>(which)] = handle;
  }
  /// 0 asks for nothing; of several other values the smallest, which is the strictest, holds.
  DEVCOMM_HOST_DEVICE constexpr void require(demand what, uint32_t value = 1) {
    uint32_t& asked = demands_[static_cast<uint32_t>(what)];
    if (asked == 0 || (value != 0 && value < asked)) asked = value;
  }

  /// Takes `count` signals of each context of the network for one feature alone. They lie behind the kernel's own,
  /// which are numbered from 0. `gin::contexts` makes room for those of all features, so it is added after them:
  /// creation of the device communicator fails where signals are taken later.
  DEVCOMM_HOST_DEVICE constexpr signal_range add_signals(uint64_t count) {
    constexpr uint64_t mark = 0x7369676e;
    mix(mark);
    mix(count);
    if (network_.asked != 0) {
      network_.asked = 3;
      return {0};
    }
    const uint32_t some = detail::limited_number(count);
    network_.signals = detail::limited_number(uint64_t{network_.signals} + some);
    return {network_.signals};
  }
  /// Signals that features have taken, while contexts are not asked for.
  DEVCOMM_HOST_DEVICE constexpr uint32_t added_signals() const { return network_.asked == 0 ? network_.signals : 0; }

  /// Contexts of the network, whose queues the host library makes. Creation of the device communicator fails where
  /// there is none, or where they were asked for twice.
  DEVCOMM_HOST_DEVICE constexpr void require_network(const network_request& request) {
    const uint32_t before = network_.asked;
    network_ = request;
    network_.asked = before == 0 ? 1 : 2;
  }

  // For the host library.

  DEVCOMM_HOST_DEVICE constexpr uint64_t bytes() const { return bytes_; }
  DEVCOMM_HOST_DEVICE constexpr uint64_t network_bytes() const { return network_bytes_; }
  DEVCOMM_HOST_DEVICE constexpr uint64_t fingerprint() const { return fingerprint_; }
  DEVCOMM_HOST_DEVICE constexpr const implicit_handle& implicit(implicit_resource which) const {
    return implicit_[static_cast<uint32_t>(which)];
  }
  DEVCOMM_HOST_DEVICE constexpr team lsa() const { return lsa_; }
  /// 0 where nothing was required.
  DEVCOMM_HOST_DEVICE constexpr uint32_t required(demand what) const { return demands_[static_cast<uint32_t>(what)]; }
  DEVCOMM_HOST_DEVICE constexpr const network_request& network() const { return network_; }
  /// Whether resource `which` was asked for more than once.
  DEVCOMM_HOST_DEVICE constexpr bool is_ambiguous(implicit_resource which) const {
    return asked_[static_cast<uint32_t>(which)] > 1;
  }

 private:
  /// Sums that would overflow end here, and no window is that large: creation then fails for want of memory.
  static constexpr uint64_t max_bytes = uint64_t{1} << 60;

  /// FNV-1a, a word at a time.
  DEVCOMM_HOST_DEVICE constexpr void mix(uint64_t word) { fingerprint_ = (fingerprint_ ^ word) * 0x100000001b3u; }

  team lsa_;
  uint64_t bytes_ = resource_header_bytes;
  uint64_t network_bytes_ = 0;
  uint64_t fingerprint_ = 0xcbf29ce484222325u;
  implicit_handle implicit_[2]{};
  uint32_t asked_[2]{};  // how often, up to 2
  uint32_t demands_[3]{};
  uint16_t owner_;
  network_request network_{};
};

}  // namespace devcomm
