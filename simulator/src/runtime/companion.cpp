#include "runtime/companion.hpp"

#include "runtime/simulation.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

// Of a race detector, where there is one.
extern "C" {
__attribute__((weak)) void __tsan_read_range(void*, size_t);
__attribute__((weak)) void __tsan_write_range(void*, size_t);
__attribute__((weak)) uint64_t __tsan_atomic64_load(const volatile uint64_t*, int);
__attribute__((weak)) void __tsan_atomic64_store(volatile uint64_t*, uint64_t, int);
}

namespace devcomm::simulator::detail {
namespace {

/// Whose step runs, by its identity.
void* running_identity = nullptr;

class companion final : public host::detail::companion, public companion_work {
 public:
  companion(int its_rank, std::function<bool(const host::detail::choose_next&)> step)
      : companion_work(its_rank), step_(std::move(step)), identity_(sanitizer::new_network_identity()) {
    const engine_guard hold;
    auto& all = the_engine().companions;
    // Hosts come in any order.
    all.insert(std::upper_bound(all.begin(), all.end(), its_rank,
                                [](int mine, const companion_work* other) { return mine < other->rank; }),
               this);
  }
  ~companion() override {
    const engine_guard hold;
    random_choice random(the_engine().config.seed);
    while (companion::step(random)) {
    }
    // As one joins a thread.
    void* const self = sanitizer::identity();
    sanitizer::become(identity_);
    sanitizer::release(over_);
    sanitizer::become(self);
    sanitizer::acquire(over_);
    std::erase(the_engine().companions, this);
    sanitizer::drop_identity(identity_);
  }
  companion(const companion&) = delete;
  companion& operator=(const companion&) = delete;

  [[nodiscard]] bool step(random_choice& random) override {
    running_identity = identity_;
    const bool any = step_([&](uint32_t count) { return random.below(count); });
    running_identity = nullptr;
    return any;
  }

 private:
  std::function<bool(const host::detail::choose_next&)> step_;
  void* identity_;
  sanitizer::cell over_;
};

template <class Access>
void observed(const Access& access) {
  void* const self = sanitizer::identity();
  sanitizer::become(running_identity);
  access();
  sanitizer::become(self);
}

/// `announce` tells ThreadSanitizer of the access to shared memory; devcomm's own detector knows that memory itself.
template <class Announce>
void copy_as_companion(void* destination, const void* source, size_t bytes, const Announce& announce) {
  if (bytes == 0) return;  // both may be null
  if (sanitizer::thread()) {
    observed(announce);
    std::memmove(destination, source, bytes);
  } else {
    observed([=] { std::memmove(destination, source, bytes); });
  }
}

}  // namespace

std::unique_ptr<host::detail::companion> accompany(int rank,
                                                   std::function<bool(const host::detail::choose_next&)> step) {
  return std::make_unique<companion>(rank, std::move(step));
}

void fetch_as_companion(void* own, const void* shared, size_t bytes) {
  copy_as_companion(own, shared, bytes, [=] { __tsan_read_range(const_cast<void*>(shared), bytes); });
}

void deliver_as_companion(void* shared, const void* own, size_t bytes) {
  copy_as_companion(shared, own, bytes, [=] { __tsan_write_range(shared, bytes); });
}

uint64_t load_as_companion(const uint64_t* word) {
  uint64_t value = 0;
  observed([&] {
    value = __tsan_atomic64_load != nullptr ? __tsan_atomic64_load(word, __ATOMIC_ACQUIRE)
                                            : __atomic_load_n(word, __ATOMIC_ACQUIRE);
  });
  return value;
}

void store_as_companion(uint64_t* word, uint64_t value) {
  observed([=] {
    if (__tsan_atomic64_store != nullptr) {
      __tsan_atomic64_store(word, value, __ATOMIC_RELEASE);
    } else {
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
  });
}

}  // namespace devcomm::simulator::detail
