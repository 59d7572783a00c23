#include "gpu/multiprocessors.hpp"

#include <algorithm>

namespace devcomm::simulator::detail {

using gpu_limits::blocks_per_multiprocessor;
using gpu_limits::shared_per_multiprocessor;
using gpu_limits::shared_reserved_per_block;
using gpu_limits::threads_per_block;
using gpu_limits::threads_per_multiprocessor;

namespace {

uint32_t whole_warps(uint32_t threads) { return (threads + 31) / 32 * 32; }
uint32_t shared_of(const launch_shape& shape) {
  return static_cast<uint32_t>(shape.dynamic_bytes) + shared_reserved_per_block;
}

}  // namespace

uint32_t blocks_at_once(const launch_shape& shape) {
  const uint32_t threads = whole_warps(shape.threads());
  if (threads == 0 || threads > threads_per_block) return 0;
  return std::min(
      {blocks_per_multiprocessor, threads_per_multiprocessor / threads, shared_per_multiprocessor / shared_of(shape)});
}

int multiprocessors::take(int device, int count, const launch_shape& shape, bool beyond) {
  const auto d = static_cast<size_t>(device);
  if (devices_.size() <= d) devices_.resize(d + 1);
  device_state& state = devices_[d];
  if (state.all.empty()) state.all.resize(static_cast<size_t>(count));
  const uint32_t threads = whole_warps(shape.threads());
  const uint32_t shared = shared_of(shape);
  for (size_t tried = 0; tried < state.all.size(); ++tried) {
    const size_t index = (state.next + tried) % state.all.size();
    multiprocessor& m = state.all[index];
    const bool full = m.blocks + 1 > blocks_per_multiprocessor || m.threads + threads > threads_per_multiprocessor ||
                      m.shared + shared > shared_per_multiprocessor;
    if (full && !beyond) continue;
    ++m.blocks;
    m.threads += threads;
    m.shared += shared;
    state.next = index + 1;
    return static_cast<int>(index);
  }
  return -1;
}

void multiprocessors::give_back(int device, int index, const launch_shape& shape) {
  multiprocessor& m = devices_[static_cast<size_t>(device)].all[static_cast<size_t>(index)];
  --m.blocks;
  m.threads -= whole_warps(shape.threads());
  m.shared -= shared_of(shape);
}

}  // namespace devcomm::simulator::detail
