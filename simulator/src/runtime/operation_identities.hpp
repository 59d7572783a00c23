/// \file operation_identities.hpp
/// Who a race detector takes the network's proxy for: each operation for a thread of its own.
///
/// An operation knows what its poster released, and what `gin::context` promises of earlier ones: a strong signal has
/// the data of earlier puts of its context to that peer, a weak one that of its own put alone. The words that say how
/// far a context has come are stored by a further thread of the context, which knows what is complete.
#pragma once

#include "base/sanitizer.hpp"

#include <device/network_step.hpp>

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace devcomm::simulator::detail {

/// Of one proxy, and only for devcomm's own race detector. Of its operations every fourth is the same thread, which
/// counts as one after the other: clocks stay short, and no race is reported that is none.
class operation_identities {
 public:
  using network_step = host::detail::network_step;

  operation_identities() = default;
  ~operation_identities() {
    for (void* const one : all_) sanitizer::drop_identity(one);
  }
  operation_identities(const operation_identities&) = delete;
  operation_identities& operator=(const operation_identities&) = delete;

  /// Whose step `step` is, which comes next.
  [[nodiscard]] void* begin(const network_step& step) {
    context& own = contexts_[step.context];
    const bool takes = step.what == network_step::kind::take;
    operation& one = own.operations[step.number];
    if (takes) one.identity = next_identity();
    running_ = &own;
    of_ = one.identity;
    words_know_ = false;
    if (takes) return of_;
    if (!one.is_described)
      sanitizer::describe_operation(of_, step.context, step.number, static_cast<int>(step.peer), step.puts);
    one.is_described = true;
    one.peer = step.peer;
    one.puts = step.puts;
    one.covers_earlier = step.covers_earlier;
    if (step.is_fence || (step.what == network_step::kind::signal && step.covers_earlier)) {
      as(of_, [&] { acquire_earlier(own, step); });
    }
    return of_;
  }
  /// `step`, which has begun, is over.
  void end(const network_step& step) {
    context& own = contexts_[step.context];
    operation& one = own.operations.at(step.number);
    const bool arrives =
        one.puts && (step.what == network_step::kind::write || step.what == network_step::kind::finish);
    if (arrives && !step.is_last) as(one.identity, [&] { sanitizer::release(one.data); });
    one.is_over = step.is_last;
    if (step.what == network_step::kind::signal) one.signals = true;
    running_ = nullptr;
    if (!step.is_last) return;
    if (own.operations.begin()->first != step.number) as(one.identity, [&] { sanitizer::release(one.all); });
    while (!own.operations.empty() && own.operations.begin()->second.is_over) {
      const operation& first = own.operations.begin()->second;
      as(first.identity, [&] { sanitizer::release(own.settled[first.peer]); });
      own.operations.erase(own.operations.begin());
    }
  }
  /// Who stores a word that says how far the context of the step has come, which knows what the step knows.
  [[nodiscard]] void* of_words() {
    if (words_know_) return running_->words_identity;
    words_know_ = true;
    if (running_->words_identity == nullptr) running_->words_identity = new_identity();
    as(of_, [&] { sanitizer::release(running_->to_words); });
    as(running_->words_identity, [&] { sanitizer::acquire(running_->to_words); });
    return running_->words_identity;
  }
  /// Publishes all that was done.
  void release(sanitizer::cell& over) const {
    for (void* const one : all_) as(one, [&] { sanitizer::release(over); });
  }

 private:
  struct operation {
    void* identity = nullptr;
    std::uint32_t peer = 0;
    bool puts = false;
    bool covers_earlier = false;
    bool is_described = false;  // to reports
    bool signals = false;       // after its data
    bool is_over = false;
    sanitizer::cell data;  // of a put that has a signal: its steps before that
    sanitizer::cell all;   // once it is over
  };
  struct context {
    sanitizer::cell to_words;
    void* words_identity = nullptr;
    std::map<std::uint64_t, operation> operations;     // from the first that is not over
    std::map<std::uint32_t, sanitizer::cell> settled;  // by peer, of those before
  };

  template <class Action>
  static void as(void* identity, const Action& action) {
    void* const self = sanitizer::identity();
    sanitizer::become(identity);
    action();
    sanitizer::become(self);
  }
  static void acquire_earlier(context& own, const network_step& step) {
    sanitizer::acquire(own.settled[step.peer]);
    for (auto& [number, other] : own.operations) {
      if (number >= step.number) break;
      if (other.peer != step.peer) continue;
      if (step.is_fence || other.covers_earlier) {
        sanitizer::acquire(other.all);
      } else if (other.puts) {
        sanitizer::acquire(other.is_over && !other.signals ? other.all : other.data);
      }
    }
  }
  [[nodiscard]] void* new_identity() {
    all_.push_back(sanitizer::new_network_identity());
    return all_.back();
  }
  [[nodiscard]] void* next_identity() {
    void*& next = in_turn_[taken_++ % std::size(in_turn_)];
    if (next == nullptr) next = new_identity();
    return next;
  }

  std::map<std::uint32_t, context> contexts_;
  std::vector<void*> all_;
  void* in_turn_[4] = {};
  std::uint64_t taken_ = 0;
  context* running_ = nullptr;
  void* of_ = nullptr;
  bool words_know_ = false;  // what the running step did
};

}  // namespace devcomm::simulator::detail
