/// \file cuda.cuh
/// The seam on GPUs; see arch/arch.cuh for what each function guarantees.
#pragma once

#include <devcomm/arch/cuda_memory.cuh>
#include <devcomm/arch/observed.hpp>
#include <devcomm/arch/trap.cuh>
#include <devcomm/config.hpp>

// CUDA's headers define them; to tell them from other classes, their names are enough.
struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace devcomm::arch {

inline constexpr uint32_t warp_threads = 32;
inline constexpr uint32_t full_mask = 0xffffffffu;

inline constexpr int polls_per_round = 4;
/// After this many rounds of polls a wait reads the abort word and the clock.
inline constexpr uint32_t rounds_per_check = 128;
/// Nanoseconds after which a wait may read host memory, and from one such read of a rank to the next.
inline constexpr uint64_t first_host_turn = 200000;
inline constexpr uint64_t host_interval = 1 << 18;
/// Nanoseconds from one load of a proxy's word by a context to the next.
inline constexpr uint64_t proxy_interval = 256;
inline constexpr bool short_puts_are_values = true;
/// Nanoseconds after which a wait is noted for the watchdog.
inline constexpr uint64_t noted_after = 1000000;

__device__ inline uint32_t thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
__device__ inline uint32_t block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
__device__ inline uint32_t block_rank() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
__device__ inline uint32_t grid_blocks() { return gridDim.x * gridDim.y * gridDim.z; }
__device__ inline uint32_t lane() {
  uint32_t value;
  asm("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}

__device__ inline void sync_block() { __syncthreads(); }
/// The same for threads that may come by different ways. `__syncthreads` is aligned: ptxas may copy what follows a
/// branch into both of its ways, the barrier with it, and a warp whose lanes are at two copies waits for ever. Seen
/// with ptxas 13.0 for sm_90 at the end of a kernel with `if (threadIdx.x != 0) return;`.
__device__ inline void sync_block_apart() { asm volatile("barrier.sync 0;" : : : "memory"); }
__device__ inline bool sync_block_or(bool predicate) { return __syncthreads_or(predicate) != 0; }
__device__ inline bool sync_block_or_apart(bool predicate) {
  uint32_t result;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\t"
      "setp.ne.u32 p, %1, 0;\n\t"
      "barrier.red.or.pred q, 0, p;\n\t"
      "selp.u32 %0, 1, 0, q;\n\t}"
      : "=r"(result)
      : "r"(uint32_t{predicate})
      : "memory");
  return result != 0;
}
__device__ inline void sync_warp(uint32_t mask) { __syncwarp(mask); }
__device__ inline void join_warp() { __syncwarp(); }

__device__ inline void sync_named(uint32_t barrier, uint32_t threads) {
  asm volatile("barrier.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}
__device__ inline bool sync_named_or(uint32_t barrier, uint32_t threads, bool predicate) {
  uint32_t result;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\t"
      "setp.ne.u32 p, %3, 0;\n\t"
      "barrier.red.or.pred q, %1, %2, p;\n\t"
      "selp.u32 %0, 1, 0, q;\n\t}"
      : "=r"(result)
      : "r"(barrier), "r"(threads), "r"(static_cast<uint32_t>(predicate))
      : "memory");
  return result != 0;
}

__device__ inline void tell_launch(uint32_t* flag, uint32_t value) {
  exchange<memory_order::relaxed, scope::system>(flag, value);
}
__device__ inline void see_launch(const uint32_t*) {}

__device__ inline void wait_for_prior_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}
__device__ inline void allow_dependent_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

__device__ inline bool any(uint32_t mask, bool predicate) { return __any_sync(mask, predicate) != 0; }
__device__ inline uint32_t ballot(uint32_t mask, bool predicate) { return __ballot_sync(mask, predicate); }
__device__ inline uint32_t active_mask() { return __activemask(); }
__device__ inline uint32_t shuffle(uint32_t mask, uint32_t value, uint32_t source_lane) {
  return __shfl_sync(mask, value, static_cast<int>(source_lane));
}
__device__ inline uint64_t shuffle_wide(uint32_t mask, uint64_t value, uint32_t source_lane) {
  return __shfl_sync(mask, static_cast<unsigned long long>(value), static_cast<int>(source_lane));
}

template <class Tag, class T, int N>
__device__ inline T* shared_array() {
  alignas(16) __shared__ unsigned char storage[sizeof(T) * N];
  return reinterpret_cast<T*>(storage);
}

__device__ constexpr bool unwinding() { return false; }

__device__ inline uint64_t global_time() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}
__device__ inline uint64_t time_stamp() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value) : : "memory");
  return value;
}
__device__ inline void sleep(uint32_t nanoseconds) { __nanosleep(nanoseconds); }

/// One lane of a warp asks for the turn; the exchange has one winner even where several ask at once.
__device__ inline bool host_turn(uint64_t* turn, uint64_t now, uint64_t waited) {
  if (waited < first_host_turn) return false;
  const uint64_t current = now / host_interval;
  if (load<memory_order::relaxed, scope::device>(turn) == current) return false;
  if ((active_mask() & ((1u << lane()) - 1)) != 0) return false;
  return exchange<memory_order::relaxed, scope::device>(turn, current) != current;
}

/// Lanes that ask together have a turn together: one instruction loads the words of all, and words that lie side by
/// side come in one read. Which of them asks for all is drawn, as they may ask at different contexts, and so is whether
/// the warp asks: of warps that come one after the other the first may come again before the second.
__device__ inline uint64_t proxy_turn(uint64_t* last, uint64_t now) {
  const uint64_t before = load<memory_order::relaxed, scope::device>(last);
  // A turn may have been taken since `now`.
  if (now >= before ? now - before < proxy_interval : before - now < proxy_interval) return 0;
  const uint32_t asking = active_mask();
  const auto number = static_cast<uint32_t>(__popc(asking & ((1u << lane()) - 1)));
  const uint32_t drawn = static_cast<uint32_t>(now / 32) * 0x9e3779b1u >> 16;
  const uint32_t of_warp = thread_rank() / warp_threads * 0x85ebca6bu + block_rank() * 0xc2b2ae35u;
  bool has_it = false;
  if (number == drawn % static_cast<uint32_t>(__popc(asking)) && ((drawn >> 8) ^ of_warp) * 0x9e3779b1u >> 31 == 0)
    has_it = compare_exchange<scope::device>(last, before, now) == before;
  const uint32_t lanes = ballot(asking, has_it);
  if (lanes == 0) return 0;
  const auto winner = static_cast<uint32_t>(__ffs(static_cast<int>(lanes)) - 1);
  const uint64_t time = shuffle_wide(asking, now, winner);
  const uint64_t context = shuffle_wide(asking, reinterpret_cast<uintptr_t>(last), winner);
  return context == reinterpret_cast<uintptr_t>(last) ? time : 0;
}
__device__ inline uint64_t latest_proxy_turn(uint64_t* last) {
  return load<memory_order::relaxed, scope::device>(last);
}

/// On a GPU nobody observes what a thread waits for.
class wait_scope {
 public:
  template <class... Words>
  __device__ explicit wait_scope(const Words&...) {}
  template <class Label>
  __device__ static auto describe(const Label& label) {
    return label();
  }
  __device__ void pause() {}
};

inline constexpr bool observes_sessions = false;

template <class Id>
__device__ inline void begin_session(const Id&) {}
template <class Id>
__device__ inline void call_session(const Id&, detail::session_call) {}
template <class Id>
__device__ inline void leave_session(const Id&) {}
__device__ inline void note_post(const uint64_t*) {}

template <class T>
inline constexpr bool is_small_float = false;
template <>
inline constexpr bool is_small_float<__half> = true;
template <>
inline constexpr bool is_small_float<__nv_bfloat16> = true;
template <>
inline constexpr bool is_small_float<__nv_fp8_e4m3> = true;
template <>
inline constexpr bool is_small_float<__nv_fp8_e5m2> = true;

__device__ inline float smaller(float a, float b) { return ::fminf(a, b); }
__device__ inline double smaller(double a, double b) { return ::fmin(a, b); }
__device__ inline float larger(float a, float b) { return ::fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return ::fmax(a, b); }

__device__ inline float exp(float x) { return ::expf(x); }
__device__ inline float rsqrt(float x) { return ::rsqrtf(x); }
__device__ inline float tanh(float x) { return ::tanhf(x); }

__device__ inline float multiply(float a, float b) { return ::__fmul_rn(a, b); }
__device__ inline double multiply(double a, double b) { return ::__dmul_rn(a, b); }

}  // namespace devcomm::arch
