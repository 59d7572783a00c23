/// \file symmetric_memory_state.hpp
/// What a `symmetric_memory` owns.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "memory/window_state.hpp"

namespace devcomm::host {

class symmetric_memory::state : public detail::held_window {
 public:
  state(const detail::rank_context& context, detail::held_window held, code_place made)
      : held_window(std::move(held)),
        listed_(context.made, this->name + " of " + std::to_string(this->bytes) + " bytes", made) {}

 private:
  detail::ledger::entry listed_;
};

}  // namespace devcomm::host
