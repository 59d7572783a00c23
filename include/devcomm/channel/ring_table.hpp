/// \file ring_table.hpp
/// The order of a ring in memory that kernels read. Host code; needs the CUDA runtime's headers or the simulator's.
#pragma once

#include <devcomm/channel/detail/table_memory.hpp>
#include <devcomm/launch.hpp>
#include <devcomm/ring.hpp>
#include <devcomm/team.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace devcomm::channel {

/// An order of the members of a team, in device memory. Made once, before kernels wait for this rank, as an allocation
/// may wait for them. Destruction waits for none: the memory is freed in the order of the thread's
/// `cudaStreamPerThread`, so no kernel of another stream may read it any more.
///
///     const channel::ring_table ring(comm.lsa(), comm.lsa_ring());
///     launch(kernel, shape, device_comm.get(), fifos, ring.order());
class ring_table {
 public:
  /// `members`: each member of `t` once, the same on all ranks; this rank sends to the one after itself, and the last
  /// to the first. Throws `std::invalid_argument` where one is missing.
  ring_table(const team& t, const std::vector<int>& members) : order_(in_team_order(t)) {
    const auto size = static_cast<std::size_t>(t.size);
    std::vector<int32_t> positions(size, -1);
    for (std::size_t at = 0; at < members.size() && at < size; ++at) {
      const int member = members[at];
      if (member >= 0 && member < t.size) positions[static_cast<std::size_t>(member)] = static_cast<int32_t>(at);
    }
    for (std::size_t member = 0; member < size; ++member) {
      if (positions[member] < 0 || members.size() != size)
        throw std::invalid_argument(
            "ring_table: " + std::to_string(members.size()) + " members of a team of " + std::to_string(t.size) +
            (positions[member] < 0 ? ", without member " + std::to_string(member) : "") + "; name each member once");
    }
    const auto here = static_cast<std::size_t>(positions[static_cast<std::size_t>(t.rank)]);
    order_.position = static_cast<int32_t>(here);
    order_.next = members[(here + 1) % size];
    order_.previous = members[(here + size - 1) % size];
    const std::vector<int32_t> table(members.begin(), members.end());
    memory_.emplace(size * sizeof(int32_t));
    memory_->put(0, table.data(), size * sizeof(int32_t), cudaStreamPerThread);
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "ring_table");
    order_.members = reinterpret_cast<const int32_t*>(memory_->data());
  }
  ring_table(const ring_table&) = delete;
  ring_table& operator=(const ring_table&) = delete;

  /// For the kernel.
  [[nodiscard]] const ring_order& order() const& { return order_; }
  const ring_order& order() && = delete;

 private:
  ring_order order_;
  std::optional<detail::table_memory> memory_;
};

}  // namespace devcomm::channel
