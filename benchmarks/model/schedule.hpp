/// \file schedule.hpp
/// What one rank does in an all-reduce: messages, sums, and what each of them waits for.
#pragma once

#include "model/time_model.hpp"

#include <devcomm/team.hpp>

#include <cstdint>
#include <vector>

namespace model {

/// Bytes `begin` to `end` of the vector.
struct byte_range {
  std::uint64_t begin;
  std::uint64_t end;

  [[nodiscard]] std::uint64_t size() const { return end - begin; }
};

/// Index of an operation in its rank's schedule.
using operation_id = std::uint32_t;

struct operation {
  enum class kind {
    send,     ///< of `range`, as it is then, to `peer`
    receive,  ///< of `range` from `peer`: into its place, unless a reduction takes it
    reduce,   ///< adds what the receive `after[0]` got to `range`
  };
  kind what;
  int peer;  ///< world rank; of a reduction, whose data it adds
  byte_range range;
  int tag;  ///< a send and a receive of the same two ranks and tag are one message
  std::vector<operation_id> after;
};

/// The schedule of world rank `rank` for an all-reduce of `bytes`. Trees send in `chunks`, if there are bytes enough.
/// Nothing is sent for ranges without bytes.
[[nodiscard]] std::vector<operation> schedule_of(algorithm which, const machine& on, int rank, std::uint64_t bytes,
                                                 int chunks);

}  // namespace model
