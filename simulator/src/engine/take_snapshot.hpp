/// \file take_snapshot.hpp
/// Takes what reports see.
#pragma once

#include "report/snapshot.hpp"

namespace devcomm::simulator::detail {

class engine;

/// Of all launches that run. With the baton.
[[nodiscard]] snapshot take_snapshot(engine& e);

}  // namespace devcomm::simulator::detail
