/// Background tasks in explorations: each of their steps is a choice, beside the threads that can go on.
#include "engine/engine.hpp"
#include "engine/explorer.hpp"

#include <utility>

namespace devcomm::simulator::detail {
namespace {

/// Of a step, the same in every run. `ordinal`: of its background task among those of its rank.
thread_key key_of(const background_work& who, uint32_t ordinal, const host::detail::network_step& step) {
  const auto part = static_cast<uint32_t>(step.offset);
  return network_key(who.rank, ordinal << 16 | step.context, step.number, part << 3 | static_cast<uint32_t>(step.what));
}

}  // namespace

bool engine::network_is_next() {
  if (background_tasks.empty() || waiting_frees != 0) return false;
  const sanitizer::unobserved hidden;
  std::vector<due_step> all;
  std::vector<thread_key> keys;
  uint32_t ordinal = 0;
  const background_work* before = nullptr;
  for (background_work* const who : background_tasks) {
    ordinal = before != nullptr && before->rank == who->rank ? ordinal + 1 : 0;
    before = who;
    for (const host::detail::network_step& step : who->possible()) {
      keys.push_back(key_of(*who, ordinal, step));
      all.push_back({who, step, keys.back()});
    }
  }
  if (all.empty()) return false;
  if (ready_blocks.empty()) order.begins();
  const std::optional<size_t> chosen = order.choose_network(ready_blocks, keys);
  if (chosen) due_ = all[*chosen];
  return chosen.has_value();
}

void engine::step_network() {
  if (due_.who == nullptr) return;
  const sanitizer::unobserved hidden;
  const due_step next = std::exchange(due_, {});
  ++steps;
  ++progress;
  const std::vector<memory_access> accesses = next.who->take(next.what);
  if (explored_by != nullptr) explored_by->network_stepped(next.key, next.what, accesses);
}

void engine::finish_network() {
  while (network_is_next()) step_network();
  for (background_work* const one : background_tasks) one->join();
}

}  // namespace devcomm::simulator::detail
