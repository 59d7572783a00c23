#include "transport/proxy.hpp"

#include "transport/operation_text.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace devcomm::host::detail {
namespace {

using gin::operation_kind;
using gin::signal_change;
using gin::strength;

bool moves_to_peer(operation_kind kind) { return kind == operation_kind::put || kind == operation_kind::put_value; }

std::uint32_t lower(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
std::uint32_t upper(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

}  // namespace

proxy::proxy(backend& devices, int device, int rank, const network_request& asked,
             std::shared_ptr<process_network> network, std::shared_ptr<const window_table> windows,
             std::function<void(const std::string&)> fail)
    : devices_(devices),
      rank_(rank),
      network_(std::move(network)),
      windows_(std::move(windows)),
      fail_(std::move(fail)) {
  for (std::uint32_t i = 0; i < asked.contexts; ++i) {
    queues_.push_back(std::make_unique<network_queue>(devices, devices, device, asked));
  }
}

proxy::~proxy() {
  running_.reset();
  network_->leave(rank_);
}

void proxy::start() {
  process_network::endpoint reached{windows_, {}};
  for (const auto& queue : queues_) reached.queues.push_back(queue.get());
  network_->join(rank_, std::move(reached));
  running_ = devices_.accompany(rank_, [this](const choose_next& choose) { return step(choose); });
}

void proxy::abandon() noexcept {
  failed_ = true;
  running_.reset();
  for (const auto& queue : queues_) queue->abandon();
}

bool proxy::step(const choose_next& choose) noexcept {
  if (failed_) return false;
  try {
    return try_step(choose);
  } catch (const std::exception& problem) {
    failed_ = true;
    fail_("rank " + std::to_string(rank_) + ": the network's proxy failed: " + problem.what());
    return false;
  }
}

bool proxy::try_step(const choose_next& choose) {
  std::vector<std::uint32_t> posted;
  if (flights_.size() < most_in_flight) {
    for (std::uint32_t i = 0; i < queues_.size(); ++i) {
      if (queues_[i]->has_next()) posted.push_back(i);
    }
  }
  std::vector<std::list<flight>::iterator> ready;
  for (auto each = flights_.begin(); each != flights_.end(); ++each) {
    if (can_advance(*each)) ready.push_back(each);
  }
  const std::size_t count = posted.size() + ready.size();
  if (count == 0) return false;
  const std::uint32_t chosen = choose(static_cast<std::uint32_t>(count));
  if (chosen < posted.size()) {
    take(posted[chosen]);
    return true;
  }
  const auto next = ready[chosen - posted.size()];
  advance(*next);
  if (next->at == stage::over) flights_.erase(next);
  return true;
}

bool proxy::can_advance(const flight& one) const {
  const gin::descriptor_head& head = one.operation.head;
  if (one.at != stage::arrived || head.covers == strength::weak) return true;
  return std::none_of(flights_.begin(), flights_.end(), [&](const flight& other) {
    if (other.context != one.context || other.operation.head.peer != head.peer) return false;
    if (other.operation.number >= one.operation.number) return false;
    const bool is_strong =
        other.operation.head.change != signal_change::none && other.operation.head.covers == strength::strong;
    return is_strong || (moves_to_peer(other.operation.head.kind) && other.at != stage::arrived);
  });
}

void proxy::take(std::uint32_t context) {
  flights_.push_back({context, queues_[context]->take(), stage::begun, {}});
  const flight& one = flights_.back();
  const std::string why = why_impossible(one.operation, queues_[context]->layout());
  if (!why.empty()) fail(one, why);
}

void proxy::advance(flight& one) {
  switch (one.at) {
    case stage::begun: return capture(one);
    case stage::captured: return arrive(one);
    case stage::arrived: return change_signal(one);
    case stage::over: return;
  }
}

template <class Use>
void proxy::with_memory(const flight& one, const window_table& windows, std::uint32_t window, std::uint64_t offset,
                        const std::string& whose, const Use& use) {
  const std::uint64_t bytes = one.operation.what.bytes;
  const bool found = windows.with(window, [&](const window_table::entry& memory) {
    if (offset <= memory.bytes && bytes <= memory.bytes - offset) {
      use(memory.local + offset);
    } else {
      fail(one, text_of_overrun(bytes, offset, memory.name, memory.bytes));
    }
  });
  if (!found) fail(one, text_of_missing_window(whose, window));
}

template <class Use>
void proxy::with_remote_memory(const flight& one, const Use& use) {
  const gin::descriptor& what = one.operation.what;
  const std::uint32_t rank = one.operation.head.peer;
  const bool reached = network_->with(static_cast<int>(rank), [&](const process_network::endpoint& peer) {
    with_memory(one, *peer.windows, upper(what.windows), what.remote, "rank " + std::to_string(rank), use);
  });
  if (!reached) fail(one, "that rank has destroyed its device communicator");
}

void proxy::capture(flight& one) {
  const gin::descriptor& what = one.operation.what;
  const gin::descriptor_head& head = one.operation.head;
  const auto with_own_memory = [&](const auto& use) {
    with_memory(one, *windows_, lower(what.windows), what.local, "this rank", use);
  };
  if (head.kind == operation_kind::put_value) {
    const auto* const value = reinterpret_cast<const std::byte*>(&what.value);
    one.data.assign(value, value + head.value_bytes);
  } else if (head.kind == operation_kind::put) {
    with_own_memory([&](const char* source) {
      one.data.resize(what.bytes);
      devices_.fetch(one.data.data(), source, what.bytes);
    });
  } else if (head.kind == operation_kind::get) {
    with_remote_memory(one, [&](const char* source) {
      one.data.resize(what.bytes);
      devices_.fetch(one.data.data(), source, what.bytes);
    });
    if (failed_) return;
    with_own_memory([&](char* destination) { devices_.deliver(destination, one.data.data(), what.bytes); });
  }
  if (failed_) return;
  complete(one);
  one.at = moves_to_peer(head.kind)             ? stage::captured
           : head.change == signal_change::none ? stage::over
                                                : stage::arrived;
}

void proxy::complete(flight& one) {
  network_queue& queue = *queues_[one.context];
  const std::uint32_t counter = queue.layout().counter(upper(one.operation.what.actions));
  if (one.operation.head.counts) queue.add(counter, 1);
  queue.complete(one.operation.number, one.operation.head.peer);
}

void proxy::arrive(flight& one) {
  with_remote_memory(one, [&](char* destination) { devices_.deliver(destination, one.data.data(), one.data.size()); });
  one.data.clear();
  one.at = one.operation.head.change == signal_change::none ? stage::over : stage::arrived;
}

void proxy::change_signal(flight& one) {
  const gin::descriptor& what = one.operation.what;
  const gin::descriptor_head& head = one.operation.head;
  const bool reached = network_->with(static_cast<int>(head.peer), [&](const process_network::endpoint& peer) {
    network_queue& theirs = *peer.queues[one.context];
    const std::uint32_t word = theirs.layout().signal(lower(what.actions));
    if (head.change == signal_change::add) {
      theirs.add(word, what.signal_value);
    } else {
      theirs.set(word, what.signal_value);
    }
  });
  if (!reached) fail(one, "that rank has destroyed its device communicator");
  one.at = stage::over;
}

void proxy::fail(const flight& one, const std::string& why) {
  if (failed_) return;
  failed_ = true;
  fail_(text_of_operation(rank_, one.context, one.operation.head) + ": " + why);
}

}  // namespace devcomm::host::detail
