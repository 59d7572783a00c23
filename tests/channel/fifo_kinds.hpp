/// \file fifo_kinds.hpp
/// Every protocol of FIFOs in turn.
#pragma once

#include <devcomm/channel/fifos.hpp>

#include <type_traits>

namespace test {

template <devcomm::channel::protocol Protocol>
using protocol_constant = std::integral_constant<devcomm::channel::protocol, Protocol>;

/// Calls `body(protocol_constant)` for each protocol.
template <class Body>
void for_each_protocol(Body body) {
  body(protocol_constant<devcomm::channel::protocol::simple>{});
  body(protocol_constant<devcomm::channel::protocol::ll>{});
  body(protocol_constant<devcomm::channel::protocol::ll128>{});
}

}  // namespace test
