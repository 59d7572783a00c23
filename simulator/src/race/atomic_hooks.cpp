/// What compilers call in place of atomic operations under -fsanitize=thread.
#include "gpu/device_globals.hpp"
#include "race/detector.hpp"

#include <cstring>

namespace devcomm::simulator::race {
namespace {

__extension__ using word128 = unsigned __int128;

constexpr bool acquires(int order) { return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE; }
constexpr bool releases(int order) {
  return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

/// One operation, with the detector's lock where there is something to follow: a value is read or written
/// and noted in one step. As an access it comes after what it acquires, and before what it publishes.
class operation {
 public:
  template <class T>
  operation(const volatile T* address, bool writes, const void* code)
      : a_(self()),
        address_(reinterpret_cast<uintptr_t>(address)),
        bytes_(sizeof(T)),
        code_(reinterpret_cast<uint64_t>(code)),
        writes_(writes) {
    detector& d = the_detector();
    // Before it has a clock, and in memory that is not watched, nothing follows from what it does.
    skipped_ = a_.ignored > 0;
    if (skipped_) return;
    a_.code = code_;
    at_ = &d.variable_at(address_, a_.device);
    buffer_ = d.buffer.on() ? &d.buffer : nullptr;
  }
  /// Whether a load finds a value from before a delayed store; with its order, then.
  template <class T>
  bool finds_older(T& value, int order) {
    if (buffer_ == nullptr) return false;
    if (order == __ATOMIC_SEQ_CST) buffer_->sequential_fence(a_);
    if constexpr (sizeof(T) > 8) {
      buffer_->observe(a_, address_, bytes_);
      return false;
    } else {
      return buffer_->load(a_, address_, value, at_);
    }
  }
  /// The latest value is read.
  void observe(int order) {
    if (buffer_ == nullptr) return;
    if (order == __ATOMIC_SEQ_CST) buffer_->sequential_fence(a_);
    buffer_->observe(a_, address_, bytes_);
  }
  /// `before`: what was there, or null if it still is.
  void replaces(int order, const void* before, bool change = false) {
    if (buffer_ == nullptr) return;
    if (order == __ATOMIC_SEQ_CST) buffer_->sequential_fence(a_);
    buffer_->store(a_, address_, bytes_, at_, before, change);
  }
  /// Whether the store takes effect before a delayed one, which overwrites it.
  template <class T>
  bool is_overtaken(const T& value, int order) {
    if (skipped_ || buffer_ == nullptr || order == __ATOMIC_SEQ_CST) return false;
    variable* before = nullptr;
    if constexpr (sizeof(T) <= 8) before = buffer_->come_before(a_, address_, value, *at_);
    if (before == nullptr) return false;
    access();
    note_release(order);
    before->store(a_, releases(order));
    return true;
  }
  void load(int order) {
    if (skipped_) return;
    at_->load(a_, acquires(order));
    note_value();
    access();
  }
  void store(int order) {
    if (skipped_) return;
    access();
    note_release(order);
    at_->store(a_, releases(order));
  }
  void change(int order) {
    if (skipped_) return;
    at_->load(a_, acquires(order));
    access();
    note_release(order);
    note_value();
    at_->go_on(a_, acquires(order), releases(order));
  }

 private:
  void access() {
    const uint64_t kind = static_cast<uint64_t>(a_.scope) << 5 | (writes_ ? record::write : 0);
    the_detector().access(a_, address_, bytes_, kind | (bytes_ > 4 ? record::wide : 0), code_);
  }

  /// A value that is found across a scope that is too narrow is a race.
  void note_value() {
    if (at_->seen_by(a_)) a_.note_value(address_, at_->history());
  }
  void note_release(int order) {
    if (buffer_ != nullptr && releases(order)) buffer_->release(a_);
  }

  actor& a_;
  uintptr_t address_;
  size_t bytes_;
  uint64_t code_;
  bool writes_;
  variable* at_ = nullptr;
  store_buffer* buffer_ = nullptr;
  bool skipped_ = false;
};

// Machines have no plain load of 16 bytes; all that use these functions hold the lock.
template <class T>
T read(const volatile T* p) {
  if constexpr (sizeof(T) == 16) {
    return *p;
  } else {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
  }
}
template <class T>
void write(volatile T* p, T value) {
  if constexpr (sizeof(T) == 16) {
    *p = value;
  } else {
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
  }
}
template <class T>
bool swap_if(volatile T* p, T& expected, T desired) {
  if constexpr (sizeof(T) == 16) {
    const T found = *p;
    if (found != expected) {
      expected = found;
      return false;
    }
    *p = desired;
    return true;
  } else {
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
}

/// Memory gets back its latest values, where a plain load of this thread was shown older ones.
void end_shows() {
  detector& d = the_detector();
  if (!self().host) d.buffer.restore();
}

/// Before an atomic operation, without the guard.
void begin(const volatile void* address, size_t bytes, bool writes, const void* code) {
  end_shows();
  detector& d = the_detector();
  const uint64_t kind = record::atomic | (writes ? record::write : 0);
  if (d.checks_sides && !self().host) d.check_side(reinterpret_cast<uintptr_t>(address), bytes, kind, code);
}

template <class T>
T atomic_load(const volatile T* p, int order, const void* code) {
  begin(p, sizeof(T), false, code);
  const guard hold;
  operation o(p, false, code);
  T value;
  const bool older = o.finds_older(value, order);
  o.load(order);
  return older ? value : read(p);
}

template <class T>
void atomic_store(volatile T* p, T value, int order, const void* code) {
  begin(p, sizeof(T), true, code);
  const guard hold;
  operation o(p, true, code);
  if (o.is_overtaken(value, order)) return;
  o.replaces(order, nullptr);
  o.store(order);
  write(p, value);
}

template <class T, class Next>
T atomic_change(volatile T* p, int order, const void* code, Next next) {
  begin(p, sizeof(T), true, code);
  const guard hold;
  operation o(p, true, code);
  o.observe(order);
  o.replaces(order, nullptr, true);
  o.change(order);
  T old = read(p);
  while (!swap_if(p, old, static_cast<T>(next(old)))) {
  }
  return old;
}

template <class T>
bool atomic_compare_exchange(volatile T* p, T& expected, T desired, int order, int failure, const void* code) {
  begin(p, sizeof(T), true, code);
  const guard hold;
  // Both outcomes are strong accesses; as the failed one writes nothing, it is noted as a read.
  const bool success = swap_if(p, expected, desired);
  operation o(p, success, code);
  o.observe(success ? order : failure);
  if (success) {
    o.replaces(order, &expected, true);
    o.change(order);
  } else {
    o.load(failure);
  }
  return success;
}

/// What a volatile access is to PTX: relaxed, at scope system. It follows the hook, which changes what memory holds
/// where the load finds an older value; a store is never overtaken by a delayed one.
template <class T>
void volatile_access(void* address, bool writes, const void* code) {
  if (guard::held()) return;
  const auto at = reinterpret_cast<uintptr_t>(address);
  detector& d = the_detector();
  if (d.checks_sides) d.check_side(at, sizeof(T), writes ? record::write : 0, code);
  if (!d.watches(at, sizeof(T)) && !detail::is_global(address)) return;
  end_shows();
  const guard hold;
  actor& a = self();
  const reach before = a.scope;
  a.scope = reach::system;
  operation o(static_cast<T*>(address), writes, code);
  if (writes) {
    o.replaces(__ATOMIC_RELAXED, nullptr);
    o.store(__ATOMIC_RELAXED);
  } else {
    T older;
    const bool shows = o.finds_older(older, __ATOMIC_RELAXED);
    o.load(__ATOMIC_RELAXED);
    if (shows) d.buffer.show_previous(a, at, sizeof(T));
  }
  a.scope = before;
}

}  // namespace
}  // namespace devcomm::simulator::race

// NOLINTBEGIN(bugprone-macro-parentheses)
#define DEVCOMM_RACE_CHANGE(bits, T, name, expression)                                                      \
  T __tsan_atomic##bits##_##name(volatile T* p, T v, int order) {                                           \
    return devcomm::simulator::race::atomic_change(p, order, __builtin_return_address(0), [v](T old) -> T { \
      static_cast<void>(old);                                                                               \
      return static_cast<T>(expression);                                                                    \
    });                                                                                                     \
  }
#define DEVCOMM_RACE_ATOMICS(bits, T)                                                                            \
  T __tsan_atomic##bits##_load(const volatile T* p, int order) {                                                 \
    return devcomm::simulator::race::atomic_load(p, order, __builtin_return_address(0));                         \
  }                                                                                                              \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int order) {                                              \
    devcomm::simulator::race::atomic_store(p, v, order, __builtin_return_address(0));                            \
  }                                                                                                              \
  DEVCOMM_RACE_CHANGE(bits, T, exchange, v)                                                                      \
  DEVCOMM_RACE_CHANGE(bits, T, fetch_add, old + v)                                                               \
  DEVCOMM_RACE_CHANGE(bits, T, fetch_sub, old - v)                                                               \
  DEVCOMM_RACE_CHANGE(bits, T, fetch_and, old& v)                                                                \
  DEVCOMM_RACE_CHANGE(bits, T, fetch_or, old | v)                                                                \
  DEVCOMM_RACE_CHANGE(bits, T, fetch_xor, old ^ v)                                                               \
  DEVCOMM_RACE_CHANGE(bits, T, fetch_nand, ~(old & v))                                                           \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int order, int fail) {      \
    return devcomm::simulator::race::atomic_compare_exchange(p, *expected, v, order, fail,                       \
                                                             __builtin_return_address(0));                       \
  }                                                                                                              \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int order, int fail) {        \
    return devcomm::simulator::race::atomic_compare_exchange(p, *expected, v, order, fail,                       \
                                                             __builtin_return_address(0));                       \
  }                                                                                                              \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int order, int fail) {            \
    devcomm::simulator::race::atomic_compare_exchange(p, expected, v, order, fail, __builtin_return_address(0)); \
    return expected;                                                                                             \
  }
// NOLINTEND(bugprone-macro-parentheses)

#define DEVCOMM_RACE_VOLATILE(bytes, T)                                                        \
  void __tsan_volatile_read##bytes(void* address) {                                            \
    devcomm::simulator::race::volatile_access<T>(address, false, __builtin_return_address(0)); \
  }                                                                                            \
  void __tsan_volatile_write##bytes(void* address) {                                           \
    devcomm::simulator::race::volatile_access<T>(address, true, __builtin_return_address(0));  \
  }

extern "C" {
DEVCOMM_RACE_VOLATILE(1, unsigned char)
DEVCOMM_RACE_VOLATILE(2, unsigned short)
DEVCOMM_RACE_VOLATILE(4, unsigned int)
DEVCOMM_RACE_VOLATILE(8, unsigned long)
DEVCOMM_RACE_VOLATILE(16, devcomm::simulator::race::word128)

DEVCOMM_RACE_ATOMICS(8, unsigned char)
DEVCOMM_RACE_ATOMICS(16, unsigned short)
DEVCOMM_RACE_ATOMICS(32, unsigned int)
DEVCOMM_RACE_ATOMICS(64, unsigned long)
DEVCOMM_RACE_ATOMICS(128, devcomm::simulator::race::word128)

void __tsan_atomic_thread_fence(int order) {
  namespace race = devcomm::simulator::race;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  race::detector& d = race::the_detector();
  race::actor& a = race::self();
  const race::guard hold;
  a.code = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  if (race::acquires(order)) a.acquire_fence();
  if (order == __ATOMIC_SEQ_CST && d.buffer.on() && a.ignored == 0) d.buffer.sequential_fence(a);
  if (!race::releases(order)) return;
  if (d.buffer.on() && a.ignored == 0) d.buffer.release(a);
  a.release_fence();
}
void __tsan_atomic_signal_fence(int) {}

unsigned char devcomm_simulator_race_scope(unsigned char scope) {
  namespace race = devcomm::simulator::race;
  race::actor& a = race::self();
  const auto before = static_cast<unsigned char>(a.scope);
  a.scope = static_cast<race::reach>(scope);
  return before;
}

void devcomm_simulator_race_tells_launch(bool tells) { devcomm::simulator::race::self().tells_launch = tells; }

void devcomm_simulator_race_read_only(const void* address, unsigned long bytes, bool restricted) {
  namespace race = devcomm::simulator::race;
  race::detector& d = race::the_detector();
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (!d.watches(at, bytes)) return;
  const race::guard hold;
  d.read_only(race::self(), at, bytes, reinterpret_cast<uint64_t>(__builtin_return_address(0)), restricted);
}
}
