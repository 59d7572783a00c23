#include "runtime/background_task.hpp"

#include "base/random.hpp"
#include "runtime/operation_identities.hpp"
#include "runtime/simulation.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

// Of a race detector, where there is one.
extern "C" {
__attribute__((weak)) void __tsan_read_range(void*, size_t);
__attribute__((weak)) void __tsan_write_range(void*, size_t);
__attribute__((weak)) uint64_t __tsan_atomic64_load(const volatile uint64_t*, int);
}

namespace devcomm::simulator::detail {
namespace {

using host::detail::describe_step;
using host::detail::network_step;

/// Whose step runs, by its identity.
void* running_identity = nullptr;
/// Of the proxy whose step runs, and in its words what the step says of the whole context; null where a proxy is one
/// thread to the detector.
operation_identities* running_operations = nullptr;
/// The word that the step has loaded last, to add to it.
const uint64_t* loaded_word = nullptr;
/// The step that runs, where reports name its operation.
const network_step* running_step = nullptr;

/// In explorations, what the step that runs touches; null before it is chosen.
std::vector<memory_access>* touched = nullptr;
bool takes = false;     ///< what it fetches was stored by the kernel that made it possible
bool commutes = false;  ///< words of kernels are added to, or count what is done

/// Of memory that the step has read or written, as it is afterwards.
void touch(const void* shared, size_t bytes, bool writes, bool is_word = false) {
  if (touched == nullptr || bytes == 0) return;
  uint64_t value = 0;
  const char* const from = static_cast<const char*>(shared);
  for (size_t at = 0; at < bytes; at += sizeof value) {
    uint64_t part = 0;
    std::memcpy(&part, from + at, std::min(sizeof part, bytes - at));
    value = bytes <= sizeof value ? part : random_choice(value ^ part).next();
  }
  touched->push_back({reinterpret_cast<uintptr_t>(shared), static_cast<uint32_t>(bytes), writes, value,
                      takes && !writes, is_word && commutes});
}

bool is_same(const network_step& a, const network_step& b) {
  return a.what == b.what && a.context == b.context && a.number == b.number && a.offset == b.offset;
}

class background_task final : public host::detail::background_task, public background_work {
 public:
  background_task(int its_rank, host::detail::proxy_work work)
      : background_work(its_rank), work_(std::move(work)), identity_(sanitizer::new_network_identity()) {
    const engine_guard hold;
    auto& all = the_engine().background_tasks;
    // Hosts come in any order.
    all.insert(std::upper_bound(all.begin(), all.end(), its_rank,
                                [](int mine, const background_work* other) { return mine < other->rank; }),
               this);
  }
  ~background_task() override {
    const engine_guard hold;
    random_choice random(the_engine().config.seed);
    while (background_task::step(random)) {
    }
    if (sanitizer::thread()) {
      // Proxies of other ranks have changed this rank's words, under a lock of which ThreadSanitizer's fibers know
      // nothing.
      for (background_work* const each : the_engine().background_tasks) each->join();
    } else {
      background_task::join();
    }
    std::erase(the_engine().background_tasks, this);
    sanitizer::drop_identity(identity_);
  }
  background_task(const background_task&) = delete;
  background_task& operator=(const background_task&) = delete;

  [[nodiscard]] bool step(random_choice& random) override {
    return call([&](uint32_t count, const describe_step& what) {
      const uint32_t chosen = choose(random, count, what);
      if (sanitizer::exact() && chosen != host::detail::no_step) begin(what(chosen));
      return chosen;
    });
  }

  [[nodiscard]] std::vector<network_step> possible() override {
    std::vector<network_step> all;
    call([&](uint32_t count, const describe_step& what) {
      for (uint32_t i = 0; i < count; ++i) all.push_back(what(i));
      return host::detail::no_step;
    });
    return all;
  }
  [[nodiscard]] std::vector<memory_access> take(const network_step& step) override {
    std::vector<memory_access> all;
    call([&](uint32_t count, const describe_step& what) {
      for (uint32_t i = 0; i < count; ++i) {
        if (!is_same(what(i), step)) continue;
        if (sanitizer::exact()) begin(step);
        touched = &all;
        takes = step.what == network_step::kind::take;
        commutes = step.what != network_step::kind::signal || !step.sets_signal;
        return i;
      }
      return host::detail::no_step;
    });
    touched = nullptr;
    takes = commutes = false;
    return all;
  }
  void join() override {
    void* const self = sanitizer::identity();
    sanitizer::become(identity_);
    sanitizer::release(over_);
    sanitizer::become(self);
    operations_.release(over_);
    sanitizer::acquire(over_);
  }
  [[nodiscard]] bool keep() override {
    restore_ = work_.keep();
    return restore_ != nullptr;
  }
  void restore() override {
    if (restore_ != nullptr) restore_();
  }

 private:
  /// Where ranks lag, what goes to some peers, by the seed, is held back again and again, as on a network of which one
  /// path is busy.
  uint32_t choose(random_choice& random, uint32_t count, const describe_step& what) {
    const uint32_t chosen = random.below(count);
    const engine& e = the_engine();
    const auto lags = [&](const network_step& step) {
      const uint64_t pair = uint64_t{step.peer} << 32 | static_cast<uint32_t>(rank);
      return step.what != network_step::kind::take && (random_choice(e.config.seed ^ pair).next() & 1) != 0;
    };
    if (e.order.kind() != schedule_kind::slow_rank || !lags(what(chosen))) return chosen;
    constexpr uint32_t at_once = 64;  // steps of such peers, between two times that they wait
    if (held_ == 0) held_ = at_once + (16u << random.below(10));
    if (--held_ < at_once) return chosen;
    for (uint32_t i = 1; i < count; ++i) {
      const uint32_t other = (chosen + i) % count;
      if (!lags(what(other))) return other;
    }
    return host::detail::no_step;
  }

  bool call(const host::detail::choose_next& choose) {
    running_identity = identity_;
    const bool any = work_.step(choose);
    running_identity = nullptr;
    if (running_operations != nullptr) operations_.end(begun_);
    running_operations = nullptr;
    running_step = nullptr;
    return any;
  }
  void begin(const network_step& step) {
    begun_ = step;
    running_identity = operations_.begin(step);
    running_operations = &operations_;
    running_step = &begun_;
    loaded_word = nullptr;
  }

  host::detail::proxy_work work_;
  host::detail::restore_state restore_;
  operation_identities operations_;
  network_step begun_{};
  uint32_t held_ = 0;
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
void copy_in_background(void* destination, const void* source, size_t bytes, const Announce& announce) {
  if (bytes == 0) return;  // both may be null
  if (sanitizer::thread()) {
    observed(announce);
    std::memmove(destination, source, bytes);
  } else {
    observed([=] { std::memmove(destination, source, bytes); });
  }
}

}  // namespace

std::unique_ptr<host::detail::background_task> start_background_task(int rank, host::detail::proxy_work work) {
  return std::make_unique<background_task>(rank, std::move(work));
}

gin::descriptor take_in_background(const gin::descriptor* posted, const std::function<gin::descriptor()>& load) {
  if (running_step != nullptr && running_step->what == network_step::kind::take)
    sanitizer::take_operation(running_identity, running_step->context, running_step->number, &posted->head);
  touch(posted, sizeof *posted, false);
  std::vector<memory_access>* const whole = std::exchange(touched, nullptr);
  const gin::descriptor taken = load();
  touched = whole;
  return taken;
}

void fetch_in_background(void* own, const void* shared, size_t bytes) {
  copy_in_background(own, shared, bytes, [=] { __tsan_read_range(const_cast<void*>(shared), bytes); });
  touch(shared, bytes, false);
}

void deliver_in_background(void* shared, const void* own, size_t bytes) {
  copy_in_background(shared, own, bytes, [=] { __tsan_write_range(shared, bytes); });
  touch(shared, bytes, true);
}

uint64_t load_in_background(const uint64_t* word) {
  uint64_t value = 0;
  observed([&] {
    value = __tsan_atomic64_load != nullptr ? __tsan_atomic64_load(word, __ATOMIC_ACQUIRE)
                                            : __atomic_load_n(word, __ATOMIC_ACQUIRE);
  });
  loaded_word = word;
  touch(word, sizeof *word, false, true);
  return value;
}

void store_in_background(uint64_t* word, uint64_t value) {
  // Signals and counters say nothing of operations but those that have changed them.
  void* const operation = running_identity;
  const bool signals = running_step != nullptr && running_step->what == network_step::kind::signal;
  if (running_operations != nullptr && !signals && loaded_word != word)
    running_identity = running_operations->of_words();
  observed([=] { sanitizer::store_release(word, value); });
  running_identity = operation;
  touch(word, sizeof *word, true, true);
}

}  // namespace devcomm::simulator::detail
