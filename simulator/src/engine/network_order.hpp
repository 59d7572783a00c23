/// \file network_order.hpp
/// Which steps of the network's proxies come after which, by what `gin::context` promises and no more.
#pragma once

#include "schedule/exploration.hpp"

#include <device/network_step.hpp>

#include <cstdint>
#include <map>
#include <utility>

namespace devcomm::simulator::detail {

/// `Mark` says which steps there have been: a default one none, and `join(Mark& into, const Mark& other)` adds others.
template <class Mark>
class network_order {
 public:
  using network_step = host::detail::network_step;

  /// The steps that come before `step` of the proxy of `rank`.
  [[nodiscard]] Mark before(int rank, const network_step& step) const {
    Mark earlier;
    const auto found = contexts_.find({rank, step.context});
    if (found == contexts_.end()) return earlier;
    const context& all = found->second;
    if (step.what == network_step::kind::take) {
      join(earlier, all.takes);
      return earlier;
    }
    const operation& own = all.operations.at(step.number);
    switch (step.what) {
      case network_step::kind::write: join(earlier, own.read.at(step.offset)); break;
      case network_step::kind::signal: join(earlier, own.data); break;
      default: join(earlier, own.begun); break;
    }
    const bool is_signal = step.what == network_step::kind::signal;
    if (step.is_fence || (is_signal && step.covers_earlier)) join_earlier(all, step, earlier);
    return earlier;
  }

  /// `mark`: the steps before and `step` itself, which has been taken.
  void taken(int rank, const network_step& step, const Mark& mark) {
    context& all = contexts_[{rank, step.context}];
    operation& own = all.operations[step.number];
    join(own.all, mark);
    if (step.what == network_step::kind::take) {
      ++under_way_;
      join(all.takes, mark);
      join(own.begun, mark);
      return;
    }
    own.peer = step.peer;
    own.puts = step.puts;
    own.covers_earlier = step.covers_earlier;
    if (step.what != network_step::kind::signal) join(own.data, mark);
    if (step.what == network_step::kind::write) {
      --parts_;
    } else if (step.what != network_step::kind::signal) {
      join(own.begun, mark);
    }
    if (step.what == network_step::kind::read) {
      ++parts_;
      own.read[step.offset] = mark;
    }
    if (step.is_last) --under_way_;
  }

  /// Operations that have been taken and are not over, of all ranks.
  [[nodiscard]] std::uint64_t under_way() const { return under_way_; }
  /// Parts that have been read and not written, of all ranks.
  [[nodiscard]] std::uint64_t parts() const { return parts_; }
  void clear() { *this = {}; }

 private:
  struct operation {
    std::uint32_t peer = 0;
    bool puts = false;
    bool covers_earlier = false;
    Mark begun;  // what its next part is read after
    Mark data;   // all of its steps but the signal's
    Mark all;
    std::map<std::uint64_t, Mark> read;  // of its parts, by offset
  };
  struct context {
    Mark takes;
    std::map<std::uint64_t, operation> operations;
  };

  static void join_earlier(const context& all, const network_step& step, Mark& earlier) {
    for (const auto& [number, other] : all.operations) {
      if (number >= step.number) break;
      if (other.peer != step.peer) continue;
      if (step.is_fence || other.covers_earlier) {
        join(earlier, other.all);
      } else if (other.puts) {
        join(earlier, other.data);
      }
    }
  }

  std::map<std::pair<int, std::uint32_t>, context> contexts_;
  std::uint64_t under_way_ = 0;
  std::uint64_t parts_ = 0;
};

}  // namespace devcomm::simulator::detail
