/// memcpy and the like as accesses: compilers leave calls of them in kernels, and the runtime's copies and
/// fills are made of them. Defined in the program, so in front of the C library's.
#include "race/detector.hpp"

#include <dlfcn.h>

#include <cstring>

namespace devcomm::simulator::race {
namespace {

using copy_function = void*(void*, const void*, size_t);
using fill_function = void*(void*, int, size_t);

/// The C library's own; loaded up at the first call, which may be before any constructor has run.
template <class Function>
Function* real(Function*& kept, const char* name) {
  Function* found = __atomic_load_n(&kept, __ATOMIC_RELAXED);
  if (found != nullptr) return found;
  found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  __atomic_store_n(&kept, found, __ATOMIC_RELAXED);
  return found;
}

copy_function* real_memcpy = nullptr;
copy_function* real_memmove = nullptr;
fill_function* real_memset = nullptr;

/// `shows`: what is read is not written by the same call.
void note(const void* address, size_t bytes, uint64_t kind, const void* code, bool shows) {
  if (bytes == 0 || guard::held()) return;
  const auto at = reinterpret_cast<uintptr_t>(address);
  detector& d = the_detector();
  if (d.watches(at, bytes)) d.plain_access(at, bytes, kind, code, shows);
}

/// The source comes last: older values that it was shown are restored at the next access.
void note_copy(void* to, const void* from, size_t bytes, const void* code) {
  const auto a = reinterpret_cast<uintptr_t>(to);
  const auto b = reinterpret_cast<uintptr_t>(from);
  note(to, bytes, record::write, code, true);
  note(from, bytes, 0, code, a + bytes <= b || b + bytes <= a);
}

}  // namespace
}  // namespace devcomm::simulator::race

using namespace devcomm::simulator::race;  // NOLINT(google-build-using-namespace,google-global-names-in-headers)

extern "C" {

void* memcpy(void* to, const void* from, size_t bytes) noexcept {
  note_copy(to, from, bytes, __builtin_return_address(0));
  return real(real_memcpy, "memcpy")(to, from, bytes);
}
void* memmove(void* to, const void* from, size_t bytes) noexcept {
  note_copy(to, from, bytes, __builtin_return_address(0));
  return real(real_memmove, "memmove")(to, from, bytes);
}
void* memset(void* to, int value, size_t bytes) noexcept {
  note(to, bytes, record::write, __builtin_return_address(0), false);
  return real(real_memset, "memset")(to, value, bytes);
}

// Newer compilers call these where the source has the plain ones.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  note_copy(to, from, bytes, __builtin_return_address(0));
  return real(real_memcpy, "memcpy")(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  note_copy(to, from, bytes, __builtin_return_address(0));
  return real(real_memmove, "memmove")(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  note(to, bytes, record::write, __builtin_return_address(0), false);
  return real(real_memset, "memset")(to, value, bytes);
}
}
