/// \file group.cuh
/// Thread groups: what a group is, and devcomm's own: thread, tile, lanes, block, warp_span. CUDA's cooperative groups
/// and classes of the user's own take part too.
///
///     lsa::barrier_session barrier{block{}, comm, blockIdx.x};      // all threads of the block
///     lsa::barrier_session halves{warp_span(4 * half, 4, 1 + half), comm, 2 * blockIdx.x + half};
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/arch/language.hpp>
#include <devcomm/assert.hpp>

namespace devcomm {

namespace detail {

template <class Group, class = void>
inline constexpr bool has_group_members = false;
template <class Group>
inline constexpr bool has_group_members<
    Group, void_t<decltype(declval<const Group&>().thread_rank()), decltype(declval<const Group&>().size()),
                  decltype(declval<const Group&>().sync())>> = true;

template <class Group, class = void>
inline constexpr bool has_any = false;
template <class Group>
inline constexpr bool has_any<Group, void_t<decltype(declval<const Group&>().any(true))>> = true;

template <class Group, class T, class = void>
inline constexpr bool has_broadcast = false;
template <class Group, class T>
inline constexpr bool
    has_broadcast<Group, T, void_t<decltype(declval<const Group&>().broadcast(declval<const T&>(), 0u))>> = true;

/// `value` of lane `source_lane`, for the lanes of `mask`, all of which call.
template <class T>
DEVCOMM_DEVICE T shuffle(uint32_t mask, const T& value, uint32_t source_lane) {
  static_assert(is_trivially_copyable<T>, "only trivially copyable values travel between lanes");
  constexpr int words = (sizeof(T) + 3) / 4;
  uint32_t raw[words] = {};
  copy_bytes(raw, &value, sizeof(T));
  for (int i = 0; i < words; ++i) raw[i] = arch::shuffle(mask, raw[i], source_lane);
  T result;
  copy_bytes(&result, raw, sizeof(T));
  return result;
}

/// How many bits are set: the usual tree of sums.
DEVCOMM_DEVICE inline uint32_t count_bits(uint32_t bits) {
  bits -= bits >> 1 & 0x55555555u;
  bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
  return ((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

}  // namespace detail

/// Whether `Group` can take part in devcomm's calls: `thread_rank()`, `size()` and `sync()`, as
/// CUDA's cooperative groups have. A group that also has `any(bool)`, returning whether any member
/// passed true to all of them, saves a read of memory after each wait.
///
/// Destructors of sessions synchronize the group where some lanes of a warp may return early. A group whose `sync()` is
/// `__syncthreads()`, which all lanes of a warp must reach by one way, also has `sync_apart()`, which calls
/// `block::sync_apart()`. Without it, a kernel that returns early hangs on GPUs, and the simulator reports it.
template <class Group>
inline constexpr bool is_group = detail::has_group_members<Group>;

/// `value` of member `root`, for all members of `group`.
template <class Group, class T>
DEVCOMM_DEVICE T broadcast(const Group& group, const T& value, uint32_t root) {
  static_assert(detail::has_broadcast<Group, T>,
                "this group cannot broadcast: use a group of devcomm, or give it a member broadcast(value, root)");
  return group.broadcast(value, root);
}

/// The calling thread alone.
struct thread {
  DEVCOMM_DEVICE static constexpr uint32_t thread_rank() { return 0; }
  DEVCOMM_DEVICE static constexpr uint32_t size() { return 1; }
  DEVCOMM_DEVICE static void sync() {}
  DEVCOMM_DEVICE static bool any(bool predicate) { return predicate; }

  template <class T>
  DEVCOMM_DEVICE static T broadcast(const T& value, uint32_t root) {
    DEVCOMM_ASSERT(root == 0, "broadcast root is outside the group");
    static_cast<void>(root);
    return value;
  }
};

/// `Size` consecutive lanes of the caller's warp, starting at a multiple of `Size`.
///
/// *Requires* that all of them call each function together.
template <int Size>
struct tile {
  static_assert(Size == 1 || Size == 2 || Size == 4 || Size == 8 || Size == 16 || Size == 32,
                "a tile is 1, 2, 4, 8, 16 or 32 lanes; use devcomm::lanes for other shapes");

  DEVCOMM_DEVICE static uint32_t thread_rank() { return arch::lane() % Size; }
  DEVCOMM_DEVICE static constexpr uint32_t size() { return Size; }
  DEVCOMM_DEVICE static void sync() { arch::sync_warp(mask()); }
  DEVCOMM_DEVICE static bool any(bool predicate) { return arch::any(mask(), predicate); }

  /// `value` of member `root`, for all members.
  template <class T>
  DEVCOMM_DEVICE static T broadcast(const T& value, uint32_t root) {
    DEVCOMM_ASSERT(root < size(), "broadcast root is outside the group");
    return detail::shuffle(mask(), value, first_lane() + root);
  }

  /// The lanes as CUDA's warp functions name them.
  DEVCOMM_DEVICE static uint32_t mask() {
    DEVCOMM_ASSERT(arch::thread_rank() - thread_rank() + Size <= arch::block_threads(),
                   "the block ends within the tile");
    if constexpr (Size == 32) return arch::full_mask;
    return ((1u << (Size % 32)) - 1u) << first_lane();
  }

 private:
  DEVCOMM_DEVICE static uint32_t first_lane() { return arch::lane() / Size * Size; }
};

using warp = tile<32>;

/// The lanes of the caller's warp whose bit is set in `mask`, ranked from the lowest.
///
/// *Requires* that the caller is one of them, and that all of them call each function together.
class lanes {
 public:
  DEVCOMM_DEVICE explicit lanes(uint32_t mask) : mask_(mask) {
    DEVCOMM_ASSERT((mask >> arch::lane() & 1u) != 0, "the calling lane is not in the mask of its group");
  }

  DEVCOMM_DEVICE uint32_t thread_rank() const { return detail::count_bits(mask_ & ((1u << arch::lane()) - 1u)); }
  DEVCOMM_DEVICE uint32_t size() const { return detail::count_bits(mask_); }
  DEVCOMM_DEVICE void sync() const { arch::sync_warp(mask_); }
  DEVCOMM_DEVICE bool any(bool predicate) const { return arch::any(mask_, predicate); }

  /// `value` of member `root`, for all members.
  template <class T>
  DEVCOMM_DEVICE T broadcast(const T& value, uint32_t root) const {
    DEVCOMM_ASSERT(root < size(), "broadcast root is outside the group");
    return detail::shuffle(mask_, value, lane_of(root));
  }

  DEVCOMM_DEVICE uint32_t mask() const { return mask_; }

 private:
  /// Lane of the member with `rank` set bits below it.
  DEVCOMM_DEVICE uint32_t lane_of(uint32_t rank) const {
    uint32_t rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return detail::count_bits((rest & (0u - rest)) - 1u);
  }

  uint32_t mask_;
};

/// The lanes that reach this call together, as far as the hardware knows.
DEVCOMM_DEVICE inline lanes coalesced() { return lanes(arch::active_mask()); }

/// All threads of the block.
///
/// *Requires* that all of them call each function together.
struct block {
  DEVCOMM_DEVICE static uint32_t thread_rank() { return arch::thread_rank(); }
  DEVCOMM_DEVICE static uint32_t size() { return arch::block_threads(); }
  DEVCOMM_DEVICE static void sync() { arch::sync_block(); }
  /// `sync`, also where lanes of one warp come from different branches or early returns.
  DEVCOMM_DEVICE static void sync_apart() { arch::sync_block_apart(); }
  DEVCOMM_DEVICE static bool any(bool predicate) { return arch::sync_block_or(predicate); }

  /// `value` of member `root`, for all members. Uses `sizeof(T)` bytes of shared memory.
  template <class T>
  DEVCOMM_DEVICE static T broadcast(const T& value, uint32_t root) {
    static_assert(detail::is_trivially_copyable<T>, "only trivially copyable values are broadcast");
    DEVCOMM_ASSERT(root < size(), "broadcast root is outside the group");
    T* slot = arch::shared_array<block, T, 1>();
    sync();  // the last broadcast has been read
    if (thread_rank() == root) *slot = value;
    sync();
    return *slot;
  }
};

/// `warps` warps of the block from `first_warp` on, so that parts of a block can work apart.
///
/// *Requires* that all their threads call each function together, and that groups that live at the
/// same time use different barriers.
class warp_span {
 public:
  /// `barrier`: a hardware barrier, 1 to 15. 0 is the block's own.
  DEVCOMM_DEVICE warp_span(uint32_t first_warp, uint32_t warps, uint32_t barrier)
      : first_(first_warp * arch::warp_threads), size_(warps * arch::warp_threads), barrier_(barrier) {
    DEVCOMM_ASSERT(barrier >= 1 && barrier < static_cast<uint32_t>(barriers),
                   "a warp_span needs a named barrier from 1 to 15");
    DEVCOMM_ASSERT(warps > 0 && first_ + size_ <= arch::block_threads(),
                   "the warps of a warp_span must be whole warps of the block");
    DEVCOMM_ASSERT(thread_rank() < size_, "the calling thread is not in its warp_span");
  }

  DEVCOMM_DEVICE uint32_t thread_rank() const { return arch::thread_rank() - first_; }
  DEVCOMM_DEVICE uint32_t size() const { return size_; }
  DEVCOMM_DEVICE void sync() const { arch::sync_named(barrier_, size_); }
  DEVCOMM_DEVICE bool any(bool predicate) const { return arch::sync_named_or(barrier_, size_, predicate); }

  /// `value` of member `root`, for all members. Uses 16 times `sizeof(T)` bytes of shared memory.
  template <class T>
  DEVCOMM_DEVICE T broadcast(const T& value, uint32_t root) const {
    static_assert(detail::is_trivially_copyable<T>, "only trivially copyable values are broadcast");
    DEVCOMM_ASSERT(root < size_, "broadcast root is outside the group");
    T* slot = arch::shared_array<warp_span, T, barriers>() + barrier_;
    sync();  // the last broadcast has been read
    if (thread_rank() == root) *slot = value;
    sync();
    return *slot;
  }

 private:
  static constexpr int barriers = 16;

  uint32_t first_;
  uint32_t size_;
  uint32_t barrier_;
};

namespace detail {

/// Whether `Group` is all threads of a block: `block`, or CUDA's `thread_block`.
template <class Group, class = void>
inline constexpr bool is_whole_block = false;
template <>
inline constexpr bool is_whole_block<block> = true;
template <class Group>
inline constexpr bool is_whole_block<Group, void_t<decltype(Group::group_index()), decltype(Group::thread_index())>> =
    true;

/// Whether `Group` is the lanes of a warp, in order: `warp`, or CUDA's `thread_block_tile<32>`.
template <class Group, class = void>
inline constexpr bool is_whole_warp = false;
template <>
inline constexpr bool is_whole_warp<warp> = true;
template <class Group>
inline constexpr bool is_whole_warp<
    Group, void_t<enable_if_t<Group::size() == arch::warp_threads>, decltype(declval<const Group&>().shfl(0, 0))>> =
    true;

template <class Group, class = void>
inline constexpr bool has_sync_apart = false;
template <class Group>
inline constexpr bool has_sync_apart<Group, void_t<decltype(declval<const Group&>().sync_apart())>> = true;

/// Synchronizes the group in a session's destructor, which some threads of a warp may reach by an early return.
template <class Group>
DEVCOMM_DEVICE void sync_at_end(const Group& group) {
  if constexpr (has_sync_apart<Group>) {
    group.sync_apart();
  } else if constexpr (is_whole_block<Group>) {
    arch::sync_block_apart();
  } else {
    group.sync();
  }
}

}  // namespace detail

}  // namespace devcomm
