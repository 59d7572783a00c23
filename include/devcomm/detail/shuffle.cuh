/// \file shuffle.cuh
/// Values of any size from lane to lane.
#pragma once

#include <devcomm/detail/arch.cuh>
#include <devcomm/detail/copy_bytes.hpp>
#include <devcomm/detail/traits.hpp>

namespace devcomm::detail {

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

}  // namespace devcomm::detail
