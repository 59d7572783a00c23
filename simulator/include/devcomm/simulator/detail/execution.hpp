/// \file execution.hpp
/// What code inside a simulated kernel asks of the runtime. The shim and the seam are written with
/// these; kernels call neither directly. On a host thread the ones marked (host) do nothing.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Variables of the OS thread that runs a block; CUDA's types have members of the same names.
extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread uint3 blockDim;
extern __thread uint3 gridDim;

namespace devcomm {
struct failure_log;
}
namespace devcomm::detail {
struct wait_label;
struct session_id;
enum class session_call : uint8_t;
}  // namespace devcomm::detail

namespace devcomm::simulator::detail {

/// Types that one GPU instruction loads: trivially copyable, of 1 to 16 bytes.
template <class T>
using loadable =
    std::enable_if_t<std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0>;

/// Whether the caller is a simulated thread.
[[nodiscard]] bool in_kernel() noexcept;
/// Linear index of the calling thread in its block, x fastest.
[[nodiscard]] uint32_t thread_rank() noexcept;

/// (host) A preemption point: another thread may run.
void preempt();
/// (host) Follows a strong load of 1, 2, 4 or 8 bytes: `value` is what it found. A thread that keeps
/// finding the same sleeps until that memory changes.
void loaded(const void* address, std::size_t bytes, uint64_t value);
/// (host) Whether the words of a vector are loaded without a point between them at which another thread may run, as in
/// explorations, where a poll is one step; then `loaded_at_once` follows, with the words and what was found there.
[[nodiscard]] bool loads_at_once() noexcept;
inline constexpr int max_loaded_at_once = 4;
void loaded_at_once(const uint64_t* address, const uint64_t* values, int count);
/// (host) Follows a strong operation that changed so many bytes of memory.
void stored(const void* address, std::size_t bytes);

/// From here to `stored_line`, stores of the calling thread are one: all others see all of them or none.
void begin_line();
/// Follows the stores to a line of 128 bytes, the last 8 of which waits poll.
void stored_line(const void* line);
/// Follows the loads of a line by a thread that acts for others as well.
void loaded_line(const void* line);
/// The calling thread's wait, one of all lanes of its warp, polls these 8 bytes, and found `value`.
void loaded_with_warp(const void* address, uint64_t value);

/// The memory of each member behind a multicast address, in the order in which one access reaches them.
struct multicast_members {
  static constexpr int most = 128;
  int count;
  uint32_t first_word;  ///< which of an access's words, modulo their number, goes first
  char* at[most];
};
/// Until `end_multicast`, accesses of the calling thread are those of one instruction to a multicast address. Throws
/// `misuse` for other addresses, misaligned ones, and where a member has no memory.
[[nodiscard]] multicast_members begin_multicast(const void* address, std::size_t bytes);
void end_multicast();
/// The calling thread's accesses before by multicast addresses and by others are ordered with those after.
void fence_alias();

/// Synchronizes with the other threads of the block at `barrier` (0 to 15). `threads` arrivals complete it; 0
/// means all threads of the block that have not exited. Returns how many passed true.
uint32_t block_barrier(uint32_t barrier, uint32_t threads, bool predicate);
/// The same of barrier 0 and all threads, as `__syncthreads` does: one instruction for the lanes of a warp, so that it
/// is misuse where they are at calls of several lines, or some in a destructor after an early return of the kernel.
/// Copies that a compiler makes of a call have its line.
uint32_t aligned_block_barrier(bool predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE());
/// The kernel returns at this line: put into the source by devcomm_translate.py.
void return_at(int line) noexcept;
/// Synchronizes with all threads of a cooperative launch.
void grid_barrier();
/// Waits until the launch beside which this one has started ends, and sees what it did.
void wait_for_prior_launch();
/// Lets the next launch start, once all blocks have called this or ended.
void allow_dependent_launch();

enum class warp_operation : uint8_t { sync, ballot, shuffle, match, gather };
/// Synchronizes with the lanes of `mask`. `sync`: nothing; `ballot`: the mask of lanes with `value` nonzero;
/// `shuffle`: `value` of lane `source`; `match`: the mask of lanes with an equal `value`.
uint64_t warp_meet(warp_operation operation, uint32_t mask, uint64_t value, uint32_t source);
/// What a lane is to do for others.
struct warp_task {
  void* const* given;  ///< by each lane; null: nothing is to be done
  uint32_t first;      ///< of the lanes to act for
  uint32_t end;
};
/// Synchronizes with the lanes of `mask`. One of them acts for all, or one for each `part` lanes, with what each has
/// `given`, and calls `warp_release`. The others wait until all who act have done so.
warp_task warp_gather(uint32_t mask, void* given, uint32_t part);
void warp_release(uint32_t mask);
/// Marks functions of which a compiler must keep one call for each call site.
#if defined(__clang__)
#  define DEVCOMM_SIMULATOR_CONVERGENT __attribute__((noinline, convergent, nomerge))
#else
#  define DEVCOMM_SIMULATOR_CONVERGENT __attribute__((noinline, noclone, noipa))
#endif

/// The next store to `word` hands an operation of the network over: race reports name the caller's line.
void note_post(const uint64_t* word);

/// Marks functions whose accesses race reports give the caller's line, however little a program is optimized.
#define DEVCOMM_SIMULATOR_OF_CALLER __attribute__((always_inline)) inline

/// The lanes of the warp that reach this call, as many as can without waiting for each other.
uint32_t converged_lanes(const void* call_site);

/// Simulated nanoseconds; each call takes a little time.
uint64_t clock_now();
/// (host) Lets others run until the clock has advanced by `nanoseconds`.
void sleep_for(uint64_t nanoseconds);

/// Loads of the calling thread until `begin_wait` are for the label alone.
void begin_label();
void end_label();
/// Until `end_wait`, strong loads of the calling thread say what it waits for; `abort_word` (or null) ends the wait,
/// and a thread that waits sets it once the host has ended waits, or this one, in `log` (or null).
void begin_wait(const devcomm::detail::wait_label& label, const uint32_t* abort_word, failure_log* log);
/// Whether the calling thread, which has waited for so long, may read the host's word now: immediately when it is set.
[[nodiscard]] bool host_turn(uint64_t* turn, uint64_t now, uint64_t waited);
void end_wait();
/// Ends one unsuccessful poll.
void pause_wait();

/// What the calling thread does with a session; throws `misuse` when its group may not.
void begin_session(const devcomm::detail::session_id& id);
void call_session(const devcomm::detail::session_id& id, devcomm::detail::session_call call);
/// After the group's last sync.
void leave_session(const devcomm::detail::session_id& id);

/// Bytes of dynamic shared memory of the running launch.
[[nodiscard]] std::size_t dynamic_shared_bytes() noexcept;
/// Whether the running launch is cooperative.
[[nodiscard]] bool cooperative_launch() noexcept;

/// Throws `misuse`: what the calling thread did wrong.
[[noreturn]] void fail_misuse(const char* message);

struct memory_range {
  std::uintptr_t first;
  std::uintptr_t bytes;

  [[nodiscard]] bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - first < bytes;
  }
};

/// Between these addresses lie the shared memory of the block that the calling OS thread runs, and the stacks of its
/// threads, which are a GPU's local memory; empty on other OS threads.
extern __thread memory_range shared_of_block;
extern __thread memory_range stacks_of_block;

/// (host) Throws `misuse` for shared and for local memory, where a GPU's instructions for global memory would fault.
inline void require_global(const void* address) {
  if (shared_of_block.contains(address))
    fail_misuse(
        "shared memory was given to a function that accesses global memory, which faults on a GPU; copy it to "
        "registers or global memory first");
  if (stacks_of_block.contains(address))
    fail_misuse(
        "a local variable of a thread was given to a function that accesses global memory, which faults on a GPU; give "
        "it global memory, or copy element by element");
}

}  // namespace devcomm::simulator::detail
