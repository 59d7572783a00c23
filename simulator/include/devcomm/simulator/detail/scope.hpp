/// \file scope.hpp
/// Reports to devcomm's race detector what compilers do not: the scope of atomic operations and fences, and loads that
/// are not coherent. Empty in programs without it.
#pragma once

namespace devcomm::simulator::detail {

/// With the race detector's values, to which a cluster is a block where it has one, else a device.
enum class atomic_scope : unsigned char { block = 1, device = 2, system = 3, cluster = 4 };
/// Whether a cluster has one block.
[[nodiscard]] bool clusters_are_blocks() noexcept;

}  // namespace devcomm::simulator::detail

#if defined(__SANITIZE_THREAD__)
#  define DEVCOMM_SIMULATOR_SCOPES 1
#elif defined(__has_feature)
#  if __has_feature(thread_sanitizer)
#    define DEVCOMM_SIMULATOR_SCOPES 1
#  endif
#endif

#if defined(DEVCOMM_SIMULATOR_SCOPES)
/// Sets the scope of what the calling thread does; returns the one before. Not there with ThreadSanitizer.
extern "C" __attribute__((weak)) unsigned char devcomm_simulator_race_scope(unsigned char scope);
/// Until false follows, atomic operations of the calling thread publish what was known when its kernel began.
extern "C" __attribute__((weak)) void devcomm_simulator_race_tells_launch(bool tells);
/// A load follows of memory that must not change while the kernel runs; `restricted`: by a const __restrict__ pointer.
extern "C" __attribute__((weak)) void devcomm_simulator_race_read_only(const void* address, unsigned long bytes,
                                                                       bool restricted);
#endif

namespace devcomm::simulator::detail {

__attribute__((always_inline)) inline void read_only(const void* address, unsigned long bytes,
                                                     bool restricted = false) {
#if defined(DEVCOMM_SIMULATOR_SCOPES)
  if (devcomm_simulator_race_read_only != nullptr) devcomm_simulator_race_read_only(address, bytes, restricted);
#else
  static_cast<void>(address);
  static_cast<void>(bytes);
  static_cast<void>(restricted);
#endif
}

/// While it lives, atomic operations of the calling thread publish what was known when its kernel began.
class at_launch {
 public:
#if defined(DEVCOMM_SIMULATOR_SCOPES)
  at_launch() { tell(true); }
  ~at_launch() { tell(false); }
  at_launch(const at_launch&) = delete;
  at_launch& operator=(const at_launch&) = delete;
  /// Whether there is somebody who knows.
  [[nodiscard]] static bool known() { return devcomm_simulator_race_tells_launch != nullptr; }

 private:
  static void tell(bool on) {
    if (known()) devcomm_simulator_race_tells_launch(on);
  }
#else
  [[nodiscard]] static bool known() { return false; }
#endif
};

/// While it lives, atomic operations and fences of the calling thread have this scope; else system.
template <atomic_scope Scope>
class at_scope {
 public:
#if defined(DEVCOMM_SIMULATOR_SCOPES)
  at_scope() : before_(set(static_cast<unsigned char>(known()))) {}
  at_scope(const at_scope&) : at_scope() {}
  at_scope& operator=(const at_scope&) = delete;
  ~at_scope() { set(before_); }

 private:
  static atomic_scope known() {
    if (Scope != atomic_scope::cluster) return Scope;
    return clusters_are_blocks() ? atomic_scope::block : atomic_scope::device;
  }
  static unsigned char set(unsigned char scope) {
    return devcomm_simulator_race_scope != nullptr ? devcomm_simulator_race_scope(scope) : scope;
  }
  unsigned char before_;
#else
  at_scope() {}  // NOLINT(modernize-use-equals-default): else variables of this type were unused
#endif
};

}  // namespace devcomm::simulator::detail
