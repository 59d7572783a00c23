/// \file arch_lines.cuh
/// Lines of 128 bytes in the simulator; see devcomm/arch/arch.cuh for what each function guarantees.
///
/// One lane acts for its warp, or one for each line, with no point between the words of a line at which another thread
/// may go on; other lines are other steps.
#pragma once

#include <devcomm/simulator/arch.cuh>

namespace devcomm::arch {

inline constexpr uint32_t line_lanes = 8;

/// A lane's part of a line.
struct line_part {
  uint64_t* address;
  halves words;
  uint64_t flag;  ///< the line's last 8 bytes, as they were loaded
};

/// What another lane brought: it waits, which is order enough. Word by word, as a sanitizer sees calls of memcpy.
DEVCOMM_SIMULATOR_UNSEEN inline line_part part_of(const void* lane) {
  const auto* const theirs = static_cast<const line_part*>(lane);
  line_part part;
  part.address = theirs->address;
  part.words.low = theirs->words.low;
  part.words.high = theirs->words.high;
  part.flag = theirs->flag;
  return part;
}
DEVCOMM_SIMULATOR_UNSEEN inline void give_part(void* lane, const halves& words, uint64_t flag) {
  auto* const theirs = static_cast<line_part*>(lane);
  theirs->words.low = words.low;
  theirs->words.high = words.high;
  theirs->flag = flag;
}

/// The line that eight lanes store or load together.
inline uint64_t* line_of(void* const* parts) {
  uint64_t* const line = part_of(parts[0]).address;
  if (reinterpret_cast<uintptr_t>(line) % 128 != 0) sim::fail_misuse("a line whose address is no multiple of 128");
  for (uint32_t i = 1; i < line_lanes; ++i) {
    if (part_of(parts[i]).address != line + size_t{2} * i)
      sim::fail_misuse("eight lanes that store or load a line take 16 bytes each of it, in their order");
  }
  return line;
}

inline void store_lines(void* address, vec16 value) {
  line_part mine{static_cast<uint64_t*>(address), {}, 0};
  __builtin_memcpy(&mine.words, &value, sizeof value);
  const sim::warp_task task = sim::warp_gather(full_mask, &mine, line_lanes);
  if (task.given == nullptr) return;
  for (uint32_t lane = task.first; lane < task.end; lane += line_lanes) {
    uint64_t* const line = line_of(task.given + lane);
    sim::begin_line();
    for (uint32_t i = 0; i < line_lanes; ++i) {
      const halves words = part_of(task.given[lane + i]).words;
      __atomic_store_n(line + size_t{2} * i, words.low, __ATOMIC_RELAXED);
      __atomic_store_n(line + size_t{2} * i + 1, words.high, __ATOMIC_RELAXED);
    }
    sim::stored_line(line);
  }
  sim::warp_release(full_mask);
}

inline vec16 load_lines(const void* address) {
  line_part mine{const_cast<uint64_t*>(static_cast<const uint64_t*>(address)), {}, 0};
  const sim::warp_task task = sim::warp_gather(full_mask, &mine, line_lanes);
  if (task.given != nullptr) {
    for (uint32_t lane = task.first; lane < task.end; lane += line_lanes) {
      const uint64_t* const line = line_of(task.given + lane);
      halves words[line_lanes];
      for (uint32_t i = 0; i < line_lanes; ++i) {
        words[i].low = __atomic_load_n(line + size_t{2} * i, __ATOMIC_RELAXED);
        words[i].high = __atomic_load_n(line + size_t{2} * i + 1, __ATOMIC_RELAXED);
      }
      for (uint32_t i = 0; i < line_lanes; ++i) give_part(task.given[lane + i], words[i], words[line_lanes - 1].high);
      sim::loaded_line(line);
    }
    sim::warp_release(full_mask);
  }
  sim::loaded_with_warp(mine.address + size_t{2} * (line_lanes - lane() % line_lanes) - 1, mine.flag);
  vec16 value;
  __builtin_memcpy(&value, &mine.words, sizeof value);
  return value;
}

/// Who comes to a line waits for the others anyway.
inline void join_warp() {}

}  // namespace devcomm::arch
