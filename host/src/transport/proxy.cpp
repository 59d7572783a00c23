#include "transport/proxy.hpp"

#include "transport/operation_text.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>

namespace devcomm::host::detail {
namespace {

using gin::operation_kind;
using gin::signal_change;
using gin::strength;

bool moves_to_peer(operation_kind kind) { return kind == operation_kind::put || kind == operation_kind::put_value; }

}  // namespace

proxy::proxy(backend& devices, int device, int rank, const network_request& asked,
             std::shared_ptr<process_network> network, std::shared_ptr<const window_table> windows,
             std::vector<int> cpus, std::span<char> resources, std::function<void(const std::string&)> fail)
    : devices_(devices),
      device_(device),
      rank_(rank),
      network_(std::move(network)),
      windows_(std::move(windows)),
      cpus_(std::move(cpus)),
      resources_(resources),
      fail_(std::move(fail)),
      bounce_buffers_(devices, device, devices.traits()) {
  process_network::endpoint reached{device, windows_, {}};
  for (std::uint32_t i = 0; i < asked.contexts; ++i) {
    queues_.push_back(std::make_unique<network_queue>(devices, devices, device, asked));
    reached.queues.push_back(queues_.back().get());
  }
  network_->join(rank_, std::move(reached));
}

proxy::~proxy() {
  closing_ = true;
  running_.reset();
  network_->leave(rank_);
}

void proxy::start() {
  direct_ = devices_.open_direct_copies();
  for (const int device : network_->devices()) copies_.emplace(device, devices_.open_copies(device));
  running_ = devices_.start_background_task(
      rank_, cpus_, {[this](const choose_next& choose) { return step(choose); }, [this] { return keep(); }});
}

void proxy::abandon() noexcept {
  failed_ = closing_ = true;
  running_.reset();
  for (const auto& queue : queues_) queue->abandon();
}

bool proxy::step(const choose_next& choose) noexcept {
  try {
    const bool copies = look_at_copies();
    if (failed_) return copies;
    return try_step(choose) || copies;
  } catch (const std::exception& problem) {
    if (failed_.exchange(true)) {  // a device that has failed: no copy goes on
      operations_.clear();
      return false;
    }
    fail_("rank " + std::to_string(rank_) + ": the network's proxy failed: " + problem.what());
    return true;
  }
}

bool proxy::look_at_copies() {
  for (const auto& [device, engine] : copies_) engine->poll();
  bool any = false;
  bool goes_on = false;
  for (auto each = operations_.begin(); each != operations_.end();) {
    const auto now = each++;
    for (part& what : now->parts) {
      if (what.copies != nullptr) (settle(*now, what) ? goes_on : any) = true;
    }
    forget(now);
  }
  if (!any || goes_on || !closing_) {
    waiting_since_.reset();
    return any;
  }
  return !gave_up_waiting();
}

bool proxy::gave_up_waiting() {
  constexpr std::chrono::seconds patience(5);
  const auto now = std::chrono::steady_clock::now();
  if (!waiting_since_) waiting_since_ = now;
  if (now - *waiting_since_ < patience) return false;
  failed_ = true;
  operations_.clear();
  std::fprintf(stderr,
               "devcomm: rank %d: copies for the network do not end; what was posted last does not arrive, and memory "
               "is freed when the device is idle\n",
               rank_);
  return true;
}

void proxy::forget(std::list<operation>::iterator one) {
  one->parts.remove_if([](const part& what) { return what.at == part::place::gone; });
  if (one->at == stage::over) operations_.erase(one);
}

bool proxy::try_step(const choose_next& choose) {
  std::vector<std::uint32_t> posted;
  if (operations_.size() < max_in_flight) {
    for (std::uint32_t i = 0; i < queues_.size(); ++i) {
      if (queues_[i]->has_next()) posted.push_back(i);
    }
  }
  std::vector<action> ready;
  for (auto each = operations_.begin(); each != operations_.end(); ++each) list_actions(each, ready);
  const std::size_t count = posted.size() + ready.size();
  if (count == 0) return false;
  const auto what = [&](std::uint32_t index) {
    if (index >= posted.size()) return describe(ready[index - posted.size()]);
    const std::uint32_t context = posted[index];
    return network_step{
        network_step::kind::take, context, queues_[context]->next_number(), 0, 0, false, false, false, false, false};
  };
  const std::uint32_t chosen = choose(static_cast<std::uint32_t>(count), std::cref(what));  // allocates nothing
  if (chosen == no_step) return true;
  if (chosen < posted.size()) {
    take(posted[chosen]);
    return true;
  }
  const action& next = ready[chosen - posted.size()];
  if (next.of != nullptr) {
    begin_to_write(*next.one, *next.of);
  } else {
    advance(*next.one);
  }
  forget(next.one);
  return true;
}

network_step proxy::describe(const action& next) const {
  using kind = network_step::kind;
  const operation& one = *next.one;
  const gin::descriptor_head& head = one.posted.head;
  const bool signals = head.change != signal_change::none;
  const std::uint64_t bytes = one.posted.what.bytes;
  network_step made{kind::signal,
                    one.context,
                    one.posted.number,
                    0,
                    head.peer,
                    moves_to_peer(head.kind),
                    head.kind == operation_kind::fence,
                    signals && head.covers == strength::strong,
                    head.change == signal_change::set,
                    true};
  if (next.of != nullptr) {
    made.what = kind::write;
    made.offset = next.of->offset;
    made.is_last = !signals && one.written + next.of->bytes == bytes;
  } else if (one.at != stage::arrived && bytes != 0) {
    made.what = kind::read;
    made.offset = one.begun;
    made.is_last = false;
  } else if (one.at != stage::arrived) {
    made.what = kind::finish;
    made.offset = one.at == stage::begun ? 0 : 1;
    made.is_last = !signals && (one.at != stage::begun || !made.puts);
  }
  return made;
}

restore_state proxy::keep() {
  if (failed_ || !operations_.empty()) return nullptr;
  static constexpr std::chrono::milliseconds limit(0);  // no kernel runs
  std::vector<restore_state> kept;
  for (const auto& queue : queues_) kept.push_back(queue->keep());
  std::vector<char> on_device(resources_.size());
  devices_.read(device_, on_device.data(), resources_.data(), on_device.size(), limit);
  return [this, kept = std::move(kept), on_device = std::move(on_device)] {
    for (const restore_state& restore : kept) restore();
    devices_.copy(device_, resources_.data(), on_device.data(), on_device.size(), limit);
  };
}

void proxy::list_actions(std::list<operation>::iterator one, std::vector<action>& actions) {
  const bool moves = one->posted.what.bytes != 0;
  switch (one->at) {
    case stage::begun:
      if (one->posted.head.kind == operation_kind::fence && !may_follow(*one)) break;
      if (!moves || (one->begun != one->posted.what.bytes && bounce_buffers_.has_free()))
        actions.push_back({one, nullptr});
      break;
    case stage::captured:
      if (!moves) actions.push_back({one, nullptr});
      break;
    case stage::arrived:
      if (may_follow(*one)) actions.push_back({one, nullptr});
      break;
    case stage::over: break;
  }
  for (part& what : one->parts) {
    if (what.at == part::place::there) actions.push_back({one, &what});
  }
}

bool proxy::may_follow(const operation& one) const {
  const gin::descriptor_head& head = one.posted.head;
  const bool is_fence = head.kind == operation_kind::fence;
  if (!is_fence && head.covers == strength::weak) return true;
  return std::none_of(operations_.begin(), operations_.end(), [&](const operation& other) {
    if (other.context != one.context || other.posted.head.peer != head.peer) return false;
    if (other.posted.number >= one.posted.number) return false;
    if (is_fence) return true;
    const bool is_strong =
        other.posted.head.change != signal_change::none && other.posted.head.covers == strength::strong;
    return is_strong || (moves_to_peer(other.posted.head.kind) && other.at != stage::arrived);
  });
}

void proxy::take(std::uint32_t context) {
  operations_.push_back({context, queues_[context]->take()});
  operation& one = operations_.back();
  gin::descriptor& what = one.posted.what;
  const std::string why = why_impossible(one.posted, queues_[context]->layout());
  if (!why.empty()) return fail(one, why);
  if (one.posted.head.kind == operation_kind::put_value) what.bytes = one.posted.head.value_bytes;
  if (one.posted.head.kind == operation_kind::signal) what.bytes = 0;
}

void proxy::advance(operation& one) {
  if (one.at == stage::arrived) return change_signal(one);
  if (one.posted.what.bytes != 0) return begin_to_read(one);
  const gin::descriptor_head& head = one.posted.head;
  if (one.at == stage::begun) complete(one);
  if (one.at == stage::begun && moves_to_peer(head.kind)) {
    one.at = stage::captured;
  } else {
    one.at = head.change == signal_change::none ? stage::over : stage::arrived;
  }
}

template <class Use>
void proxy::with_memory(const operation& one, const window_table& windows, std::uint32_t window, std::uint64_t offset,
                        const std::string& whose, const Use& use) {
  const std::uint64_t bytes = one.posted.what.bytes;
  const bool found = windows.with(window, [&](const window_table::entry& memory) {
    if (offset <= memory.bytes && bytes <= memory.bytes - offset) {
      use(memory.local + offset, window_table::hold(memory.holds), memory.on_device);
    } else {
      fail(one, text_of_overrun(bytes, offset, memory.name, memory.bytes));
    }
  });
  if (!found) fail(one, text_of_missing_window(whose, window));
}

template <class Use>
void proxy::with_memory(const operation& one, bool on_peer, const Use& use) {
  const gin::descriptor& what = one.posted.what;
  const auto with_copies_of = [&](int device) {
    return [&use, this, device](char* memory, window_table::hold kept, bool on_device) {
      use(memory, std::move(kept), on_device ? *copies_.at(device) : *direct_);
    };
  };
  if (!on_peer) {
    return with_memory(one, *windows_, lower(what.windows), what.local, "this rank", with_copies_of(device_));
  }
  const std::uint32_t rank = one.posted.head.peer;
  const bool reached = network_->with(static_cast<int>(rank), [&](const process_network::endpoint& peer) {
    with_memory(one, *peer.windows, upper(what.windows), what.remote, "rank " + std::to_string(rank),
                with_copies_of(peer.device));
  });
  if (!reached) fail(one, "that rank has destroyed its device communicator");
}

void proxy::begin_to_read(operation& one) {
  const gin::descriptor& what = one.posted.what;
  const std::uint64_t bytes = std::min<std::uint64_t>(what.bytes - one.begun, bounce_buffers_.buffer_bytes());
  part& next = one.parts.emplace_back(part{bounce_buffers_.take(), one.begun, bytes});
  char* const buffer = bounce_buffers_.at(next.buffer);
  one.begun += bytes;
  if (one.posted.head.kind == operation_kind::put_value) {
    std::memcpy(buffer, &what.value, sizeof what.value);
    one.read = bytes;
    one.at = stage::captured;
    return complete(one);
  }
  with_memory(one, one.posted.head.kind == operation_kind::get,
              [&](const char* source, window_table::hold kept, copy_engine& copies) {
                next.copy = copies.begin_read(buffer, source + next.offset, bytes);
                next.copies = &copies;
                next.at = part::place::coming;
                next.memory = std::move(kept);
              });
  if (next.copies != nullptr) settle(one, next);
}

void proxy::begin_to_write(operation& one, part& what) {
  with_memory(one, one.posted.head.kind != operation_kind::get,
              [&](char* destination, window_table::hold kept, copy_engine& copies) {
                what.copy = copies.begin_write(destination + what.offset, bounce_buffers_.at(what.buffer), what.bytes);
                what.copies = &copies;
                what.at = part::place::going;
                what.memory = std::move(kept);
              });
  if (what.copies != nullptr) settle(one, what);
}

bool proxy::settle(operation& one, part& what) {
  if (!what.copies->is_done(what.copy)) return false;
  what.copies = nullptr;
  what.memory = {};
  const bool puts = one.posted.head.kind != operation_kind::get;
  const std::uint64_t all = one.posted.what.bytes;
  if (what.at == part::place::coming) {
    what.at = part::place::there;
    one.read += what.bytes;
    if (one.read != all) return true;
    one.at = stage::captured;
    if (puts) complete(one);
    return true;
  }
  what.at = part::place::gone;
  bounce_buffers_.give_back(what.buffer);
  one.written += what.bytes;
  if (one.written != all) return true;
  if (!puts) complete(one);
  one.at = one.posted.head.change == signal_change::none ? stage::over : stage::arrived;
  return true;
}

void proxy::complete(operation& one) {
  network_queue& queue = *queues_[one.context];
  const std::uint32_t counter = queue.layout().counter(upper(one.posted.what.actions));
  if (one.posted.head.counts) queue.add(counter, 1);
  queue.complete(one.posted.number, one.posted.head.peer);
}

void proxy::change_signal(operation& one) {
  const gin::descriptor& what = one.posted.what;
  const gin::descriptor_head& head = one.posted.head;
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

void proxy::fail(const operation& one, const std::string& why) {
  if (failed_) return;
  failed_ = true;
  fail_(text_of_operation(rank_, one.context, one.posted.head) + ": " + why);
}

}  // namespace devcomm::host::detail
