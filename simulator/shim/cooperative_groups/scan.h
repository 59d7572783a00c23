/// \file scan.h
/// `cg::inclusive_scan` and `cg::exclusive_scan` for the simulator.
#pragma once

#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <class Group, class T, class Operation = plus<T>>
T inclusive_scan(const Group& group, T value, Operation operation = {}) {
  T result = value;
  T sum = value;
  for (unsigned rank = 0; rank < group.size(); ++rank) {
    const T next = group.shfl(value, rank);
    sum = rank == 0 ? next : operation(sum, next);
    if (rank == group.thread_rank()) result = sum;
  }
  return result;
}
/// The first thread gets a `T` of value 0.
template <class Group, class T, class Operation = plus<T>>
T exclusive_scan(const Group& group, T value, Operation operation = {}) {
  const T result = group.shfl_up(inclusive_scan(group, value, operation), 1);
  return group.thread_rank() == 0 ? T{} : result;
}

}  // namespace cooperative_groups
