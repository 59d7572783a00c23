/// \file copies.hpp
/// Asynchronous copies and mbarriers: what `cp.async`, `cp.async.bulk` and `mbarrier` ask of the runtime. All of it is
/// called by simulated threads.
///
/// A copy reads and writes at some later time, the two apart. To race detectors it is a thread of its own, which begins
/// where it is issued and ends where its completion is seen. Bulk copies use the async proxy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace devcomm::simulator::detail {

/// A part of a copy; without `from` it is filled with zeros.
struct copy_chunk {
  void* to;
  const void* from;
  std::size_t bytes;
};
/// Changes `bytes` at `to` by what is in `from`; null: replaces them.
using copy_reduction = void (*)(void* to, const void* from, std::size_t bytes);

// --- cp.async: of one thread, in groups ---

/// Copies 4, 8 or 16 bytes from global to shared memory, of which the first `used` come from there; the rest is zero.
void copy_element(void* to, const void* from, std::size_t bytes, std::size_t used);
void commit_elements();
/// Waits for all groups but the latest `pending`, and sees what they wrote.
void await_elements(uint32_t pending);
/// Waits for all copies, committed or not.
void await_all_elements();
/// Arrives at the mbarrier when all copies of this thread so far are done; `counted`: it is not one of those expected.
void arrive_after_elements(void* mbarrier, bool counted);

// --- cp.async.bulk ---

/// Copies chunks, and then reports their bytes to the mbarrier; without one it is in the thread's current group.
void copy_bulk(const char* instruction, const copy_chunk* chunks, std::size_t count, copy_reduction reduces,
               void* mbarrier);
/// Stores so many bytes, and then reports them to the mbarrier: `st.async`.
void store_async(void* to, const void* value, std::size_t bytes, void* mbarrier);
void commit_bulk();
/// Waits for all groups but the latest `pending`: until they have read their sources, or are done.
void await_bulk(uint32_t pending, bool reads_only);
/// What this thread did and knows of is seen by bulk copies that are ordered behind it.
void fence_async();

// --- mbarrier: 8 bytes of shared memory ---

void initialize_mbarrier(void* mbarrier, uint32_t count);
void invalidate_mbarrier(void* mbarrier);
/// Expects `bytes` more in the current phase, fewer where negative; then `count` arrivals, of threads that do not come
/// again where they `drop`. Returns the state before them.
uint64_t arrive_at_mbarrier(void* mbarrier, uint32_t count, int64_t bytes, bool drop, bool releases);
void expect_at_mbarrier(void* mbarrier, int64_t bytes);
/// Whether the phase of that parity, or state, has ended. Where it has, its arrivals and copies come before what
/// follows.
[[nodiscard]] bool mbarrier_passed(const void* mbarrier, uint32_t parity, bool acquires);
[[nodiscard]] bool mbarrier_left(const void* mbarrier, uint64_t state, bool acquires);
/// Arrivals that were missing in a state.
[[nodiscard]] uint32_t pending_of(uint64_t state) noexcept;

}  // namespace devcomm::simulator::detail
