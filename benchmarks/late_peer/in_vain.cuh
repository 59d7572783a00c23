/// \file in_vain.cuh
/// Threads that wait for LL packets which nobody sends, and what two ranks do meanwhile.
///
/// What is measured is launched first, and begins when all blocks of waits have begun: so it has its place on the GPU.
/// The waits are answered by a kernel behind it in its stream. All loops end by themselves.
#pragma once

#include <devcomm/devcomm.cuh>

#include <cstdint>

namespace {

/// Each rank's in a window. Counters are never reset, so a kernel is told what they were.
struct control {
  static constexpr unsigned most_stamps = 256;

  alignas(128) std::uint32_t begun;  ///< blocks that wait, of all launches so far
  alignas(128) std::uint32_t ball;   ///< of ping-pong
  alignas(128) std::uint32_t wrong;  ///< results, and looks that ended without what they were for
  alignas(128) std::uint64_t stamps[most_stamps];
};

/// `begun` of both ranks when all blocks that are to wait do so.
struct begun_counts {
  std::uint32_t of[2];
};

__device__ void count_wrong(control* own) {
  devcomm::detail::arch::fetch_add<devcomm::memory_order::relaxed, devcomm::scope::device>(&own->wrong, 1u);
}

/// Looks at the word until it has the value, for a few seconds at most.
__device__ bool see(const std::uint32_t* word, std::uint32_t value) {
  constexpr unsigned most_looks = 1 << 22;
  for (unsigned i = 0; i < most_looks; ++i)
    if (devcomm::detail::arch::load<devcomm::memory_order::relaxed, devcomm::scope::system>(word) == value) return true;
  return false;
}

__device__ bool see_begun(const devcomm::sym_ptr<control>& shared, const begun_counts& all) {
  return see(&shared.lsa(0)->begun, all.of[0]) && see(&shared.lsa(1)->begun, all.of[1]);
}

inline constexpr unsigned most_waiting_threads = 512;

/// Each thread waits for a packet of its own.
__global__ void __launch_bounds__(most_waiting_threads)
    wait_in_vain(devcomm::device_comm comm, devcomm::ll_handle channels, int sender, control* own) {
  devcomm::lsa::ll_session<devcomm::block> channel{devcomm::block{}, comm, channels, blockIdx.x};
  channel.begin_round();
  if (threadIdx.x == 0)
    devcomm::detail::arch::fetch_add<devcomm::memory_order::relaxed, devcomm::scope::system>(&own->begun, 1u);
  std::uint64_t data[1][1];
  channel.receive(sender, sender + 1, threadIdx.x, data);
  if (data[0][0] != threadIdx.x) count_wrong(own);
}

/// Sends those packets.
__global__ void __launch_bounds__(most_waiting_threads)
    answer(devcomm::device_comm comm, devcomm::ll_handle channels, int receiver) {
  devcomm::lsa::ll_session<devcomm::block> channel{devcomm::block{}, comm, channels, blockIdx.x};
  channel.begin_round();
  channel.send(receiver, threadIdx.x, threadIdx.x);
}

/// A word goes back and forth between one thread on each rank, by relaxed stores and loads of system scope as devcomm's
/// packets do. The time is kept after every `trips` round trips.
__global__ void ping_pong(devcomm::sym_ptr<control> shared, int self, begun_counts all, std::uint32_t last,
                          unsigned stamps, unsigned trips) {
  namespace arch = devcomm::detail::arch;
  constexpr auto relaxed = devcomm::memory_order::relaxed;
  control* own = shared.local();
  std::uint32_t* theirs = &shared.lsa(1 - self)->ball;
  bool alive = see_begun(shared, all);
  std::uint32_t ball = last;
  for (unsigned s = 0; alive && s < stamps; ++s) {
    for (unsigned t = 0; alive && t < trips; ++t) {
      ++ball;
      if (self == 0) arch::store<relaxed, devcomm::scope::system>(theirs, ball);
      alive = see(&own->ball, ball);
      if (self == 1) arch::store<relaxed, devcomm::scope::system>(theirs, ball);
    }
    own->stamps[s] = arch::time_stamp();
  }
  if (!alive) count_wrong(own);
}

__device__ devcomm::detail::arch::vec16 stored_pack(std::uint64_t i, std::uint32_t salt) {
  const auto low = static_cast<std::uint32_t>(i);
  return {low, salt, ~low, low ^ salt};
}

/// Stores packs of 16 bytes to the peer; every block keeps when it begins and when its stores are there.
__global__ void __launch_bounds__(512)
    store_to_peer(devcomm::sym_ptr<control> shared, devcomm::sym_ptr<char> to, int self, begun_counts all,
                  std::uint64_t packs, std::uint32_t salt) {
  namespace arch = devcomm::detail::arch;
  control* own = shared.local();
  if (threadIdx.x == 0 && !see_begun(shared, all)) count_wrong(own);
  devcomm::block{}.sync();
  if (threadIdx.x == 0) own->stamps[2 * blockIdx.x] = arch::time_stamp();
  char* target = to.lsa(1 - self);
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step)
    arch::store16(target + i * 16, stored_pack(i, salt));
  arch::fence<devcomm::memory_order::acq_rel, devcomm::scope::system>();
  devcomm::block{}.sync();
  if (threadIdx.x == 0) own->stamps[2 * blockIdx.x + 1] = arch::time_stamp();
}

/// Counts what did not arrive.
__global__ void check_stored(const char* from, std::uint64_t packs, std::uint32_t salt, control* own) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step) {
    const auto is = devcomm::detail::arch::load16(from + i * 16);
    const auto want = stored_pack(i, salt);
    if (is.x != want.x || is.y != want.y || is.z != want.z || is.w != want.w) count_wrong(own);
  }
}

}  // namespace
