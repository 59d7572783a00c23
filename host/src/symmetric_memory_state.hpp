/// \file symmetric_memory_state.hpp
/// What a `symmetric_memory` owns.
#pragma once

#include <devcomm/host/communicator.hpp>

#include "held_window.hpp"

namespace devcomm::host {

class symmetric_memory::state : public detail::held_window {
 public:
  explicit state(detail::held_window held) : held_window(std::move(held)) {}
};

}  // namespace devcomm::host
