#include "gpu/shared_memory.hpp"

#include "base/sanitizer.hpp"
#include "gpu/code_module.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <string>

namespace devcomm::simulator::detail {
namespace shared_memory {
namespace {

constexpr unsigned char fresh = 0xff;   // NaN in every floating-point type
constexpr unsigned char behind = 0xcd;  // behind the end
constexpr size_t watched = 256;         // bytes behind the end

/// Of the module whose kernel the calling OS thread runs.
const dynamic_shared* array() { return this_module == nullptr ? nullptr : this_module->parts.shared; }

// Plain loops: memset would be ThreadSanitizer's.
void fill(char* p, size_t bytes, unsigned char with) {
  auto* out = reinterpret_cast<volatile unsigned char*>(p);
  for (size_t i = 0; i < bytes; ++i) out[i] = with;
}

size_t watched_bytes(size_t bytes) { return std::min(watched, array()->bytes - std::min(bytes, array()->bytes)); }

}  // namespace

size_t thread_local_bytes() {
  const dynamic_shared* const of_program = code_modules().front()->parts.shared;
  return of_program == nullptr ? 0 : of_program->bytes;
}

void poison(size_t bytes) {
  if (array() == nullptr) return;
  char* start = array()->start();
  fill(start, std::min(bytes, array()->bytes), fresh);
  fill(start + bytes, watched_bytes(bytes), behind);
  sanitizer::poison(start + bytes, array()->bytes - bytes);
}

char* start() { return array() == nullptr ? nullptr : array()->start(); }

void unpoison() {
  if (array() != nullptr) sanitizer::unpoison(array()->start(), array()->bytes);
}

std::string describe(const void* address, size_t launch_bytes) {
  if (array() == nullptr) return {};
  const auto bytes = static_cast<ptrdiff_t>(launch_bytes);
  const ptrdiff_t offset = static_cast<const char*>(address) - array()->start();
  if (offset < bytes || offset >= static_cast<ptrdiff_t>(array()->bytes)) return {};
  return std::to_string(offset - bytes) + " bytes past the end of dynamic shared memory, of which the launch has " +
         std::to_string(bytes) + " bytes";
}

bool intact(size_t bytes) {
  if (array() == nullptr) return true;
  sanitizer::unpoison(array()->start(), array()->bytes);
  const auto* p = reinterpret_cast<const volatile unsigned char*>(array()->start() + bytes);
  for (size_t i = 0; i < watched_bytes(bytes); ++i) {
    if (p[i] != behind) return false;
  }
  return true;
}

}  // namespace shared_memory

}  // namespace devcomm::simulator::detail

/// Objects in a block's shared memory are not destroyed: it goes with the block.
extern "C" int __cxa_thread_atexit(void (*destroy)(void*), void* object, void* library) {
  using devcomm::simulator::detail::shared_of_block;
  if (shared_of_block.contains(object)) return 0;
  using function = int(void (*)(void*), void*, void*);
  static auto* const real = reinterpret_cast<function*>(dlsym(RTLD_NEXT, "__cxa_thread_atexit"));
  return real(destroy, object, library);
}
