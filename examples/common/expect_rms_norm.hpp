/// \file expect_rms_norm.hpp
/// RMSNorm in exact arithmetic, for comparison.
#pragma once

#include "common/check.hpp"

#include <cmath>

namespace example {

inline constexpr float norm_epsilon = 1e-5f;

/// Throws unless `normed` has the norms of `rows` rows of `hidden` elements, `residual(i)` for element `i` of all, to a
/// few roundings; `weight(e)` is that of a row's element `e`.
template <class T>
void expect_rms_norm(const T* normed, std::uint64_t rows, std::uint64_t hidden,
                     const std::function<double(std::uint64_t)>& residual,
                     const std::function<double(std::uint64_t)>& weight) {
  std::vector<T> got(rows * hidden);
  copy_now(got.data(), normed, got.size() * sizeof(T));
  const double rounding = sizeof(T) == 4 ? 1e-6 : 1e-2;
  for (std::uint64_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (std::uint64_t e = 0; e < hidden; ++e) squares += residual(row * hidden + e) * residual(row * hidden + e);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(norm_epsilon));
    for (std::uint64_t e = 0; e < hidden; ++e) {
      const double wanted = residual(row * hidden + e) * scale * weight(e);
      const auto is = static_cast<double>(static_cast<float>(got[row * hidden + e]));
      if (!(std::abs(is - wanted) <= rounding * (1 + std::abs(wanted))))
        throw std::runtime_error("normed: row " + std::to_string(row) + ", element " + std::to_string(e) + " is " +
                                 std::to_string(is) + ", expected " + std::to_string(wanted));
    }
  }
}

}  // namespace example
