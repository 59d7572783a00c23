/// \file fifo_kinds.hpp
/// Every protocol of FIFOs in turn, and what their tests leave behind.
#pragma once

#include <devcomm/channel/fifos.hpp>
#include <devcomm/host/communicator.hpp>
#include <devcomm/host/error.hpp>

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

/// Outlives a device communicator that ends with steps which nobody has received.
struct takes_left_steps {
  devcomm::host::communicator& comm;

  ~takes_left_steps() {
    try {
      comm.check();
    } catch (const devcomm::host::kernel_error&) {
    }
  }
};

}  // namespace test
