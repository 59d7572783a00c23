/// \file symmetric_memory_state.hpp
/// What a `symmetric_memory` owns.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "memory/window_state.hpp"
#include "util/process_stamp.hpp"
#include "util/unwinding.hpp"

namespace devcomm::host {

class symmetric_memory::state : public detail::window_state {
 public:
  state(const detail::rank_context& context, detail::window_state held, code_place made)
      : window_state(std::move(held)),
        rank_(context.rank()),
        entry_(context.objects, this->name + " of " + std::to_string(this->bytes) + " bytes", made) {}

  ~state() {
    if (label && !watch_.unwinding()) label->ends(rank_);  // an exception has said what is wrong
  }
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  detail::process_stamp made_in;

 private:
  detail::unwinding_watch watch_;
  int rank_;
  detail::live_objects::entry entry_;
};

}  // namespace devcomm::host
