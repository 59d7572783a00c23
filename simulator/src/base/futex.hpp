/// \file futex.hpp
/// Waiting among OS threads by raw futexes.
///
/// Pthread primitives and `std::atomic` are known to ThreadSanitizer and would order the memory of
/// simulated threads that CUDA leaves unordered, so the runtime uses neither.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <ctime>

#include <climits>
#include <cstdint>

namespace devcomm::simulator::detail {

inline void futex_wait(const uint32_t* word, uint32_t while_value, const timespec* limit = nullptr) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_value, limit, nullptr, 0);
}
inline void futex_wake(const uint32_t* word, int threads) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

/// The same for a part of those that wait on a word: a wake reaches whoever waits with a common bit.
inline void futex_wait_bits(const uint32_t* word, uint32_t while_value, uint32_t bits) {
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, while_value, nullptr, nullptr, bits);
}
inline void futex_wake_bits(const uint32_t* word, uint32_t bits) {
  syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr, bits);
}

inline timespec to_timespec(uint64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / 1000000000u), static_cast<long>(nanoseconds % 1000000000u)};
}

/// A time, or a step, that never comes.
inline constexpr uint64_t never = ~uint64_t{0};

/// Nanoseconds of real time.
inline uint64_t real_time() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

/// A permit given to one OS thread by another.
class turn {
 public:
  void give() {
    __atomic_store_n(&word_, 1u, __ATOMIC_RELEASE);
    futex_wake(&word_, 1);
  }
  /// Returns once the permit is here, and takes it.
  void await() {
    while (__atomic_load_n(&word_, __ATOMIC_ACQUIRE) == 0) futex_wait(&word_, 0);
    word_ = 0;
  }
  /// `await` for about `limit` nanoseconds; whether the permit came.
  bool await_for(uint64_t limit) {
    if (__atomic_load_n(&word_, __ATOMIC_ACQUIRE) == 0) {
      const timespec t = to_timespec(limit);
      futex_wait(&word_, 0, &t);
      if (__atomic_load_n(&word_, __ATOMIC_ACQUIRE) == 0) return false;
    }
    word_ = 0;
    return true;
  }

 private:
  uint32_t word_ = 0;
};

/// Fair, and may be unlocked by another thread than the one that locked it, as it is passed on with the
/// baton. Of the threads that wait, one in 32 is woken: as many ranks queue here as there are.
class ticket_lock {
 public:
  void lock() {
    const uint32_t mine = __atomic_fetch_add(&next_, 1u, __ATOMIC_RELAXED);
    for (;;) {
      const uint32_t now = __atomic_load_n(&serving_, __ATOMIC_ACQUIRE);
      if (now == mine) return;
      futex_wait_bits(&serving_, now, bit_of(mine));
    }
  }
  void unlock() {
    const uint32_t now = serving_ + 1;
    __atomic_store_n(&serving_, now, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&next_, __ATOMIC_SEQ_CST) != now) futex_wake_bits(&serving_, bit_of(now));
  }
  /// Whether a thread waits for the holder.
  [[nodiscard]] bool contended() const { return __atomic_load_n(&next_, __ATOMIC_RELAXED) - serving_ > 1; }

 private:
  static uint32_t bit_of(uint32_t ticket) { return uint32_t{1} << (ticket % 32); }

  uint32_t next_ = 0;
  uint32_t serving_ = 0;
};

}  // namespace devcomm::simulator::detail
