/// \file ptx_mma.hpp
/// Products of small matrices by a warp, and what loads and stores their fragments, as plain loops: `mma.sync` of 16 ×
/// 8 results, `ldmatrix`, `stmatrix`. Products are added in the order of k, in `float` or `int`.
#pragma once

#include <cuda_fp8.h>
#include <devcomm/simulator/device/ptx_halves.hpp>

#include <cstdint>
#include <cstring>

namespace devcomm::simulator::detail::ptx {

inline constexpr unsigned whole_warp = ~0u;

/// Of lambdas that act for a warp: registers of other lanes are no memory that could race.
#define DEVCOMM_SIMULATOR_ON_REGISTERS __attribute__((no_sanitize("thread")))

/// Calls `act(of)` once, by one lane, where `of(lane)` is what each lane of the warp has `given`.
template <class Given, class Act>
void as_warp(Given& given, Act act) {
  const warp_task task = warp_gather(whole_warp, &given, 32);
  if (task.given == nullptr) return;
  act([&](int lane) DEVCOMM_SIMULATOR_ON_REGISTERS -> Given& { return *static_cast<Given*>(task.given[lane]); });
  warp_release(whole_warp);
}

struct tf32 {};
struct e4m3 {};
struct e5m2 {};

/// Elements of a register of 32 bits.
template <class T>
inline constexpr int in_register = 2;
template <>
inline constexpr int in_register<tf32> = 1;
template <>
inline constexpr int in_register<std::int8_t> = 4;
template <>
inline constexpr int in_register<std::uint8_t> = 4;
template <>
inline constexpr int in_register<e4m3> = 4;
template <>
inline constexpr int in_register<e5m2> = 4;

template <class T>
auto element(unsigned bits, int i) {
  if constexpr (std::is_same_v<T, tf32>) {
    constexpr unsigned kept = ~0x1fffu;
    return as<float>(bits & kept);
  } else if constexpr (std::is_same_v<T, e4m3> || std::is_same_v<T, e5m2>) {
    std::conditional_t<std::is_same_v<T, e4m3>, __nv_fp8_e4m3, __nv_fp8_e5m2> value;
    value.__x = static_cast<__nv_fp8_storage_t>(bits >> 8 * i);
    return static_cast<float>(value);
  } else if constexpr (sizeof(T) == 1) {
    return static_cast<int>(static_cast<T>(bits >> 8 * i));
  } else {
    return static_cast<float>(half_at<T>(bits, 16 * i));
  }
}

/// What a lane gives to a product, and gets.
template <class Sum, int OfA, int OfB>
struct mma_fragments {
  unsigned a[OfA];
  unsigned b[OfB];
  Sum c[4];
};

/// `mma.sync.m16n8kK.row.col`.
template <class A, class B, int K, class Sum, int OfA, int OfB>
void mma(mma_fragments<Sum, OfA, OfB>& own) {
  constexpr int n = in_register<A>;
  static_assert(OfA == K / (2 * n) && OfB == K / (4 * n), "the registers of this shape");
  as_warp(own, [](auto of) DEVCOMM_SIMULATOR_ON_REGISTERS {
    // Lane 4g + t has of A the rows g and g + 8, of B column g, and of the sums columns 2t and 2t + 1.
    decltype(element<A>(0u, 0)) a[16][K];
    decltype(element<B>(0u, 0)) b[K][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4;
      const int t = lane % 4;
      for (int i = 0; i < n; ++i) {
        for (int r = 0; r < OfA; ++r) a[g + 8 * (r % 2)][t * n + i + r / 2 * 4 * n] = element<A>(of(lane).a[r], i);
        for (int r = 0; r < OfB; ++r) b[t * n + i + r * 4 * n][g] = element<B>(of(lane).b[r], i);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        Sum& sum = of(lane).c[i];
        for (int k = 0; k < K; ++k) sum += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
      }
    }
  });
}

/// Rows of 16 bytes: `row` is the lane's own, of matrix `lane / 8`; lane l has elements 2 (l % 4) and the next one of
/// row l / 4 of each matrix, or of column l / 4.
template <int Matrices>
struct matrix_rows {
  std::uint16_t row[8];
  unsigned registers[Matrices];
};
template <bool Transposed>
std::uint16_t& element_of(std::uint16_t (*rows)[8], int lane, int i) {
  const int along = lane % 4 * 2 + i;
  return Transposed ? rows[along][lane / 4] : rows[lane / 4][along];
}

template <int Matrices, bool Transposed>
DEVCOMM_SIMULATOR_OF_CALLER vector<unsigned, Matrices> load_matrices(const void* row) {
  matrix_rows<Matrices> own{};
  if (own_lane() < 8 * Matrices) {
    const vector<unsigned, 4> bits = load_vector<unsigned, 4>(row);
    __builtin_memcpy(own.row, &bits, sizeof own.row);
  }
  as_warp(own, [](auto of) DEVCOMM_SIMULATOR_ON_REGISTERS {
    for (int m = 0; m < Matrices; ++m) {
      std::uint16_t rows[8][8];
      for (int r = 0; r < 8; ++r) __builtin_memcpy(rows[r], of(8 * m + r).row, sizeof rows[r]);
      for (int lane = 0; lane < 32; ++lane)
        of(lane).registers[m] = pack(element_of<Transposed>(rows, lane, 0), element_of<Transposed>(rows, lane, 1));
    }
  });
  vector<unsigned, Matrices> result;
  for (int m = 0; m < Matrices; ++m) result.at[m] = own.registers[m];
  return result;
}

template <bool Transposed, int Matrices>
DEVCOMM_SIMULATOR_OF_CALLER void store_matrices(void* row, const vector<unsigned, Matrices>& values) {
  matrix_rows<Matrices> own{};
  for (int m = 0; m < Matrices; ++m) own.registers[m] = values.at[m];
  as_warp(own, [](auto of) DEVCOMM_SIMULATOR_ON_REGISTERS {
    for (int m = 0; m < Matrices; ++m) {
      std::uint16_t rows[8][8];
      for (int lane = 0; lane < 32; ++lane) {
        element_of<Transposed>(rows, lane, 0) = static_cast<std::uint16_t>(of(lane).registers[m]);
        element_of<Transposed>(rows, lane, 1) = static_cast<std::uint16_t>(of(lane).registers[m] >> 16);
      }
      for (int r = 0; r < 8; ++r) __builtin_memcpy(of(8 * m + r).row, rows[r], sizeof rows[r]);
    }
  });
  if (own_lane() >= 8 * Matrices) return;
  vector<unsigned, 4> bits;
  __builtin_memcpy(&bits, own.row, sizeof own.row);
  store_vector(row, bits);
}

}  // namespace devcomm::simulator::detail::ptx
