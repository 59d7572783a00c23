/// \file post_descriptor.hpp
/// A kernel's end of a context's ring, for tests and benchmarks that have a thread of the host in its place.
#pragma once

#include <devcomm/gin/queue.hpp>

#include <atomic>
#include <cstdint>

namespace test {

/// Posts operation `number` of a ring of `depth` descriptors, which has room for it, as `detail::post` does.
inline void post_descriptor(devcomm::gin::descriptor* ring, std::uint64_t number, std::uint32_t depth,
                            const devcomm::gin::descriptor& what, const devcomm::gin::descriptor_head& head) {
  using devcomm::gin::descriptor;
  const descriptor ready = what.packed(head, descriptor::lap(number, depth));
  descriptor& slot = ring[number & (depth - 1)];
  std::atomic_ref(slot.head).store(ready.head, std::memory_order_release);
  for (std::uint64_t descriptor::*word :
       {&descriptor::local, &descriptor::remote, &descriptor::windows, &descriptor::bytes, &descriptor::value,
        &descriptor::signal_value, &descriptor::actions})
    std::atomic_ref(slot.*word).store(ready.*word, std::memory_order_relaxed);
}

}  // namespace test
