/// \file cooperative_groups.h
/// CUDA's cooperative groups, for the simulator: thread blocks, tiles of up to 32 threads, the lanes
/// that come together, and the grid of a cooperative launch.
#pragma once

#include <cuda_runtime.h>
#include <devcomm/simulator/detail/cluster.hpp>

#include <type_traits>

namespace cooperative_groups {

/// All threads of the block.
class thread_block {
 public:
  /// Lanes of a warp may come by different ways, as in CUDA.
  static void sync() { devcomm::simulator::detail::block_barrier(0, 0, false); }
  static unsigned thread_rank() { return devcomm::simulator::detail::thread_rank(); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

namespace detail {

/// Lanes of one warp, ranked from the lowest.
class lane_set {
 public:
  explicit lane_set(unsigned mask) : mask_(mask) {}
  void sync() const { __syncwarp(mask_); }
  unsigned size() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const {
    return static_cast<unsigned>(__popc(mask_ & ((1u << devcomm::simulator::detail::own_lane()) - 1u)));
  }
  [[nodiscard]] unsigned lanes() const { return mask_; }
  int any(int predicate) const { return __any_sync(mask_, predicate); }
  int all(int predicate) const { return __all_sync(mask_, predicate); }
  unsigned ballot(int predicate) const { return ranks_of(__ballot_sync(mask_, predicate)); }
  template <class T>
  unsigned match_any(T value) const {
    return ranks_of(__match_any_sync(mask_, value));
  }
  template <class T>
  T shfl(T value, unsigned rank) const {
    return take(value, rank % size());
  }
  /// Ranks outside the group give the caller's own value.
  template <class T>
  T shfl_up(T value, unsigned delta) const {
    return take(value, thread_rank() < delta ? thread_rank() : thread_rank() - delta);
  }
  template <class T>
  T shfl_down(T value, unsigned delta) const {
    return take(value, thread_rank() + delta >= size() ? thread_rank() : thread_rank() + delta);
  }

 protected:
  /// Lane of the member with this rank.
  unsigned lane_of(unsigned rank) const {
    unsigned rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return static_cast<unsigned>(__builtin_ctz(rest));
  }
  /// A mask of lanes as a mask of ranks.
  unsigned ranks_of(unsigned lanes) const {
    unsigned ranks = 0;
    unsigned rank = 0;
    for (unsigned rest = mask_; rest != 0; rest &= rest - 1, ++rank) {
      ranks |= (lanes >> __builtin_ctz(rest) & 1u) << rank;
    }
    return ranks;
  }
  template <class T>
  T take(T value, unsigned rank) const {
    return devcomm::simulator::detail::shuffle_from(mask_, value, static_cast<int>(lane_of(rank)));
  }

  unsigned mask_;
};

}  // namespace detail

/// `Size` consecutive threads of a block, 1 to 32.
template <unsigned Size, class Parent = void>
class thread_block_tile : public detail::lane_set {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  thread_block_tile() : detail::lane_set(mask_of_caller()) {}
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned meta_group_rank() { return devcomm::simulator::detail::thread_rank() / Size; }
  static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
  template <class T>
  T shfl_xor(T value, unsigned bits) const {
    return take(value, (thread_rank() ^ bits) < Size ? thread_rank() ^ bits : thread_rank());
  }

 private:
  static unsigned mask_of_caller() {
    const unsigned first = static_cast<unsigned>(devcomm::simulator::detail::own_lane()) & ~(Size - 1);
    return (Size == 32 ? 0xffffffffu : (1u << (Size % 32)) - 1u) << first;
  }
};

template <unsigned Size>
thread_block_tile<Size, thread_block> tiled_partition(const thread_block&) {
  return {};
}
template <unsigned Size, unsigned Larger, class Parent>
thread_block_tile<Size, thread_block_tile<Larger, Parent>> tiled_partition(const thread_block_tile<Larger, Parent>&) {
  static_assert(Size <= Larger, "a tile is no larger than what it is part of");
  return {};
}

/// The lanes of a warp that called `coalesced_threads` together.
class coalesced_group : public detail::lane_set {
 public:
  using detail::lane_set::lane_set;
};
DEVCOMM_SIMULATOR_CONVERGENT inline coalesced_group coalesced_threads() {
  return coalesced_group(devcomm::simulator::detail::converged_lanes(__builtin_return_address(0)));
}

/// Those of a group that give the same label.
template <class T>
coalesced_group labeled_partition(const detail::lane_set& group, T label) {
  return coalesced_group(__match_any_sync(group.lanes(), label));
}
inline coalesced_group binary_partition(const detail::lane_set& group, bool predicate) {
  return labeled_partition(group, predicate ? 1 : 0);
}

/// All threads of a launch; only a cooperative one can synchronize.
class grid_group {
 public:
  static bool is_valid() { return devcomm::simulator::detail::cooperative_launch(); }
  static void sync() { devcomm::simulator::detail::grid_barrier(); }
  static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() {
    return blockIdx.x + 1ull * gridDim.x * (blockIdx.y + 1ull * gridDim.y * blockIdx.z);
  }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 block_index() { return blockIdx; }
};
inline grid_group this_grid() { return {}; }

/// All threads of a cluster of blocks, or of the block where the launch has no clusters.
class cluster_group {
 public:
  struct arrival_token {};
  static void sync() {
    barrier_arrive();
    barrier_wait();
  }
  static arrival_token barrier_arrive() {
    devcomm::simulator::detail::arrive_at_cluster(true);
    return {};
  }
  static void barrier_wait() { devcomm::simulator::detail::wait_for_cluster(true); }
  static void barrier_wait(arrival_token&&) { barrier_wait(); }
  static unsigned block_rank() { return devcomm::simulator::detail::own_place_in_cluster().rank; }
  static dim3 block_index() { return devcomm::simulator::detail::own_place_in_cluster().index; }
  static dim3 dim_blocks() { return devcomm::simulator::detail::own_place_in_cluster().blocks; }
  static unsigned num_blocks() { return dim_blocks().x * dim_blocks().y * dim_blocks().z; }
  static dim3 dim_threads() {
    return {dim_blocks().x * blockDim.x, dim_blocks().y * blockDim.y, dim_blocks().z * blockDim.z};
  }
  static unsigned num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned size() { return num_threads(); }
  static unsigned thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  template <class T>
  static T* map_shared_rank(T* pointer, unsigned rank) {
    return static_cast<T*>(devcomm::simulator::detail::mapped_pointer(pointer, rank));
  }
  static unsigned query_shared_rank(const void* pointer) {
    return devcomm::simulator::detail::rank_of_pointer(pointer);
  }
};
inline cluster_group this_cluster() { return {}; }

/// By one thread of the group.
template <class Group, class Function, class... Arguments>
void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
  if (group.thread_rank() == 0) static_cast<Function&&>(function)(static_cast<Arguments&&>(arguments)...);
}

template <class Group>
void sync(const Group& group) {
  group.sync();
}

}  // namespace cooperative_groups
