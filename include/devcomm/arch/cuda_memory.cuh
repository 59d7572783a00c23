/// \file cuda_memory.cuh
/// Strong and weak memory operations on GPUs, in PTX. Addresses are global: device memory, a peer's,
/// or pinned host memory.
#pragma once

#include <devcomm/arch/trap.cuh>
#include <devcomm/config.hpp>
#include <devcomm/memory_order.hpp>

namespace devcomm::arch {

/// Sixteen bytes in registers.
struct alignas(16) vec16 {
  uint32_t x, y, z, w;
};

// One body for every order and scope: the caller names them as constants, so that after inlining a
// single instruction remains. Orders and scopes are PTX's own words.
#define DEVCOMM_AT_SCOPE(Scope, MACRO, ...)        \
  do {                                             \
    if constexpr (Scope == scope::system) {        \
      MACRO("sys", __VA_ARGS__);                   \
    } else if constexpr (Scope == scope::device) { \
      MACRO("gpu", __VA_ARGS__);                   \
    } else {                                       \
      MACRO("cta", __VA_ARGS__);                   \
    }                                              \
  } while (false)

#define DEVCOMM_LD(at, order, type, constraint) \
  asm volatile("ld." order "." at ".global." type " %0, [%1];" : constraint(value) : "l"(address) : "memory")
#define DEVCOMM_ST(at, order, type, constraint) \
  asm volatile("st." order "." at ".global." type " [%0], %1;" : : "l"(address), constraint(value) : "memory")
#define DEVCOMM_RMW(at, operation, order, type, out, in)                           \
  asm volatile("atom." order "." at ".global." operation "." type " %0, [%1], %2;" \
               : out(old)                                                          \
               : "l"(address), in(value)                                           \
               : "memory")

#define DEVCOMM_CAS(at, type, out, in)                                     \
  asm volatile("atom.relaxed." at ".global.cas." type " %0, [%1], %2, %3;" \
               : out(old)                                                  \
               : "l"(address), in(expected), in(value)                     \
               : "memory")

template <memory_order Order, scope Scope, class T>
__device__ inline T load(const T* address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong loads take 4- or 8-byte integers");
  static_assert(!releases(Order), "a load is relaxed or acquires");
  T value;
  if constexpr (sizeof(T) == 4 && acquires(Order)) {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_LD, "acquire", "u32", "=r");
  } else if constexpr (sizeof(T) == 4) {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_LD, "relaxed", "u32", "=r");
  } else if constexpr (acquires(Order)) {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_LD, "acquire", "u64", "=l");
  } else {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_LD, "relaxed", "u64", "=l");
  }
  return value;
}

template <memory_order Order, scope Scope, class T>
__device__ inline void store(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong stores take 4- or 8-byte integers");
  static_assert(!acquires(Order), "a store is relaxed or releases");
  if constexpr (sizeof(T) == 4 && releases(Order)) {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_ST, "release", "u32", "r");
  } else if constexpr (sizeof(T) == 4) {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_ST, "relaxed", "u32", "r");
  } else if constexpr (releases(Order)) {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_ST, "release", "u64", "l");
  } else {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_ST, "relaxed", "u64", "l");
  }
}

#define DEVCOMM_RMW_IN_ORDER(operation, type, out, in)                           \
  do {                                                                           \
    if constexpr (Order == memory_order::relaxed) {                              \
      DEVCOMM_AT_SCOPE(Scope, DEVCOMM_RMW, operation, "relaxed", type, out, in); \
    } else if constexpr (Order == memory_order::acquire) {                       \
      DEVCOMM_AT_SCOPE(Scope, DEVCOMM_RMW, operation, "acquire", type, out, in); \
    } else if constexpr (Order == memory_order::release) {                       \
      DEVCOMM_AT_SCOPE(Scope, DEVCOMM_RMW, operation, "release", type, out, in); \
    } else {                                                                     \
      DEVCOMM_AT_SCOPE(Scope, DEVCOMM_RMW, operation, "acq_rel", type, out, in); \
    }                                                                            \
  } while (false)

#define DEVCOMM_RMW_FUNCTION(name, operation, type32, type64)                                        \
  template <memory_order Order, scope Scope, class T>                                                \
  __device__ inline T name(T* address, T value) {                                                    \
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong operations take 4- or 8-byte integers"); \
    T old;                                                                                           \
    if constexpr (sizeof(T) == 4) {                                                                  \
      DEVCOMM_RMW_IN_ORDER(operation, type32, "=r", "r");                                            \
    } else {                                                                                         \
      DEVCOMM_RMW_IN_ORDER(operation, type64, "=l", "l");                                            \
    }                                                                                                \
    return old;                                                                                      \
  }

DEVCOMM_RMW_FUNCTION(fetch_add, "add", "u32", "u64")
DEVCOMM_RMW_FUNCTION(fetch_or, "or", "b32", "b64")
DEVCOMM_RMW_FUNCTION(exchange, "exch", "b32", "b64")

/// Returns what was there; relaxed.
template <scope Scope, class T>
__device__ inline T compare_exchange(T* address, T expected, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "strong operations take 4- or 8-byte integers");
  T old;
  if constexpr (sizeof(T) == 4) {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_CAS, "b32", "=r", "r");
  } else {
    DEVCOMM_AT_SCOPE(Scope, DEVCOMM_CAS, "b64", "=l", "l");
  }
  return old;
}

/// PTX has one fence for acquire, release and both.
template <memory_order Order, scope Scope>
__device__ inline void fence() {
  static_assert(Order != memory_order::relaxed, "a relaxed fence orders nothing");
  if constexpr (Scope == scope::system) {
    asm volatile("fence.acq_rel.sys;" : : : "memory");
  } else if constexpr (Scope == scope::device) {
    asm volatile("fence.acq_rel.gpu;" : : : "memory");
  } else {
    asm volatile("fence.acq_rel.cta;" : : : "memory");
  }
}

__device__ inline void store_check(uint64_t* address, uint64_t value) {
  store<memory_order::relaxed, scope::system>(address, value);
}
__device__ inline uint64_t load_check(const uint64_t* address) {
  return load<memory_order::relaxed, scope::system>(address);
}
__device__ inline uint64_t poll_check(const uint64_t* address) { return load_check(address); }
template <memory_order Order>
__device__ inline void check_fence() {
  fence<Order, scope::system>();
}

#define DEVCOMM_LD16(instruction)                                           \
  vec16 value;                                                              \
  asm volatile(instruction " {%0, %1, %2, %3}, [%4];"                       \
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) \
               : "l"(address)                                               \
               : "memory");                                                 \
  return value
#define DEVCOMM_ST16(instruction)                                                     \
  asm volatile(instruction " [%0], {%1, %2, %3, %4};"                                 \
               :                                                                      \
               : "l"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) \
               : "memory")

__device__ inline vec16 load16(const void* address) { DEVCOMM_LD16("ld.global.v4.u32"); }
__device__ inline vec16 load16_streaming(const void* address) { DEVCOMM_LD16("ld.global.L1::no_allocate.v4.u32"); }
__device__ inline void store16(void* address, vec16 value) { DEVCOMM_ST16("st.global.v4.u32"); }
__device__ inline void store16_streaming(void* address, vec16 value) {
  DEVCOMM_ST16("st.global.L1::no_allocate.v4.u32");
}

template <int Bytes>
__device__ inline auto load_bytes(const void* address) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "weak loads take 4, 8 or 16 bytes");
  if constexpr (Bytes == 16) {
    return load16(address);
  } else if constexpr (Bytes == 8) {
    uint64_t value;
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
  } else {
    uint32_t value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
  }
}
template <int Bytes, class Raw>
__device__ inline void store_bytes_streaming(void* address, const Raw& value) {
  static_assert(sizeof(Raw) == Bytes, "as many bytes as load_bytes returns");
  if constexpr (Bytes == 16) {
    store16_streaming(address, value);
  } else if constexpr (Bytes == 8) {
    asm volatile("st.global.L1::no_allocate.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
  } else {
    asm volatile("st.global.L1::no_allocate.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
  }
}

/// Two halves of eight bytes.
struct alignas(16) halves {
  uint64_t low, high;
};

__device__ inline halves load_halves(const void* address) {
  halves value;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.low), "=l"(value.high)
               : "l"(address)
               : "memory");
  return value;
}
__device__ inline void store_halves(void* address, halves value) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(address), "l"(value.low), "l"(value.high)
               : "memory");
}

__device__ inline vec16 load_words(const void* address) { DEVCOMM_LD16("ld.relaxed.sys.global.v4.u32"); }
__device__ inline void store_words(void* address, vec16 value) { DEVCOMM_ST16("st.relaxed.sys.global.v4.u32"); }

// One instruction of the warp for all of its lines: in machine code the same accesses as those of NCCL's LL128.
__device__ inline vec16 load_lines(const void* address) { return load_words(address); }
__device__ inline void store_lines(void* address, vec16 value) { store_words(address, value); }

__device__ inline void fence_async() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" : : : "memory");
#endif
}
__device__ inline void store_bulk(void* to, const void* shared, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(to), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "r"(bytes)
               : "memory");
#else
  fail_assertion("sm_90", "bulk copies need compute capability 9.0: publish tiles by stores", __FILE__, __LINE__);
#endif
}
__device__ inline void finish_bulk_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
  asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
#endif
}

#undef DEVCOMM_AT_SCOPE
#undef DEVCOMM_LD
#undef DEVCOMM_ST
#undef DEVCOMM_RMW
#undef DEVCOMM_CAS
#undef DEVCOMM_RMW_IN_ORDER
#undef DEVCOMM_RMW_FUNCTION
#undef DEVCOMM_LD16
#undef DEVCOMM_ST16

}  // namespace devcomm::arch
