/// \file threads.hpp
/// CUDA's barriers, fences, clocks and plain accesses with a cache hint, for the simulator.
#pragma once

#include <devcomm/simulator/detail/cluster.hpp>
#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/detail/scope.hpp>

#include <cstdint>
#include <cstdio>

inline constexpr int warpSize = 32;

// The calls of a warp's lanes are identified by their lines.
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  devcomm::simulator::detail::aligned_block_barrier(false, file, line);
}
inline int __syncthreads_count(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return static_cast<int>(devcomm::simulator::detail::aligned_block_barrier(predicate != 0, file, line));
}
inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return __syncthreads_count(predicate, file, line) != 0;
}
inline int __syncthreads_and(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return __syncthreads_count(predicate == 0, file, line) == 0;
}

namespace devcomm::simulator::detail {
template <atomic_scope Scope>
inline void thread_fence() {
  const at_scope<Scope> here;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  preempt();
}
}  // namespace devcomm::simulator::detail

inline void __threadfence_block() {
  devcomm::simulator::detail::thread_fence<devcomm::simulator::detail::atomic_scope::block>();
}
inline void __threadfence() {
  devcomm::simulator::detail::thread_fence<devcomm::simulator::detail::atomic_scope::device>();
}
inline void __threadfence_system() {
  devcomm::simulator::detail::thread_fence<devcomm::simulator::detail::atomic_scope::system>();
}

inline long long clock64() { return static_cast<long long>(devcomm::simulator::detail::clock_now()); }
inline long clock() { return static_cast<long>(devcomm::simulator::detail::clock_now()); }
inline unsigned long long __globaltimer() { return devcomm::simulator::detail::clock_now(); }
inline void __nanosleep(unsigned nanoseconds) { devcomm::simulator::detail::sleep_for(nanoseconds); }

/// Ends the launch with an error.
[[noreturn]] inline void __trap() { devcomm::simulator::detail::fail_misuse("__trap"); }
inline void __brkpt() {
  devcomm::simulator::detail::fail_misuse(
      "__brkpt: a breakpoint, or what a library has where it was compiled for other GPUs");
}

/// Goes through a cache that nobody keeps up to date: the race detector reports what the kernel, or a peer meanwhile,
/// has written.
template <class T, class = devcomm::simulator::detail::loadable<T>>
__attribute__((always_inline)) inline T __ldg(const T* p) {
  devcomm::simulator::detail::read_only(p, sizeof(T));
  return *p;
}

namespace devcomm::simulator::detail {

/// What `p[i]` is where `p` is a kernel's parameter `const T* __restrict__ p`: compilers may take `__ldg` for it.
template <class T>
struct restricted {
  const T* pointer;
  template <class Index>
  __attribute__((always_inline)) const T& operator[](Index i) const {
    if constexpr (std::is_trivially_copyable_v<T>) read_only(pointer + i, sizeof(T), true);
    return pointer[i];
  }
};
template <class T>
__attribute__((always_inline)) inline restricted<T> restrict_reads(const T* p) {
  return {p};
}
/// Another variable with the parameter's name.
template <class T>
__attribute__((always_inline)) inline T& restrict_reads(T& other) {
  return other;
}

}  // namespace devcomm::simulator::detail

/// Of what kind of memory an address is. Those of shared memory count from where the block's begins.
inline unsigned __isShared(const void* p) { return devcomm::simulator::detail::shared_of_block.contains(p); }
inline unsigned __isLocal(const void* p) { return devcomm::simulator::detail::stacks_of_block.contains(p); }
inline unsigned __isConstant(const void*) { return 0; }  // an ordinary variable here
inline unsigned __isClusterShared(const void* p) { return devcomm::simulator::detail::is_in_cluster(p); }
inline unsigned __isGlobal(const void* p) { return __isShared(p) == 0 && __isLocal(p) == 0; }
inline std::size_t __cvta_generic_to_shared(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) - devcomm::simulator::detail::shared_of_block.first;
}
inline void* __cvta_shared_to_generic(std::size_t address) {
  return reinterpret_cast<void*>(devcomm::simulator::detail::shared_of_block.first + address);
}
inline std::size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
inline void* __cvta_global_to_generic(std::size_t address) { return reinterpret_cast<void*>(address); }

// Cache hints change nothing here.
#define DEVCOMM_SIMULATOR_LOAD(name)                                  \
  template <class T, class = devcomm::simulator::detail::loadable<T>> \
  inline T name(const T* p) {                                         \
    return *p;                                                        \
  }
DEVCOMM_SIMULATOR_LOAD(__ldca)
DEVCOMM_SIMULATOR_LOAD(__ldcg)
DEVCOMM_SIMULATOR_LOAD(__ldcs)
DEVCOMM_SIMULATOR_LOAD(__ldlu)
DEVCOMM_SIMULATOR_LOAD(__ldcv)
#undef DEVCOMM_SIMULATOR_LOAD
#define DEVCOMM_SIMULATOR_STORE(name)                                 \
  template <class T, class = devcomm::simulator::detail::loadable<T>> \
  inline void name(T* p, T value) {                                   \
    *p = value;                                                       \
  }
DEVCOMM_SIMULATOR_STORE(__stwb)
DEVCOMM_SIMULATOR_STORE(__stcg)
DEVCOMM_SIMULATOR_STORE(__stcs)
DEVCOMM_SIMULATOR_STORE(__stwt)
#undef DEVCOMM_SIMULATOR_STORE
