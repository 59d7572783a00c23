/// \file thread.cuh
/// The group of one thread.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/detail/arch.cuh>

namespace devcomm {

/// The calling thread alone.
struct thread {
  DEVCOMM_DEVICE static constexpr uint32_t thread_rank() { return 0; }
  DEVCOMM_DEVICE static constexpr uint32_t size() { return 1; }
  DEVCOMM_DEVICE static void sync() {}
  DEVCOMM_DEVICE static bool any(bool predicate) { return predicate; }

  template <class T>
  DEVCOMM_DEVICE static T broadcast(const T& value, uint32_t root) {
    DEVCOMM_ASSERT(root == 0, "broadcast root is outside the group");
    static_cast<void>(root);
    return value;
  }
};

}  // namespace devcomm
