/// \file slice.hpp
/// Parts of a vector, counted in packs.
#pragma once

#include <devcomm/config.hpp>

namespace devcomm {

/// Packs that `count` elements fill, the last perhaps in part.
template <class T>
DEVCOMM_HOST_DEVICE constexpr uint64_t packs_of(uint64_t count) {
  return (count + 16 / sizeof(T) - 1) / (16 / sizeof(T));
}

/// The packs from `begin` up to, not including, `end`.
struct slice {
  uint64_t begin;
  uint64_t end;

  DEVCOMM_HOST_DEVICE constexpr uint64_t size() const { return end - begin; }
};

}  // namespace devcomm
