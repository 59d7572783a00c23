/// \file handle_exchange.hpp
/// How ranks hand physical memory and multicast objects to other processes.
#pragma once

#include <devcomm/host/error.hpp>

#include "device/backend.hpp"
#include "rank/rank_context.hpp"
#include "util/deadline.hpp"
#include "util/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace devcomm::host::detail {

/// How others open a rank's memory, or a team's multicast object, unless by a descriptor.
struct handle_bytes {
  std::uint32_t count = 0;
  std::array<std::byte, max_handle_bytes> bytes{};

  void set(const std::vector<std::byte>& exported) {
    if (exported.size() > bytes.size()) {
      throw system_error("a memory handle of " + std::to_string(exported.size()) +
                         " bytes is larger than the library expects");
    }
    count = static_cast<std::uint32_t>(exported.size());
    std::copy(exported.begin(), exported.end(), bytes.begin());
  }
  [[nodiscard]] std::span<const std::byte> get() const {
    return std::span(bytes).first(std::min<std::size_t>(count, bytes.size()));
  }
};

/// Exports `what` to the other processes that hold some of `ranks`, as a piece of window `number`: sends a descriptor,
/// or returns what travels by the bootstrap.
template <class Object>
[[nodiscard]] handle_bytes hand_over(rank_context& context, Object& what, const std::vector<int>& ranks,
                                     std::uint64_t number, window_piece piece, const deadline& until) {
  handle_bytes mine;
  if (context.handle == handle_kind::file_descriptor) {
    const unique_fd descriptor(what.export_descriptor());
    for (const int process : context.other_processes(ranks)) {
      context.process->links().send_memory(process, number, context.rank(), descriptor.get(), until, piece);
    }
  } else if (context.handle != handle_kind::none) {
    mine.set(what.export_bytes());
  }
  return mine;
}

}  // namespace devcomm::host::detail
