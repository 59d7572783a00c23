#include "gpu/multiprocessors.hpp"

#include "engine/engine.hpp"

#include <algorithm>
#include <vector>

namespace devcomm::simulator::detail::resources {
namespace {

struct multiprocessor {
  uint32_t blocks = 0;
  uint32_t threads = 0;
  uint32_t shared = 0;
};

struct device_room {
  std::vector<multiprocessor> all;
  size_t next = 0;
};

uint32_t whole_warps(uint32_t threads) { return (threads + 31) / 32 * 32; }
uint32_t shared_of(const launch_shape& shape) {
  return static_cast<uint32_t>(shape.dynamic_bytes) + shared_reserved_per_block;
}

device_room& room_of(int device) {
  static auto& rooms = *new std::vector<device_room>;
  const auto d = static_cast<size_t>(device);
  if (rooms.size() <= d) rooms.resize(d + 1);
  device_room& room = rooms[d];
  if (room.all.empty()) room.all.resize(static_cast<size_t>(the_engine().config.multiprocessors));
  return room;
}

}  // namespace

uint32_t blocks_at_once(const launch_shape& shape) {
  const uint32_t threads = whole_warps(shape.threads());
  if (threads == 0 || threads > threads_per_block) return 0;
  return std::min(
      {blocks_per_multiprocessor, threads_per_multiprocessor / threads, shared_per_multiprocessor / shared_of(shape)});
}

int take(int device, const launch_shape& shape) {
  device_room& room = room_of(device);
  const uint32_t threads = whole_warps(shape.threads());
  const uint32_t shared = shared_of(shape);
  for (size_t tried = 0; tried < room.all.size(); ++tried) {
    const size_t place = (room.next + tried) % room.all.size();
    multiprocessor& m = room.all[place];
    if (m.blocks + 1 > blocks_per_multiprocessor || m.threads + threads > threads_per_multiprocessor ||
        m.shared + shared > shared_per_multiprocessor) {
      continue;
    }
    ++m.blocks;
    m.threads += threads;
    m.shared += shared;
    room.next = place + 1;
    return static_cast<int>(place);
  }
  return -1;
}

void give_back(int device, int place, const launch_shape& shape) {
  multiprocessor& m = room_of(device).all[static_cast<size_t>(place)];
  --m.blocks;
  m.threads -= whole_warps(shape.threads());
  m.shared -= shared_of(shape);
}

}  // namespace devcomm::simulator::detail::resources
