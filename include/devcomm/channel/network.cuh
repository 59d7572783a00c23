/// \file network.cuh
/// Channels between ranks of any hosts: `channel::session` with `channel::network_fifos`.
///
///     const auto fifos = needs.add(channel::network_fifos{.contexts = {comm.world(), 4}, .count = blocks});
///
///     __global__ void reduce(device_comm comm, channel::fifo_handle<channel::protocol::network> fifos, ...) {
///       channel::session ring{block{}, comm, fifos, channel::from_previous(comm.world(), blockIdx.x),
///                             channel::to_next(comm.world(), blockIdx.x)};
///       collective::all_reduce_ring<float>(ring, packs, input, output, sum{});
///     }
///
/// Sessions, primitives and the collectives on them are those of `protocol::simple`, without its direct forms. An end
/// whose peer is in this rank's LSA team stores, and one whose peer is beyond the network puts; one session may have
/// both.
#pragma once

#include <devcomm/channel/detail/network_end.cuh>
#include <devcomm/channel/network_fifos.hpp>
#include <devcomm/channel/session.cuh>
