/// \file buffer.cuh
/// Buffers in the network memory of a device communicator, in kernels.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/config.hpp>
#include <devcomm/device_comm.hpp>
#include <devcomm/diagnostics/resource_header.hpp>
#include <devcomm/gin/buffer.hpp>
#include <devcomm/sym_ptr.hpp>
#include <devcomm/window.hpp>

namespace devcomm::gin {

/// The network memory of `comm`: a window like others. *Requires* that something was asked for there.
DEVCOMM_DEVICE inline const window& network_memory(const device_comm& comm) {
  const window& memory = reinterpret_cast<const resource_header*>(comm.resources.local)->network;
  DEVCOMM_ASSERT(memory.bytes != 0, "the device communicator has no network memory; ask for a gin::buffer");
  return memory;
}

/// Where a buffer lies on every rank.
template <class T>
DEVCOMM_DEVICE sym_ptr<T> memory_of(const device_comm& comm, const buffer_handle<T>& buffer) {
  comm.check_owner(buffer);
  return {network_memory(comm), buffer.offset};
}

}  // namespace devcomm::gin
