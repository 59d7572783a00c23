/// \file call.cuh
/// What one call of a channel's primitive does with each pack.
#pragma once

#include <devcomm/arch/language.hpp>
#include <devcomm/config.hpp>
#include <devcomm/data/pack.cuh>
#include <devcomm/data/reduction.cuh>
#include <devcomm/data/slice.hpp>

namespace devcomm::detail {

/// Instead of a producer, a consumer, an operator or a destination: there is none.
struct none {};

/// Where what a session receives lies, or where what it sends goes.
enum class via {
  nothing,  ///< it does not
  slots,    ///< slots of the FIFO
  memory,   ///< the receiver's own memory; the FIFO only counts steps
};

/// What one call of a primitive does with each pack.
template <class T, via Receive, via Send, class Produce, class Consume, class Operator, class Destination>
struct channel_call {
  using element = T;
  static constexpr via receive = Receive;
  static constexpr via send = Send;
  static constexpr bool has_input = !is_same<Produce, none>;
  static constexpr bool has_output = !is_same<Consume, none>;
  static constexpr bool reduces = !is_same<Operator, none>;

  slice packs;
  const Produce& produce;
  const Consume& consume;
  const Operator& op;
  int inputs;  ///< that are in the result, or 0 where more are to come
  const Destination& to;

  /// One pack of what was received, from the ranks whose bit is set in `present`, and of what this rank adds.
  template <int Received>
  DEVCOMM_DEVICE pack<T> combine(const pack<T> (&received)[Received], uint32_t present, const pack<T>& own) const {
    if constexpr (reduces) {
      using accumulator = accumulator_t<T>;
      pack<T> result;
      DEVCOMM_UNROLL
      for (int e = 0; e < pack<T>::size; ++e) {
        accumulator total{};
        bool first = true;
        DEVCOMM_UNROLL
        for (int r = 0; r < Received; ++r) {
          if ((present >> r & 1) == 0) continue;
          const auto value = static_cast<accumulator>(received[r][e]);
          total = first ? value : op(total, value);
          first = false;
        }
        if constexpr (has_input) {
          const accumulator value = to_accumulator<T>(own[e], op);
          total = first ? value : op(total, value);
        }
        result[e] = inputs != 0 ? from_accumulator<T>(total, inputs, op) : static_cast<T>(total);
      }
      return result;
    } else if constexpr (Receive == via::slots) {
      return received[0];
    } else {
      return own;
    }
  }
};

}  // namespace devcomm::detail
