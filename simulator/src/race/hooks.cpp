/// What compilers call before plain accesses under -fsanitize=thread.
#include "race/detector.hpp"

namespace devcomm::simulator::race {
namespace {

inline void plain(const volatile void* address, size_t bytes, uint64_t kind, const void* code) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  detector& d = the_detector();
  const bool watched = d.watches(at, bytes);
  if (!watched && !d.checks_sides) return;
  if (guard::held()) return;
  if (watched) d.plain_access(at, bytes, kind, code, true);
  if (d.checks_sides) d.check_side(at, bytes, kind, code);
}

}  // namespace
}  // namespace devcomm::simulator::race

// The linter includes this file in others and takes it for a header.
using devcomm::simulator::race::plain;   // NOLINT(google-global-names-in-headers)
using devcomm::simulator::race::record;  // NOLINT(google-global-names-in-headers)

#define DEVCOMM_RACE_HOOK(name, bytes, kind) \
  void name(void* address) { plain(address, bytes, kind, __builtin_return_address(0)); }
#define DEVCOMM_RACE_HOOKS(bytes)                                                 \
  DEVCOMM_RACE_HOOK(__tsan_read##bytes, bytes, 0)                                 \
  DEVCOMM_RACE_HOOK(__tsan_write##bytes, bytes, record::write)                    \
  DEVCOMM_RACE_HOOK(__tsan_unaligned_read##bytes, bytes, 0)                       \
  DEVCOMM_RACE_HOOK(__tsan_unaligned_write##bytes, bytes, record::write)          \
  DEVCOMM_RACE_HOOK(__tsan_unaligned_volatile_read##bytes, bytes, 0)              \
  DEVCOMM_RACE_HOOK(__tsan_unaligned_volatile_write##bytes, bytes, record::write) \
  /* A write conflicts with all that the read before it does. */                  \
  DEVCOMM_RACE_HOOK(__tsan_read_write##bytes, bytes, record::write)               \
  DEVCOMM_RACE_HOOK(__tsan_unaligned_read_write##bytes, bytes, record::write)

extern "C" {
DEVCOMM_RACE_HOOKS(1)
DEVCOMM_RACE_HOOKS(2)
DEVCOMM_RACE_HOOKS(4)
DEVCOMM_RACE_HOOKS(8)
DEVCOMM_RACE_HOOKS(16)

void __tsan_read_range(void* address, size_t bytes) {
  if (bytes != 0) plain(address, bytes, 0, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
  if (bytes != 0) plain(address, bytes, record::write, __builtin_return_address(0));
}

// Pointers to virtual tables lie in objects that kernels have on their stacks.
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_ignore_thread_begin() { ++devcomm::simulator::race::self().ignored; }
void __tsan_ignore_thread_end() { --devcomm::simulator::race::self().ignored; }
void __tsan_init() { static_cast<void>(devcomm::simulator::race::the_detector()); }
}
