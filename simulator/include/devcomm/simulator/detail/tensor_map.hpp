/// \file tensor_map.hpp
/// Copies between shared memory and a box of a tensor: what `cp.async.bulk.tensor` asks of the runtime.
#pragma once

#include <devcomm/simulator/detail/copies.hpp>

#include <cstdint>

namespace devcomm::simulator::detail {

/// Of the elements of a map, by `CUtensorMapDataType`. Throws `misuse` where there is no map.
[[nodiscard]] uint32_t type_of_tensor(const void* map);

/// Copies the box at `coordinates`, the innermost first, of the tensor of a map by `cuTensorMapEncodeTiled`: to
/// shared memory, with zeros where there is no tensor, or from there. Reports the bytes of the whole box to the
/// mbarrier; without one it is in the thread's current group.
void copy_tensor(const char* instruction, const void* map, const int* coordinates, int rank, void* shared, bool loads,
                 copy_reduction reduces, void* mbarrier);

}  // namespace devcomm::simulator::detail
