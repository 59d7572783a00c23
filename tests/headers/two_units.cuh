/// \file two_units.cuh
/// What two translation units of one program share.
#pragma once

#include <devcomm/devcomm.cuh>

namespace two_units {

/// Instantiated in both units: every thread adds what thread 0 sends round.
template <class T>
__global__ void add_broadcast(T* sums, T value) {
  const devcomm::block group{};
  sums[group.thread_rank()] += group.broadcast(group.thread_rank() == 0 ? value : T{}, 0);
}

/// Instantiated in both units and not launched: a program holds each session's code once.
template <class Group>
__global__ void meet(devcomm::device_comm comm, Group group) {
  devcomm::lsa::barrier_session<Group> barrier{group, comm, 0};
  barrier.sync(devcomm::memory_order::acq_rel);
}

using meet_kernel = void (*)(devcomm::device_comm, devcomm::block);

void launch_from_a(int* sums);
void launch_from_b(int* sums);
meet_kernel meet_of_a();
meet_kernel meet_of_b();

}  // namespace two_units
