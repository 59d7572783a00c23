/// \file pack.cuh
/// Sixteen bytes of elements: the unit in which data moves.
#pragma once

#include <devcomm/arch/arch.cuh>
#include <devcomm/arch/language.hpp>

namespace devcomm {

/// As many `T` as fill 16 bytes.
template <class T>
struct alignas(16) pack {
  static_assert(detail::is_trivially_copyable<T> && sizeof(T) <= 16 && 16 % sizeof(T) == 0,
                "packs hold trivially copyable elements of 1, 2, 4, 8 or 16 bytes");
  static constexpr int size = static_cast<int>(16 / sizeof(T));

  T data[size];

  DEVCOMM_DEVICE T& operator[](int i) { return data[i]; }
  DEVCOMM_DEVICE const T& operator[](int i) const { return data[i]; }
};

namespace detail {

template <class T>
DEVCOMM_DEVICE pack<T> to_pack(arch::vec16 raw) {
  pack<T> result;
  copy_bytes(&result, &raw, 16);
  return result;
}

template <class T>
DEVCOMM_DEVICE arch::vec16 to_vec16(const pack<T>& value) {
  arch::vec16 raw;
  copy_bytes(&raw, &value, 16);
  return raw;
}

}  // namespace detail

/// The pack at `address`. *Requires* alignment to 16 bytes, as do the three below.
template <class T>
DEVCOMM_DEVICE pack<T> load_pack(const T* address) {
  return detail::to_pack<T>(arch::load16(address));
}

/// `load_pack`, for data of this GPU that is read once. From a peer it has half the bandwidth of `load_pack`: its
/// requests over the link are of half a line each.
template <class T>
DEVCOMM_DEVICE pack<T> load_pack_streaming(const T* address) {
  return detail::to_pack<T>(arch::load16_streaming(address));
}

template <class T>
DEVCOMM_DEVICE void store_pack(T* address, const pack<T>& value) {
  arch::store16(address, detail::to_vec16(value));
}

/// `store_pack`, for data that this GPU does not read again soon.
template <class T>
DEVCOMM_DEVICE void store_pack_streaming(T* address, const pack<T>& value) {
  arch::store16_streaming(address, detail::to_vec16(value));
}

namespace detail {

/// `N` values of `U`.
template <class U, int N>
struct alignas(N * sizeof(U) <= 16 ? N * sizeof(U) : 16) run_of {
  U data[N];
};

template <class U, int N>
DEVCOMM_DEVICE run_of<U, N> round_run(const float (&values)[N]) {
  run_of<U, N> rounded;
  DEVCOMM_UNROLL
  for (int e = 0; e < N; ++e) rounded.data[e] = static_cast<U>(values[e]);
  return rounded;
}

/// Stores them at once where the address is a multiple of their size.
template <class U, int N>
DEVCOMM_DEVICE void store_run(U* to, const run_of<U, N>& values) {
  constexpr int bytes = static_cast<int>(sizeof(values));
  constexpr int at_once = bytes < 16 ? bytes : 16;
  if constexpr (at_once >= 4) {
    if (reinterpret_cast<uintptr_t>(to) % at_once == 0) {
      DEVCOMM_UNROLL
      for (int first = 0; first < bytes; first += at_once) {
        decltype(arch::load_bytes<at_once>(to)) raw;
        copy_bytes(&raw, reinterpret_cast<const char*>(&values) + first, at_once);
        arch::store_bytes_streaming<at_once>(reinterpret_cast<char*>(to) + first, raw);
      }
      return;
    }
  }
  for (int e = 0; e < N; ++e) to[e] = values.data[e];
}
/// The same, rounded to `U`.
template <class U, int N>
DEVCOMM_DEVICE void store_run(U* to, const float (&values)[N]) {
  store_run(to, round_run<U>(values));
}

}  // namespace detail

}  // namespace devcomm
